//! `polyrpc diff`: compares the answers of two recordings.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use polyrpc_record::DeclaredMessages;
use polyrpc_record::value::Value;

use crate::failure::Failure;
use crate::recording::answer::Answer;
use crate::recording::files;
use crate::recording::filter::Filter;
use crate::replay::RuleOptions;
use crate::terminal::{self, format_count, pluralize};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A recording
    #[arg(value_name = "FILE")]
    left: PathBuf,
    /// Another recording; calls with the same method and request are compared, in order
    #[arg(value_name = "FILE")]
    right: PathBuf,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    rules: RuleOptions,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode, Failure> {
    compare(options).or_else(|failure| {
        terminal::print_error(failure);
        Ok(ExitCode::from(2))
    })
}

/// Answers by method and request.
type Answers = HashMap<(String, String), VecDeque<Answer>>;

fn compare(options: &Options) -> Result<ExitCode, Failure> {
    let rules = options.rules.rules()?;
    let mut left = read_answers(&options.left, &options.filter)?;
    let right = read_answers(&options.right, &options.filter)?;
    let (mut compared, mut different, mut alone) = (0_u64, 0_u64, [0_u64; 2]);
    let mut fields: BTreeMap<(String, String), (u64, String)> = BTreeMap::new();
    for (key, answers) in right {
        let partners = left.entry(key.clone()).or_default();
        for answer in answers {
            let Some(partner) = partners.pop_front() else {
                alone[1] += 1;
                continue;
            };
            let found = partner.differences(&rules, &answer);
            compared += 1;
            different += u64::from(!found.is_empty());
            for difference in found {
                let field = (key.0.clone(), difference.path.clone());
                fields.entry(field).or_insert_with(|| (0, difference.to_string())).0 += 1;
            }
        }
    }
    alone[0] = left.values().map(|answers| answers.len() as u64).sum();
    let mut lines = vec![format!(
        "{} compared: {} equal, {} different",
        pluralize(compared, "answer"),
        format_count(compared - different),
        format_count(different)
    )];
    for (count, file) in alone.iter().zip([&options.left, &options.right]).filter(|(count, _)| **count > 0) {
        lines.push(format!("{} only in {}", pluralize(*count, "call"), file.display()));
    }
    for ((name, path), (count, sample)) in fields.iter().take(MAX_LISTED) {
        let path = if path.is_empty() { "the message" } else { path };
        lines.push(format!("{:>8} × {name} {path}, as in: {sample}", format_count(*count)));
    }
    if compared == 0 && alone == [0, 0] {
        return Err(Failure::new("there is nothing to compare: the recordings have no such answered calls"));
    }
    terminal::print(&terminal::escape(&lines.join("\n")))?;
    let equal = different == 0 && alone == [0, 0];
    Ok(if equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read_answers(path: &PathBuf, filter: &Filter) -> Result<Answers, Failure> {
    let mut answers = Answers::new();
    files::for_each_call(std::slice::from_ref(path), filter, |schemas: &DeclaredMessages, call| {
        let Some(outcome) = &call.outcome else { return Ok(true) };
        let declared = schemas.messages(&call);
        let request = match schemas.request(&call) {
            Some(Ok(tree)) => normalize(tree).to_string(),
            Some(Err(_)) | None => {
                let body = call.request.as_ref().map(|request| request.body.to_vec());
                Value::Bytes(body.unwrap_or_default()).to_string()
            }
        };
        let answer = Answer::from_outcome(outcome, declared.as_ref().map(|(_, output)| output));
        answers.entry((call.full_name(), request)).or_default().push_back(answer);
        Ok(true)
    })?;
    Ok(answers)
}

/// The same request, whatever the order of its fields.
fn normalize(value: Value) -> Value {
    match value {
        Value::Map(entries) => {
            let mut entries: Vec<_> =
                entries.into_iter().map(|(name, value)| (name, normalize(value))).collect();
            entries.retain(|(_, value)| !value.is_default());
            entries.sort_by(|one, other| one.0.cmp(&other.0));
            Value::Map(entries)
        }
        Value::List(items) => Value::List(items.into_iter().map(normalize).collect()),
        plain => plain,
    }
}

/// Maximum number of fields that are printed.
const MAX_LISTED: usize = 200;

const EXAMPLES: &str = "\
Examples:
  polyrpc diff before.rec after.rec --ignore time
  polyrpc diff before.rec after.rec --method 'demo.Users/*' --unordered users=id

Exit codes:
  0  the answers are equal
  1  some differ, or calls are only in one of the recordings
  2  a recording cannot be read, or there is nothing to compare";
