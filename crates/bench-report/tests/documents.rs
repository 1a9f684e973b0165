//! Figures in documents are those of stored results. `POLYRPC_BLESS=1 cargo test -p polyrpc-bench-report --test
//! documents` writes them.
//!
//! A block is what stands between `<!-- KIND NAME … -->` and `<!-- end -->`. Its content comes from files of
//! docs/performance:
//!
//! - `suite NAME PART`: a part of NAME.json as Markdown, or for `plot …` an image of the folder
//! - `runs NAME…`: a row for each NAME.json
//! - `checks NAME…`: the checks that `bench selftest` printed into each NAME.txt
//! - `output NAME`: what a command printed into NAME.txt
//! - `picture NAME TEXT`: docs/guides/images/NAME.png, described by TEXT
//!
//! A block whose files are not stored yet says so, and which command makes them.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use polyrpc_bench_report::format::{Bytes, Count, Nanoseconds};
use polyrpc_bench_report::model::{Document, Run, Suite};
use polyrpc_bench_report::report::{html, markdown_block, suite_plot};

/// Documents with figures.
const DOCUMENTS: [&str; 2] = ["README.md", "docs/performance.md"];
/// The suites, each with the numbers of tables and figures in its document.
const SUITES: [(&str, usize, usize); 5] = [
    ("rest_rpc-brpc", 3, 4),
    ("brpc-grpc", 6, 2),
    ("rpcx-grpc", 7, 5),
    ("flatbuffers", 2, 0),
    ("grpc-connections", 1, 2),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Results, by the names of their files.
struct Results(BTreeMap<String, String>);

impl Results {
    /// Those of docs/performance.
    fn read() -> Self {
        let files = fs::read_dir(folder()).unwrap().map(|file| file.unwrap().path());
        let files = files.filter(|path| has_extension(path, "json") || has_extension(path, "txt"));
        let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
        Self(files.map(|path| (name(&path), fs::read_to_string(&path).unwrap())).collect())
    }

    fn has(&self, file: &str) -> bool {
        self.0.contains_key(file)
    }

    fn text(&self, file: &str) -> &str {
        self.0.get(file).unwrap_or_else(|| panic!("{file} is not stored"))
    }

    fn document(&self, name: &str) -> Document {
        let text = self.text(&format!("{name}.json"));
        Document::read(text).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn suite(&self, name: &str) -> Suite {
        match self.document(name) {
            Document::Suite(suite) => *suite,
            other => panic!("{name}: {other:?}"),
        }
    }

    fn run(&self, name: &str) -> Run {
        match self.document(name) {
            Document::Run(run) => *run,
            other => panic!("{name}: {other:?}"),
        }
    }

    /// The suites that are stored, each with the numbers of tables and figures in its document.
    fn suites(&self) -> impl Iterator<Item = (Suite, usize, usize)> {
        let stored = SUITES.into_iter().filter(move |(name, ..)| self.has(&format!("{name}.json")));
        stored.map(move |(name, tables, figures)| (self.suite(name), tables, figures))
    }
}

fn folder() -> PathBuf {
    root().join("docs/performance")
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

/// The files that documents and results make: texts of documents, and plots.
fn generate(results: &Results) -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    for name in DOCUMENTS {
        let path = root().join(name);
        let text = fs::read_to_string(&path).unwrap();
        let filled = fill(&text, name, results, &mut files);
        files.insert(path, filled);
    }
    files
}

/// The text with every block as it should be.
fn fill(text: &str, document: &str, results: &Results, files: &mut BTreeMap<PathBuf, String>) -> String {
    let mut filled = String::new();
    let mut rest = text;
    while let Some(at) = block_start(rest) {
        let (before, block) = rest.split_at(at);
        let (head, _) = block.split_once(" -->").unwrap_or_else(|| panic!("{document}: {block:.80}"));
        let end = block.find(END).unwrap_or_else(|| panic!("{document}: {head} has no end"));
        let words: Vec<_> = head[BEGIN.len()..].split(' ').collect();
        let content = match missing(&words, results) {
            Some(target) => Some(format!("*Not measured yet: `./dev figures {target}`.*")),
            None => content(&words, document, results, files),
        };
        let content = content.unwrap_or_else(|| panic!("{document}: no result has {head}"));
        write!(filled, "{before}{head} -->\n\n{}\n\n{END}", content.trim_end()).unwrap();
        rest = &block[end + END.len()..];
    }
    filled + rest
}

/// The first comment that begins a block.
fn block_start(text: &str) -> Option<usize> {
    KINDS.iter().filter_map(|kind| text.find(&format!("{BEGIN}{kind} "))).min()
}

/// The argument of `./dev figures` that makes the files of a block, if one of them is not stored.
fn missing<'a>(words: &[&'a str], results: &Results) -> Option<&'a str> {
    let lacks = |name: &str, extension: &str| !results.has(&format!("{name}.{extension}"));
    match words {
        ["suite", name, ..] => lacks(name, "json").then_some("suites"),
        ["runs", names @ ..] => names.iter().any(|name| lacks(name, "json")).then_some("generator"),
        ["checks", names @ ..] => names.iter().any(|name| lacks(name, "txt")).then_some("selftest"),
        ["output", name] => lacks(name, "txt").then_some(*name),
        ["picture", name, ..] => (!picture(name).exists()).then_some("picture"),
        _ => None,
    }
}

fn content(
    words: &[&str],
    document: &str,
    results: &Results,
    files: &mut BTreeMap<PathBuf, String>,
) -> Option<String> {
    match words {
        ["suite", name, "plot", plot @ ..] => image(&results.suite(name), &plot.join(" "), document, files),
        ["suite", name, part @ ..] => markdown_block(&results.suite(name), &part.join(" ")),
        ["runs", names @ ..] => Some(runs(names, results)),
        ["checks", names @ ..] => Some(checks(names, results)),
        ["output", name] => Some(output(name, results)),
        ["picture", name, text @ ..] => Some(format!("![{}](guides/images/{name}.png)", text.join(" "))),
        _ => None,
    }
}

fn picture(name: &str) -> PathBuf {
    root().join("docs/guides/images").join(name).with_extension("png")
}

fn image(suite: &Suite, plot: &str, document: &str, files: &mut BTreeMap<PathBuf, String>) -> Option<String> {
    let Some(svg) = suite_plot(suite, plot) else {
        let charts = suite.charts.iter().map(|chart| format!("chart {}", chart.id));
        let tables = suite.tables.iter().map(|table| format!("ratios {}", table.id));
        let is_known = charts.chain(tables).any(|known| known == plot);
        return is_known.then(|| "*No plot: none of its figures could be measured.*".to_owned());
    };
    let file = format!("performance/{}-{}.svg", suite.name, plot.replace(' ', "-"));
    let link = if document.starts_with("docs/") { file.clone() } else { format!("docs/{file}") };
    files.insert(root().join("docs").join(&file), svg.standalone());
    Some(format!("![{}]({link})", svg.title.replace(['[', ']'], "")))
}

/// Loads of this generator, and what they cost it.
fn runs(names: &[&str], results: &Results) -> String {
    let mut text = "| load | planned | reached | lag p50 | lag p99 | generator's CPU time per call | its memory | verdict |\n\
                    |---|---|---|---|---|---|---|---|\n"
        .to_owned();
    let mut commands = String::new();
    for name in names {
        let run = results.run(name);
        let protocol = run.target.url.split("://").next().unwrap_or_default();
        let a_second = |rate: Option<f64>| rate.map_or_else(dash, |rate| format!("{}/s", Count(rate)));
        let lag = |quantile| {
            let lag = run.latency.lag.as_ref().and_then(|lag| lag.quantile(quantile));
            lag.map_or_else(dash, |lag| Nanoseconds(lag.value as f64).to_string())
        };
        let client = &run.resources.client;
        let cpu = client.cpu_us_per_call(run.counts.succeeded);
        writeln!(
            text,
            "| {protocol}, {} | {} | {} | {} | {} | {} | {} | {} |",
            run.load.description,
            a_second(run.load.rate),
            a_second(Some(run.calls_per_second)),
            lag(0.5),
            lag(0.99),
            cpu.map_or_else(dash, |cpu| Nanoseconds(cpu * 1e3).to_string()),
            client.max_rss_bytes.map_or_else(dash, |bytes| Bytes(bytes as f64).to_string()),
            run.verdict.outcome,
        )
        .unwrap();
        writeln!(commands, "- `{}`", run.metadata.command).unwrap();
    }
    format!("{text}\n{commands}")
}

fn dash() -> String {
    "–".to_owned()
}

/// Returns the output of a command, without the command line.
fn output(name: &str, results: &Results) -> String {
    let text = results.text(&format!("{name}.txt"));
    let (command, printed) = text.split_once('\n').unwrap_or_default();
    let command = command.strip_prefix("$ ").unwrap_or_else(|| panic!("{name}.txt begins with no command"));
    format!("`{command}`\n\n{printed}")
}

/// A check of `bench selftest` as it prints it: the measurement, what is checked, what is right, what was measured, the
/// result.
type Check = [String; 5];

fn printed_checks(name: &str, results: &Results) -> Vec<Check> {
    let mut title = String::new();
    let mut checks = Vec::new();
    for line in results.text(&format!("{name}.txt")).lines() {
        let Some((what, rest)) = line.strip_prefix("  ").and_then(|line| line.split_once(" expected "))
        else {
            line.clone_into(&mut title);
            continue;
        };
        let (expected, rest) = rest.split_once(" measured ").unwrap_or_else(|| panic!("{name}: {line}"));
        let (measured, result) =
            rest.trim_end().rsplit_once("  ").unwrap_or_else(|| panic!("{name}: {line}"));
        let result = result.trim();
        assert!(["ok", "FAILED"].contains(&result), "{name}: {line}");
        checks.push([title.as_str(), what, expected, measured, result].map(|part| part.trim().to_owned()));
    }
    assert!(!checks.is_empty(), "{name}.txt has no checks");
    checks
}

/// A row for each check, a column for each file.
fn checks(names: &[&str], results: &Results) -> String {
    let columns: Vec<_> = names.iter().map(|name| printed_checks(name, results)).collect();
    let heads: String = names.iter().map(|name| format!(" {} |", name.replace('-', " "))).collect();
    let mut text = format!("| measurement | check |{heads}\n|---|---|{}\n", "---|".repeat(names.len()));
    for (at, [title, what, ..]) in columns[0].iter().enumerate() {
        let cells = columns.iter().map(|checks| {
            let [_, other, expected, measured, result] = &checks[at];
            assert_eq!(what, other, "{names:?} have different checks");
            format!(" {measured} of {expected}: {result} |")
        });
        writeln!(text, "| {title} | {what} |{}", cells.collect::<String>()).unwrap();
    }
    let commands = names.iter().map(|name| {
        let text = results.text(&format!("{name}.txt"));
        let command = text.lines().next().and_then(|line| line.strip_prefix("$ "));
        format!(
            "- {}: `{}`\n",
            name.replace('-', " "),
            command.unwrap_or_else(|| panic!("{name}: no command"))
        )
    });
    format!("{text}\n{}", commands.collect::<String>())
}

const BEGIN: &str = "<!-- ";
const KINDS: [&str; 5] = ["suite", "runs", "checks", "output", "picture"];
const END: &str = "<!-- end -->";

#[test]
fn figures_of_documents_are_those_of_stored_results() {
    let files = generate(&Results::read());
    if std::env::var_os("POLYRPC_BLESS").is_some() {
        files.iter().for_each(|(path, text)| fs::write(path, text).unwrap());
    }
    for (path, wanted) in &files {
        let found = fs::read_to_string(path).unwrap_or_default();
        let line = found.lines().zip(wanted.lines()).find(|(found, wanted)| found != wanted);
        assert!(found == *wanted, "{} differs from its stored result: {line:?}", path.display());
    }
    let plots = files.keys().filter(|path| has_extension(path, "svg")).count();
    let kept =
        fs::read_dir(folder()).unwrap().filter(|file| has_extension(&file.as_ref().unwrap().path(), "svg"));
    let kept = kept.count();
    assert_eq!(plots, kept, "a plot in docs/performance is in no document");
}

/// Texts outside of blocks: what a person wrote.
fn strip_blocks(text: &str) -> String {
    let mut written = String::new();
    let mut rest = text;
    while let Some(at) = block_start(rest) {
        written += &rest[..at];
        rest = rest[at..].split_once(END).map_or("", |(_, after)| after);
    }
    written + rest
}

/// Lines with numbers that have a unit of speed, size or time.
fn measured_figures(text: &str) -> Vec<&str> {
    const UNITS: [&str; 9] = ["µs", "ms", "ns", "MB", "MiB", "KiB", "times", "calls/s", "calls a second"];
    let is_number = |word: &str| word.starts_with(|first: char| first.is_ascii_digit());
    text.lines()
        .filter(|line| {
            UNITS.iter().any(|unit| {
                line.match_indices(unit).any(|(at, _)| {
                    let ends = !line[at + unit.len()..].starts_with(char::is_alphanumeric);
                    ends && line[..at].split_whitespace().next_back().is_some_and(is_number)
                })
            })
        })
        .collect()
}

#[test]
fn no_figure_is_written_by_hand() {
    for document in ["README.md", "README.zh.md", "docs/performance.md"] {
        let text = fs::read_to_string(root().join(document)).unwrap();
        let written = strip_blocks(&text);
        // Parameters of the measurement: message sizes, goals and loads.
        let is_given = |line: &&str| ["KiB:", "Goals:", "Loads:"].iter().any(|word| line.contains(word));
        let figures: Vec<_> = measured_figures(&written).into_iter().filter(|line| !is_given(line)).collect();
        assert!(figures.is_empty(), "{document}: {figures:?} are in no stored result");
    }
    let by_hand = "a\n<!-- suite x y -->\n5 µs\n<!-- end -->\nPolyRPC takes 3.5 µs\nor 2µs, 7 msx, µs";
    assert_eq!(measured_figures(&strip_blocks(by_hand)), ["PolyRPC takes 3.5 µs", "or 2µs, 7 msx, µs"]);
}

#[test]
fn changed_figure_is_noticed() {
    let results = Results(BTreeMap::from([(
        "small.json".to_owned(),
        Document::Suite(Box::new(common::suite())).to_json(),
    )]));
    let text = "before <!-- suite small table rates -->\n\n| 1 |\n\n<!-- end --> after <!-- a remark -->";
    let fill = |text: &str| fill(text, "a test", &results, &mut BTreeMap::new());
    let filled = fill(text);
    let is_kept = filled.starts_with("before ") && filled.ends_with(" after <!-- a remark -->");
    assert!(filled.contains("1 caller") && !filled.contains("| 1 |") && is_kept, "{filled}");
    assert_eq!(fill(&filled), filled);
}

#[test]
fn block_without_a_result_names_the_command_that_makes_it() {
    let none = Results(BTreeMap::new());
    let blocks = [
        ("suite rpcx-grpc table rpcx-1", "suites"),
        ("runs a b", "generator"),
        ("checks a", "selftest"),
        ("output anchors", "anchors"),
        ("picture nowhere A page", "picture"),
    ];
    for (block, target) in blocks {
        let filled =
            fill(&format!("<!-- {block} -->\nold\n<!-- end -->"), "a test", &none, &mut BTreeMap::new());
        let wanted =
            format!("<!-- {block} -->\n\n*Not measured yet: `./dev figures {target}`.*\n\n<!-- end -->");
        assert_eq!(filled, wanted);
    }
}

#[test]
fn every_table_and_figure_of_the_documents_is_in_the_results_and_on_the_page() {
    for (suite, tables, figures) in Results::read().suites() {
        let name = suite.name.clone();
        assert_eq!((suite.tables.len(), suite.charts.len()), (tables, figures), "{name}");
        assert!(!suite.defects.is_empty() && suite.metadata.command.contains("bench suite"), "{name}");
        for table in &suite.tables {
            assert_eq!(table.entries.len(), table.rows.len() * table.columns.len(), "{name} {}", table.id);
            assert!(table.entries.iter().any(|entry| entry.published.is_some()), "{name} {}", table.id);
        }
        let page = html(&name, &[(name.clone(), Document::Suite(Box::new(suite)))]);
        assert_eq!(page.matches("data-table=").count(), tables, "{name}");
        assert_eq!(page.matches("data-chart=").count(), figures, "{name}");
    }
}

/// Whether or not they are measured.
#[test]
fn page_on_performance_has_an_element_for_every_table_and_figure() {
    let page = fs::read_to_string(root().join("docs/performance.md")).unwrap();
    for (name, tables, figures) in SUITES {
        let count = |part: &str| page.matches(&format!("<!-- suite {name} {part} ")).count();
        assert_eq!((count("table"), count("plot chart")), (tables, figures), "{name}");
    }
}

/// Results were measured by a build with optimization, and without paths of the machine.
#[test]
fn stored_results_are_of_a_release_build_and_name_no_paths_of_its_machine() {
    for (suite, ..) in Results::read().suites() {
        let name = &suite.name;
        assert!(
            !suite.warnings.iter().any(|warning| warning.contains("debug")),
            "{name}: {:?}",
            suite.warnings
        );
        let commands = suite.cells.iter().flat_map(|cell| &cell.commands);
        let path = commands.chain([&suite.metadata.command]).find(|command| {
            command.split_whitespace().any(|word| word.trim_start_matches('@').starts_with('/'))
        });
        assert_eq!(path, None, "{name}");
    }
}

#[test]
fn self_test_passed_and_fails_for_a_clock_that_starts_at_the_send() {
    let results = Results::read();
    let failed = |name: &str| -> Option<Vec<String>> {
        let checks = results.has(&format!("{name}.txt")).then(|| printed_checks(name, &results))?;
        Some(checks.into_iter().filter(|check| check[4] == "FAILED").map(|[_, what, ..]| what).collect())
    };
    for name in ["quiet-machine", "noisy-machine"] {
        assert_eq!(failed(name).unwrap_or_default(), [""; 0], "{name}");
    }
    let Some(failed) = failed("clock-at-the-send") else { return };
    for what in ["p90", "p95", "p99", "mean"] {
        assert!(
            failed.iter().any(|check| check == what),
            "{what} passed with a clock that starts at the send: {failed:?}"
        );
    }
}

#[test]
fn printed_checks_become_a_table() {
    let printed = "$ polyrpc bench selftest\na server that is stopped\n  \
                   p90         expected 90 ms ± 5 ms               measured 91 ms                 ok\n  \
                   mean        expected 15 ms                      measured 1 ms                  FAILED\n";
    let results = Results(BTreeMap::from([("a.txt".to_owned(), printed.to_owned())]));
    assert_eq!(
        checks(&["a"], &results),
        "| measurement | check | a |\n|---|---|---|\n\
         | a server that is stopped | p90 | 91 ms of 90 ms ± 5 ms: ok |\n\
         | a server that is stopped | mean | 1 ms of 15 ms: FAILED |\n\n\
         - a: `polyrpc bench selftest`\n"
    );
}
