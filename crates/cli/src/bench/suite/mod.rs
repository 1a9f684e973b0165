//! `polyrpc bench suite`: reproduces published benchmarks, with PolyRPC.

mod client;
mod contract;
mod definition;

mod peers;
mod program;
mod ready;
mod rounds;
mod server;
mod shipped;
mod window;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use polyrpc_bench_report::model::Document;
use polyrpc_bench_report::report;

use self::definition::{Definition, Plan};
use self::peers::Peers;
use self::rounds::Rounds;
use super::command_line::command_line;
use super::interrupt;
use super::output::{OpenFile, Output};
use crate::failure::Failure;
use crate::terminal;

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(super) struct Options {
    /// A built-in suite, `all`, or a TOML file
    #[arg(value_name = "NAME|all|FILE", required_unless_present = "list")]
    suite: Option<String>,
    /// Short windows and fewer calls: a quick run of the whole suite in minutes
    #[arg(long)]
    quick: bool,
    /// The original settings, or settings that correct their defects
    #[arg(long, value_enum, default_value = "published")]
    variant: Variant,
    /// Number of rounds [default: that of the suite, 6 or more; fewer name no winner]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=200))]
    rounds: Option<u16>,
    /// Directory of a peer, as in brpc=/src/brpc; a peer.toml in it defines how to build and start the peer
    #[arg(long, value_name = "NAME=DIR", value_parser = parse_directory)]
    peer_dir: Vec<(String, PathBuf)>,
    /// Measure only these cases
    #[arg(long, value_name = "ID,…", value_delimiter = ',')]
    case: Vec<String>,
    /// Measure only the pairs of client and server with these peers
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    peer: Vec<String>,
    /// Do not build peers; peers that are not built are reported as missing
    #[arg(long)]
    no_build: bool,
    /// Also write one HTML page with all suites
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,
    /// Also write the results as JSON; for several suites DIR, in which each has its file; - writes those of one suite
    /// to standard output instead of the report
    #[arg(long, value_name = "FILE|DIR", help_heading = "Output")]
    json: Option<PathBuf>,
    /// List the suites and their peers
    #[arg(long)]
    list: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Variant {
    Published,
    Fair,
}

impl Variant {
    fn as_str(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Fair => "fair",
        }
    }
}

fn parse_directory(text: &str) -> Result<(String, PathBuf), String> {
    let (name, directory) = text.split_once('=').ok_or("expected NAME=DIR, as in brpc=/src/brpc")?;
    let path = PathBuf::from(directory);
    if !path.is_dir() {
        return Err(format!("{directory} is not a directory"));
    }
    // Programs are started in it, and may be named relative to it.
    let path = path.canonicalize().map_err(|error| format!("{directory}: {error}"))?;
    Ok((name.to_owned(), path))
}

pub(super) fn run(options: &Options) -> Result<ExitCode, Failure> {
    if options.list {
        return list();
    }
    let definitions = options.definitions()?;
    let files = OutputFiles::open(options, &definitions)?;
    let stop = interrupt::watch()?;
    let mut peers = Peers::new(&options.peer_dir, !options.no_build)?;
    let mut documents = Vec::new();
    let mut problems = Vec::new();
    for definition in &definitions {
        if stop.is_stopped() {
            break;
        }
        let plan = Plan::new(definition, &options.choice())?;
        let suite = Rounds { plan: &plan, peers: &mut peers, stop: &stop }.measure()?;
        let document = Document::Suite(Box::new(suite));
        // Results are written after each suite, so that a failure of the next one does not lose them. A write error
        // does not stop the measurement.
        problems.extend(files.show(&definition.name, &document).err());
        documents.push((format!("{}: {}", definition.name, definition.suite.title), document));
        problems.extend(files.write_html(&documents).err());
    }
    problems.dedup_by_key(|failure| failure.to_string());
    let code = documents.iter().map(|(_, document)| super::stored::exit_code(document)).max().unwrap_or(0);
    match problems.pop() {
        None => Ok(ExitCode::from(code)),
        Some(last) => {
            problems.iter().for_each(terminal::print_error);
            Err(last)
        }
    }
}

impl Options {
    fn definitions(&self) -> Result<Vec<Definition>, Failure> {
        let name = self.suite.as_deref().unwrap_or_default();
        if name == "all" {
            return shipped::SUITES.iter().map(|(name, text)| Definition::parse(name, text)).collect();
        }
        if let Some((name, text)) = shipped::SUITES.iter().find(|(shipped, _)| *shipped == name) {
            return Ok(vec![Definition::parse(name, text)?]);
        }
        let path = Path::new(name);
        let is_file = path.extension().is_some_and(|extension| extension == "toml");
        if !is_file {
            let names: Vec<_> = shipped::SUITES.iter().map(|(name, _)| *name).collect();
            return Err(Failure::new(format!("there is no suite {name}"))
                .with_hint(format!("the suites are {}; or name a file NAME.toml", names.join(", "))));
        }
        let text = super::stored::read_text(path)?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(vec![Definition::parse(&stem, &text).map_err(|failure| failure.with_subject(path.display()))?])
    }

    fn choice(&self) -> definition::Choice<'_> {
        definition::Choice {
            is_quick: self.quick,
            variant: self.variant.as_str(),
            rounds: self.rounds.map(u64::from),
            cases: &self.case,
            peers: &self.peer,
            command: command_line(std::env::args()),
        }
    }
}

/// Where results go after each suite.
struct OutputFiles {
    results: Results,
    html: Option<OpenFile>,
}

/// The report and its JSON.
enum Results {
    One(Output),
    /// A file in it for each suite.
    Directory(PathBuf),
}

impl OutputFiles {
    /// Opens them before anything is measured, so that a wrong path loses no measurement.
    fn open(options: &Options, definitions: &[Definition]) -> Result<Self, Failure> {
        let results = match &options.json {
            Some(path) if path.as_os_str() == "-" && definitions.len() > 1 => {
                return Err(Failure::new("--json - is for one suite; for several, name a directory"));
            }
            Some(path) if definitions.len() > 1 || path.is_dir() => {
                std::fs::create_dir_all(path)
                    .map_err(|error| Failure::system(format!("create {}", path.display()), &error))?;
                Results::Directory(path.clone())
            }
            json => Results::One(Output::open(json.as_deref())?),
        };
        let html = options.html.as_deref().map(OpenFile::open).transpose()?;
        Ok(Self { results, html })
    }

    /// Prints the report, and writes the JSON.
    fn show(&self, name: &str, document: &Document) -> Result<(), Failure> {
        let text = report::terminal(document, terminal::is_coloured(&std::io::stdout()));
        match &self.results {
            Results::One(output) => output.print(&text, || document.to_json()),
            Results::Directory(directory) => {
                terminal::print(&text)?;
                OpenFile::open(&directory.join(format!("{name}.json")))?.replace(&(document.to_json() + "\n"))
            }
        }
    }

    fn write_html(&self, documents: &[(String, Document)]) -> Result<(), Failure> {
        self.html
            .as_ref()
            .map_or(Ok(()), |file| file.replace(&report::html("polyrpc bench suite", documents)))
    }
}

fn list() -> Result<ExitCode, Failure> {
    for (name, text) in shipped::SUITES {
        let definition = Definition::parse(name, text)?;
        let mut peers: Vec<_> =
            definition.pair.iter().flat_map(|pair| [pair.client.as_str(), pair.server.as_str()]).collect();
        peers.sort_unstable();
        peers.dedup();
        terminal::print(&format!(
            "{name:<18} {}\n{:<18} peers: {}",
            definition.suite.title,
            "",
            peers.join(", ")
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How long a peer may take to start, to be built and so on.
const START_TIMEOUT: Duration = Duration::from_secs(20);

const HELP: &str = "\
Examples:
  polyrpc bench suite all --quick --html out.html
  polyrpc bench suite rpcx-grpc --json rpcx-grpc.json
  polyrpc bench suite rest_rpc-brpc --peer-dir brpc=/src/brpc --peer-dir rest_rpc=/src/rest_rpc
  polyrpc bench suite --list

A suite has the tables of a published benchmark. Each pair of a client and a server is measured in every round under every \
load, in the order of a balanced Latin square, with a freshly started server; ratios are computed within rounds. The \
peers that package registries have are built from the sources in bench/peers of PolyRPC's repository, which is searched \
upwards from the current directory and from this program. Others are given by --peer-dir: DIR/peer.toml has a table \
[peer.NAME] with start, ready, stop, url, client and build, as in bench/peers/README.md. A peer that is missing keeps its \
rows, with the reason. A server must answer a call exactly before and after it is measured.

Exit codes: 0 measured, also with peers missing; 1 a client or server failed, or a file could not be written; 2 wrong command \
line; 3 a server answered wrongly, or figures contradict each other. What was measured is reported, also after Ctrl-C.";
