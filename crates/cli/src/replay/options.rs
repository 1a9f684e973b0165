//! Options of `polyrpc replay`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use polyrpc_record::compare::Rules;
use polyrpc_record::path::Path;

use crate::call::CommonOptions;
use crate::failure::Failure;
use crate::message;
use crate::recording::filter::Filter;
use crate::terminal;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// The recordings
    #[arg(required = true, value_name = "FILE")]
    pub(super) recordings: Vec<PathBuf>,
    /// The server, over any protocol, as for `call`
    #[arg(long, value_name = "URL", conflicts_with = "serve")]
    pub(super) to: Option<String>,
    /// Answer calls as recorded instead of sending them
    #[arg(long)]
    pub(crate) serve: bool,
    /// With --serve: address to listen on
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8002", requires = "serve")]
    pub(super) listen: String,
    /// Send the calls this many times as fast as they were recorded
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, allow_negative_numbers = true, conflicts_with_all = ["rate", "max", "serve"])]
    pub(super) speed: f64,
    /// Send this number of calls a second
    #[arg(long, value_name = "CALLS", conflicts_with_all = ["max", "serve"])]
    pub(super) rate: Option<f64>,
    /// Send the calls as fast as possible
    #[arg(long, conflicts_with = "serve")]
    pub(super) max: bool,
    /// Maximum number of calls in flight; with --max this number is always in flight [default: 10000, with --max 64]
    #[arg(long, visible_alias = "max-in-flight", value_name = "N", conflicts_with = "serve")]
    pub(super) in_flight: Option<usize>,
    /// Send the calls of a connection in order, each after the answer to the previous one
    #[arg(long, conflicts_with = "serve")]
    pub(super) ordered: bool,
    /// Send calls of every method. Without this only those whose .proto says NO_SIDE_EFFECTS, and those of --safe
    #[arg(long = "unsafe")]
    pub(super) every_method: bool,
    /// A method that may be called again, as for --method; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub(super) safe: Vec<String>,
    /// Do not compare the answers
    #[arg(long, conflicts_with = "serve")]
    pub(super) no_compare: bool,
    /// Stop after this number of failed calls that had succeeded in the recording
    #[arg(long, value_name = "N", conflicts_with = "serve")]
    pub(super) stop_failures: Option<u64>,
    /// Stop once the 99th percentile of the latency, after 100 calls, is above this
    #[arg(long, value_name = "TIME", value_parser = terminal::parse_duration, conflicts_with = "serve")]
    pub(super) stop_p99: Option<Duration>,
    /// Stop after this time
    #[arg(long, value_name = "TIME", value_parser = terminal::parse_duration, conflicts_with = "serve")]
    pub(super) stop_after: Option<Duration>,
    /// Print the result as JSON
    #[arg(long, conflicts_with = "serve")]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) filter: Filter,
    #[command(flatten)]
    pub(super) rules: RuleOptions,
    #[command(flatten)]
    pub(super) common: CommonOptions,
    #[command(flatten, next_help_heading = "Message descriptions, beside those of the recording")]
    pub(super) described: message::Files,
}

/// Rules of a comparison. Paths are names joined by dots; `*` stands for any name, `**` for any number of names.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RuleOptions {
    /// Do not compare this field; may be repeated, like the following options
    #[arg(long, value_name = "PATH", help_heading = "Comparison")]
    ignore: Vec<Path>,
    /// Compare this list regardless of its order; elements are paired by the field KEY if it is given
    #[arg(long, value_name = "PATH[=KEY]", help_heading = "Comparison")]
    unordered: Vec<String>,
    /// Accept numbers that differ by at most this much
    #[arg(long, value_name = "PATH=N", help_heading = "Comparison")]
    tolerance: Vec<String>,
    /// Accept values that both match a regular expression
    #[arg(long, value_name = "PATH=REGEX", help_heading = "Comparison")]
    regex: Vec<String>,
    /// Compare this field of the left side with the field NAME of the right side
    #[arg(long, value_name = "PATH=NAME", help_heading = "Comparison")]
    rename: Vec<String>,
}

impl RuleOptions {
    pub(crate) fn rules(&self) -> Result<Rules, Failure> {
        let mut rules = Rules::new();
        for path in &self.ignore {
            rules = rules.ignore(path.clone());
        }
        for text in &self.unordered {
            let (path, key) =
                text.split_once('=').map_or((text.as_str(), None), |(path, key)| (path, Some(key)));
            rules = rules.unordered(parse_path("unordered", path)?, key);
        }
        for text in &self.tolerance {
            let (path, max_difference) = parse_pair("tolerance", text)?;
            let max_difference: f64 = max_difference
                .parse()
                .map_err(|_| Failure::new(format!("--tolerance: `{max_difference}` is not a number")))?;
            rules = rules.tolerance(path, max_difference);
        }
        for text in &self.regex {
            let (path, pattern) = parse_pair("regex", text)?;
            rules = rules.pattern(path, pattern).map_err(|why| Failure::new(format!("--regex: {why}")))?;
        }
        for text in &self.rename {
            let (path, name) = parse_pair("rename", text)?;
            rules = rules.rename(path, name);
        }
        Ok(rules)
    }
}

fn parse_path(option: &str, path: &str) -> Result<Path, Failure> {
    path.parse().map_err(|why| Failure::new(format!("--{option}: {why}")))
}

fn parse_pair<'t>(option: &str, text: &'t str) -> Result<(Path, &'t str), Failure> {
    let (path, value) = text
        .split_once('=')
        .ok_or_else(|| Failure::new(format!("--{option}: `{text}` is not PATH=VALUE")))?;
    Ok((parse_path(option, path)?, value))
}

const EXAMPLES: &str = "\
Examples:
  polyrpc replay calls.rec --to rpcx://127.0.0.1:8972 --unsafe
  polyrpc replay calls.rec --to grpc://127.0.0.1:50051 --speed 10 --safe 'demo.Users/Get*' --ignore time
  polyrpc replay calls.rec --to rpcx://127.0.0.1:8972 --unsafe --max --no-compare
  polyrpc replay calls.rec --serve --listen 127.0.0.1:9000

Exit codes:
  0  the answers are those of the recording
  1  some differ
  2  the calls could not be sent, or there was nothing to compare";
