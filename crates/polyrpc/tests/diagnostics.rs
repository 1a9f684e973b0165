//! Compiler errors of invalid programs: they name the cause.
//!
//! The programs and the expected messages are in `tests/diagnostics`; `POLYRPC_WRITES_DIAGNOSTICS=yes` rewrites the
//! messages, for another compiler.
//!
//! Each program is type-checked against the library that this test is linked with. A tool that has cargo build a
//! project for them would compile the library and its dependencies a second time.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;
use std::{env, fs};

#[test]
fn compiler_errors_name_the_cause() {
    let rewrites = env::var_os("POLYRPC_WRITES_DIAGNOSTICS").is_some();
    let (libraries, library) = library();
    let programs = programs();
    assert!(programs.len() >= 7, "no programs, or not all of them: {programs:?}");

    let mut differences = Vec::new();
    for program in programs {
        let message = message(&compile(&program, &libraries, &library), &program);
        let expected = program.with_extension("stderr");
        if rewrites {
            fs::write(&expected, &message).unwrap();
        } else if fs::read_to_string(&expected).unwrap_or_default() != message {
            differences.push(format!("{} is not what the compiler said:\n{message}", expected.display()));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The folder with this test and the libraries that it is linked with, and the newest build of `polyrpc` there: the one
/// that was built for this test, unless another set of features was built since, which serves as well.
fn library() -> (PathBuf, PathBuf) {
    let folder = env::current_exe().unwrap().parent().unwrap().to_owned();
    let built =
        |path: &PathBuf| path.metadata().and_then(|file| file.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let library = files(&folder)
        .into_iter()
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libpolyrpc-") && name.ends_with(".rlib")
        })
        .max_by_key(built)
        .expect("the library stands beside its tests");
    (folder, library)
}

fn programs() -> Vec<PathBuf> {
    let mut programs = files(Path::new("tests/diagnostics"));
    programs.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    programs.sort();
    programs
}

fn files(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// What the compiler prints about `program`, which must not compile.
fn compile(program: &Path, libraries: &Path, library: &Path) -> String {
    let mut dependencies = std::ffi::OsString::from("dependency=");
    dependencies.push(libraries);
    let mut polyrpc = std::ffi::OsString::from("polyrpc=");
    polyrpc.push(library);
    let output = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--edition", "2024", "--crate-type", "bin", "--emit", "metadata", "--color", "never"])
        .arg("--out-dir")
        .arg(env!("CARGO_TARGET_TMPDIR"))
        .arg("-L")
        .arg(dependencies)
        .arg("--extern")
        .arg(polyrpc)
        .arg(program)
        // Its width is that of the terminal otherwise.
        .env("COLUMNS", "140")
        .output()
        .unwrap();
    assert!(!output.status.success(), "{} compiles", program.display());
    String::from_utf8(output.stderr).unwrap()
}

/// The message without what changes with the library's lines and the location of its sources: of other files than
/// `program`, only the name is left.
fn message(output: &str, program: &Path) -> String {
    let mut message = String::new();
    let mut within_program = true;
    for line in output.lines() {
        // Behind the errors come their number and an offer to explain them.
        if line.starts_with("error: aborting due to") {
            break;
        }
        if let Some(location) =
            line.trim_start().strip_prefix("--> ").or_else(|| line.trim_start().strip_prefix("::: "))
        {
            within_program = location.starts_with(&*program.to_string_lossy());
            if within_program {
                message.push_str(&format!("--> {location}\n"));
            } else {
                message.push_str(&format!("--> {}\n", file(location)));
            }
        } else if within_program || !is_source(line) {
            message.push_str(unnumbered(line));
            message.push('\n');
        }
    }
    message.truncate(message.trim_end().len());
    message.push('\n');
    message
}

/// `server/mod.rs` of `/any/where/src/server/mod.rs:12:5`.
fn file(location: &str) -> &str {
    let location = location.rsplit_once("src/").map_or(location, |(_, file)| file);
    location.split_once(':').map_or(location, |(file, _)| file)
}

/// Whether a line shows source text, or marks it.
fn is_source(line: &str) -> bool {
    let rest = line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
    rest.starts_with('|') || line.trim() == "..."
}

/// The margin's width depends on the largest number in it.
fn unnumbered(line: &str) -> &str {
    if is_source(line) || line.trim_start().starts_with("= ") { line.trim_start() } else { line }
}
