//! `polyrpc recording list`: methods of recordings.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use polyrpc_record::Loss;

use super::files;
use super::filter::Filter;
use crate::failure::Failure;
use crate::terminal::{self, format_count};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The recordings
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let mut methods: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
    let mut loss = Loss::default();
    let mut add = |protocol: String, name: String, calls: u64, failures: u64| {
        let counts = methods.entry((name, protocol)).or_default();
        (counts.0, counts.1) = (counts.0 + calls, counts.1 + failures);
    };
    for path in &options.files {
        match files::read_index(path)? {
            Some(index) => {
                loss.add(&index.loss);
                let listed: u64 = index.methods.iter().map(|method| method.calls).sum();
                for method in index.methods {
                    let name = match method.service.as_str() {
                        "" => method.method,
                        service => format!("{service}/{}", method.method),
                    };
                    add(method.protocol, name, method.calls, method.failures);
                }
                if index.calls > listed {
                    add(String::new(), "(other methods)".to_owned(), index.calls - listed, 0);
                }
            }
            // Without an index the calls are counted.
            None => {
                let read =
                    files::for_each_call(std::slice::from_ref(path), &Filter::default(), |_, call| {
                        let failures = u64::from(call.failure().is_some());
                        add(call.protocol.clone(), call.full_name(), 1, failures);
                        Ok(true)
                    })?;
                loss.add(&read.loss);
            }
        }
    }
    let mut lines = vec![format!("{:>12} {:>10}  {:<10} METHOD", "CALLS", "FAILED", "PROTOCOL")];
    for ((name, protocol), (calls, failures)) in &methods {
        let (calls, failures) = (format_count(*calls), format_count(*failures));
        lines.push(format!("{calls:>12} {failures:>10}  {protocol:<10} {name}"));
    }
    if loss.calls() > 0 {
        let Loss { queue_full, method_limit, not_written, .. } = loss;
        lines.push(format!(
            "{} calls are not in the recordings: the queue was full for {queue_full}, {method_limit} were above the \
             limit of their method, {not_written} could not be written",
            format_count(loss.calls())
        ));
    }
    terminal::print(&lines.join("\n"))?;
    Ok(ExitCode::SUCCESS)
}
