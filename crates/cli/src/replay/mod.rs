//! `polyrpc replay`: sends recorded calls to a server, and compares the answers with the recorded ones; or answers as
//! recorded.

mod mock;
mod options;
mod plan;
mod report;
mod run;
mod target;

use std::process::ExitCode;

pub(crate) use self::options::{Options, RuleOptions};

use self::plan::Plan;
use self::target::Target;
use crate::failure::Failure;
use crate::terminal;

/// Exit code of a replay that could not be made.
const COULD_NOT: u8 = 2;
/// Exit code of a replay with different answers.
const DIFFERENT: u8 = 1;

pub(crate) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let ended = match (&options.to, options.serve) {
        (_, true) => mock::run(options),
        (Some(url), false) => replay(options, url),
        (None, false) => {
            Err(Failure::new("there is no server: name it with --to URL, or answer with --serve"))
        }
    };
    // A number of its own, so that scripts can tell a broken test from a broken server.
    ended.or_else(|failure| {
        terminal::print_error(failure);
        Ok(ExitCode::from(COULD_NOT))
    })
}

fn replay(options: &Options, url: &str) -> Result<ExitCode, Failure> {
    let mut plan = Plan::read(options)?;
    let target = Target::new(options, url, &plan)?;
    plan.leave_out_unsendable(|call| target.check(call))?;
    let outcome = terminal::block_on(run::run(options, &plan, target))??;
    let text = match options.json {
        true => outcome.to_json().to_string(),
        false => outcome.to_text(),
    };
    terminal::print(&terminal::escape(&text))?;
    if outcome.has_reached_nobody() {
        return Err(Failure::new("no call reached the server: there was no connection"));
    }
    if outcome.sent > 0 && outcome.compared == 0 && !options.no_compare {
        return Err(Failure::new("nothing was compared: the recording has no answers to these calls")
            .with_hint("--no-compare only sends the calls"));
    }
    Ok(match () {
        () if outcome.sent == 0 => ExitCode::from(COULD_NOT),
        () if outcome.differs() => ExitCode::from(DIFFERENT),
        () => ExitCode::SUCCESS,
    })
}
