//! Reports invalid command lines.

use std::ffi::OsString;
use std::process::ExitCode;

use serde_json::{Map, Value, json};

use crate::terminal;

/// Prints clap's help or error, the error as JSON if the command line requests failures in JSON. Returns the exit code.
pub(crate) fn report(error: &clap::Error, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    if error.use_stderr() && wants_json(arguments) {
        terminal::print_error(to_json(error));
    } else {
        // A closed pipe is not a failure.
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(WRONG))
}

/// Whether the command line has `--json` and a command for which that selects failures in JSON.
fn wants_json(arguments: impl IntoIterator<Item = OsString>) -> bool {
    let arguments: Vec<_> = arguments.into_iter().skip(1).take_while(|argument| argument != "--").collect();
    let command = arguments.iter().find(|argument| COMMANDS.iter().any(|command| argument == command));
    let is_reported = command.is_some_and(|command| command != "bench");
    is_reported && arguments.iter().any(|argument| argument == "--json")
}

/// Commands with an option `--json`. For `bench` it names the output file.
const COMMANDS: [&str; 4] = ["bench", "call", "discover", "list"];

fn to_json(error: &clap::Error) -> Value {
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n").map(|paragraph| {
        let lines: Vec<_> = paragraph.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        lines.join(" ")
    });
    let message = paragraphs.next().unwrap_or_default();
    let mut fields = Map::new();
    fields.insert("message".into(), message.strip_prefix("error: ").unwrap_or(&message).into());
    for paragraph in paragraphs {
        if let Some(tip) = paragraph.strip_prefix("tip: ") {
            fields.insert("hint".into(), tip.into());
        } else if let Some(usage) = paragraph.strip_prefix("Usage: ") {
            fields.insert("usage".into(), usage.into());
        }
    }
    fields.insert("exit_code".into(), error.exit_code().into());
    json!({ "error": fields })
}

/// Exit code of an invalid command line.
const WRONG: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_option_selects_json_failures_except_for_bench() {
        let wants = |line: &str| wants_json(line.split(' ').map(OsString::from));
        for line in
            ["polyrpc call grpc://h:1 --json", "polyrpc --log debug list --json", "polyrpc discover --json"]
        {
            assert!(wants(line), "{line}");
        }
        for line in [
            "polyrpc call grpc://h:1",
            "polyrpc bench --json x",
            "polyrpc call u t -- --json",
            "polyrpc --json",
        ] {
            assert!(!wants(line), "{line}");
        }
    }
}
