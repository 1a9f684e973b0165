//! `polyrpc bench --find-max --slo`: the highest rate at which a server meets conditions.

use std::cell::RefCell;
use std::process::ExitCode;

use polyrpc_load::{Limit, Outcome, Pacing, Plan, Profile, Rate, Search, Stop, Trial, Verdict, find_max};
use serde_json::{Value, json};

use super::options::LoadOptions;
use super::output::Output;
use super::report::ReplyCounts;
use super::{INVALID, PreparedLoad, interrupt};
use crate::failure::Failure;
use crate::terminal::{self, format_count};

/// Searches, and prints each trial on standard error.
pub(super) fn run(
    options: &LoadOptions,
    prepared: &PreparedLoad,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let (Some(slo), Pacing::Open { profile, .. }) = (&options.slo, &prepared.plan.pacing) else {
        return Err(Failure::new("--find-max needs --slo"));
    };
    let stop = interrupt::watch()?;
    let trials = RefCell::new(Vec::new());
    let mut replies = ReplyCounts::default();
    let search = Search { from: profile.highest_rate(), ..Search::default() };
    let found = find_max(search, |rate| {
        let outcome = measure(&prepared.plan, rate, &stop)?;
        replies.add(&outcome);
        let met = slo.are_met(&outcome);
        let trial = judge(&outcome, met);
        let checked: Vec<_> = slo.check(&outcome).iter().map(ToString::to_string).collect();
        let rate = format_count(rate.round() as u64);
        terminal::print_error(format_args!("  {rate:>12}/s  {}  {}", checked.join(", "), outcome.verdict));
        trials.borrow_mut().push(trial_json(&outcome, &rate, trial));
        Ok::<_, SearchError>(trial)
    });
    let limit = match found {
        Ok(limit) => limit,
        Err(SearchError::Failed(failure)) => return Err(failure),
        Err(SearchError::Interrupted) => return report_interrupt(prepared, trials.take(), output),
    };
    let text = format_limit(&limit, search.confirmations);
    output.print(&text, || to_json(&limit, prepared, trials.take()).to_string())?;
    if let (None, Some(_)) = (limit.met, limit.generator) {
        return Ok(ExitCode::from(INVALID));
    }
    // The conditions may permit failed calls, but a server with wrong replies does not do what is measured.
    replies.check()?;
    Ok(if limit.met.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Why a search has no result.
enum SearchError {
    Interrupted,
    Failed(Failure),
}

fn measure(plan: &Plan, rate: f64, stop: &Stop) -> Result<Outcome, SearchError> {
    let failed = |text: String| SearchError::Failed(Failure::new(text));
    let Pacing::Open { arrivals, .. } = plan.pacing else {
        return Err(failed("there is no rate".to_owned()));
    };
    let profile = Profile::Constant(Rate::from_f64(rate).map_err(failed)?);
    let plan = Plan { pacing: Pacing::Open { profile, arrivals }, ..plan.clone() };
    let outcome = polyrpc_load::run(&plan, stop, |_| {}).map_err(|error| failed(error.to_string()))?;
    match outcome.interrupted {
        true => Err(SearchError::Interrupted),
        false => Ok(outcome),
    }
}

/// Reports the trials that were complete: they are a result, though not a confirmed one.
fn report_interrupt(
    prepared: &PreparedLoad,
    steps: Vec<Value>,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let text = format!("interrupted after {} trials: the highest rate is not known", steps.len());
    let value = json!({
        "url": prepared.setting.url,
        "target": prepared.setting.target,
        "command": prepared.setting.command,
        "interrupted": true,
        "steps": steps,
    });
    output.print(&text, || value.to_string())?;
    Ok(ExitCode::FAILURE)
}

/// A rate that the server does not reach is not met, whatever the conditions are.
fn judge(outcome: &Outcome, met: bool) -> Trial {
    match outcome.verdict {
        Verdict::GeneratorSaturated { .. } | Verdict::WorkerLost { .. } | Verdict::NothingMeasured => {
            Trial::Invalid
        }
        Verdict::Valid if met => Trial::Met,
        Verdict::Valid | Verdict::ServerSaturated { .. } => Trial::Failed,
    }
}

fn format_limit(limit: &Limit, confirmations: u32) -> String {
    let (low, high) = limit.confirmed;
    let confirmed = format!("({low}/{confirmations} met below, {high}/{confirmations} above)");
    match limit.generator {
        Some(rate) => {
            format!("{limit} {confirmed}; the generator is saturated at {rate:.0}/s: the server may do more")
        }
        None => format!("{limit} {confirmed}"),
    }
}

fn trial_json(outcome: &Outcome, rate: &str, trial: Trial) -> Value {
    let response = outcome.response();
    json!({
        "planned_rate": rate.replace(',', "").parse::<f64>().unwrap_or_default(),
        "rate": outcome.calls_per_second(),
        "p50_ns": response.value_at_quantile(0.5),
        "p99_ns": response.value_at_quantile(0.99),
        "is_met": trial == Trial::Met,
        "verdict": outcome.verdict.name(),
    })
}

fn to_json(limit: &Limit, prepared: &PreparedLoad, steps: Vec<Value>) -> Value {
    json!({
        "url": prepared.setting.url,
        "target": prepared.setting.target,
        "command": prepared.setting.command,
        "max_met": limit.met,
        "min_failed": limit.failed,
        "generator_saturated_at": limit.generator,
        "confirmed": [limit.confirmed.0, limit.confirmed.1],
        "steps": steps,
    })
}
