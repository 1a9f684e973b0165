//! Every hazard of `docs/reliability.md` names commands that exist: subcommands of `./dev`, attacks by name, and test
//! targets with tests of the named kind.

use std::fs;
use std::path::{Path, PathBuf};

/// The hazards that the document must list.
const HAZARDS: usize = 31;

#[test]
fn every_hazard_has_commands_that_exist_and_a_figure() {
    let text = fs::read_to_string(root().join("docs/reliability.md")).expect("the document exists");
    let rows: Vec<_> = text.lines().filter_map(Row::parse).collect();
    let numbers: Vec<_> = rows.iter().map(|row| row.number).collect();
    assert_eq!(numbers, (1..=HAZARDS).collect::<Vec<_>>());
    let mut wrong = Vec::new();
    for row in &rows {
        let is_open = row.figure.starts_with("not shown");
        if row.figure.is_empty() || row.commands.is_empty() != is_open {
            wrong.push(format!("{}: neither a command with a figure nor `not shown`", row.number));
        }
        wrong.extend(row.commands.iter().filter_map(|command| {
            check(command).err().map(|why| format!("{}: `{command}`: {why}", row.number))
        }));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn command_that_does_not_exist_is_reported() {
    let known = [
        "./dev attack flood rapid_reset",
        "./dev bench overload",
        "cargo test --test hostile garbage",
        "cargo test --lib socket_of_a_dead_process_is_replaced",
        "cargo test -p polyrpc-discovery --test registries registry_that_restarts",
    ];
    for command in known {
        check(command).unwrap_or_else(|why| panic!("{command}: {why}"));
    }
    let unknown = [
        "./dev atack",
        "./dev attack rapid_rest",
        "./dev bench overlord",
        "cargo test --test hostle",
        "cargo test --test hostile garbag_closes",
        "cargo test --lib no_such_test_in_any_module",
        "cargo test -p polyrpc-nothing",
        "cargo run",
    ];
    for command in unknown {
        check(command).expect_err(command);
    }
}

/// A row of the table of hazards.
struct Row<'a> {
    number: usize,
    commands: Vec<&'a str>,
    figure: &'a str,
}

impl<'a> Row<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let cells: Vec<_> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let [number, _, commands, figure] = cells[..] else { return None };
        let commands = commands.split('`').skip(1).step_by(2).collect();
        Some(Self { number: number.parse().ok()?, commands, figure: figure.trim() })
    }
}

fn check(command: &str) -> Result<(), String> {
    let words: Vec<_> = command.split(' ').collect();
    match words[..] {
        ["./dev", "attack", ref names @ ..] => attacks(names),
        ["./dev", "bench", name, ..] => bench(name),
        ["./dev", name, ..] => dev(name),
        ["cargo", "test", ref rest @ ..] => cargo_test(rest),
        _ => Err("neither ./dev nor cargo test".to_owned()),
    }
}

fn dev(name: &str) -> Result<(), String> {
    let has = read("dev").contains(&format!("\nrun_{name}() {{"));
    has.then_some(()).ok_or_else(|| format!("./dev has no `{name}`"))
}

/// An attack is chosen by a part of its name, or by its row.
fn attacks(names: &[&str]) -> Result<(), String> {
    let texts = sources(&root().join("attack/src/attacks")).into_iter().map(|path| read_path(&path));
    let known: String = texts.collect();
    let literals: Vec<_> = known.split('"').skip(1).step_by(2).collect();
    match names.iter().find(|name| !literals.iter().any(|literal| literal.contains(**name))) {
        None => Ok(()),
        Some(name) => Err(format!("no attack is called `{name}`")),
    }
}

/// A suite is a variant of the program's commands, or a script.
fn bench(name: &str) -> Result<(), String> {
    let variant: String = name.split(['_', '-']).map(capitalized).collect();
    let is_suite = read("bench/src/main.rs").contains(&format!("    {variant}("));
    (is_suite || root().join(format!("bench/{name}.py")).exists())
        .then_some(())
        .ok_or_else(|| format!("there is no suite `{name}`"))
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

fn cargo_test(words: &[&str]) -> Result<(), String> {
    let (package, rest) = match words {
        ["-p", package, rest @ ..] => (*package, rest),
        rest => ("polyrpc", rest),
    };
    let krate = package.strip_prefix("polyrpc-").unwrap_or(package);
    let folder = root().join("crates").join(krate);
    if !folder.join("Cargo.toml").exists() {
        return Err(format!("there is no package {package}"));
    }
    let (files, filter) = match rest {
        [] => return Ok(()),
        ["--lib", filter @ ..] => (sources(&folder.join("src")), filter),
        ["--test", target, filter @ ..] => {
            let tests = folder.join("tests");
            let (file, module) = (tests.join(format!("{target}.rs")), tests.join(target));
            let files = match (file.exists(), module.is_dir()) {
                // It declares the modules beside it.
                (true, _) => sources(&tests),
                (false, true) => sources(&module),
                (false, false) => return Err(format!("there is no test target `{target}`")),
            };
            (files, filter)
        }
        _ => return Err("expected --lib or --test".to_owned()),
    };
    match filter {
        [] => Ok(()),
        [filter] if files.iter().any(|file| has_test(file, filter)) => Ok(()),
        _ => Err(format!("no test is called `{filter:?}`")),
    }
}

/// Whether the file has a test whose name, or whose module, contains this.
fn has_test(file: &Path, filter: &str) -> bool {
    let text = read_path(file);
    let is_named = text.match_indices("fn ").any(|(at, _)| {
        let name = text[at + 3..].split('(').next().unwrap_or_default();
        name.contains(filter) && text[..at].trim_end_matches("async ").trim_end_matches(' ').ends_with("]\n")
    });
    let is_module = file.file_stem().is_some_and(|stem| stem.to_string_lossy().contains(filter));
    is_named || (is_module && text.contains("test]"))
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let own = files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    own.chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}

fn read(file: &str) -> String {
    read_path(&root().join(file))
}

fn read_path(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
