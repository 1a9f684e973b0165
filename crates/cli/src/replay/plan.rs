//! What is replayed: the calls of recordings, and when each is due.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use polyrpc_record::{Call, DeclaredMessages};
use polyrpc_transform::SchemaSource;

use super::options::Options;
use crate::failure::Failure;
use crate::recording::{files, filter};
use crate::terminal;

/// Calls in the order of their arrival.
pub(super) struct Plan {
    pub(super) calls: Vec<Call>,
    /// When each is due, counted from the start.
    pub(super) due: Vec<Duration>,
    pub(super) declared: DeclaredMessages,
    /// Number of calls that are not sent.
    pub(super) left_out: u64,
}

impl Plan {
    /// Reads the recordings.
    ///
    /// # Errors
    ///
    /// If one cannot be read, there is nothing to send, or a method may have side effects.
    pub(super) fn read(options: &Options) -> Result<Self, Failure> {
        let (mut calls, mut left_out) = (Vec::new(), BTreeMap::<_, u64>::new());
        let read = files::for_each_call(&options.recordings, &options.filter, |_, call| {
            match reason_against(&call) {
                Some(reason) => *left_out.entry(reason).or_default() += 1,
                None => calls.push(call),
            }
            Ok(true)
        })?;
        warn(&left_out);
        let left_out = left_out.values().sum();
        if calls.is_empty() {
            return Err(Failure::new("there is no call to replay"));
        }
        calls.sort_by_key(|call| call.arrival);
        let plan = Self { due: due_times(options, &calls)?, calls, declared: read.schemas, left_out };
        plan.check_safety(options)?;
        Ok(plan)
    }

    /// Leaves out the calls that `check` rejects.
    ///
    /// # Errors
    ///
    /// The reason for the first one, if none is left.
    pub(super) fn leave_out_unsendable(
        &mut self,
        check: impl Fn(&Call) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (mut left_out, mut first) = (BTreeMap::<String, u64>::new(), None);
        let (calls, due) = (std::mem::take(&mut self.calls), std::mem::take(&mut self.due));
        for (call, due) in calls.into_iter().zip(due) {
            match check(&call) {
                Ok(()) => {
                    self.calls.push(call);
                    self.due.push(due);
                }
                Err(failure) => {
                    *left_out.entry(failure.text().to_owned()).or_default() += 1;
                    first.get_or_insert(failure);
                }
            }
        }
        match first {
            Some(failure) if self.calls.is_empty() => return Err(failure),
            _ => warn(&left_out),
        }
        self.left_out += left_out.values().sum::<u64>();
        Ok(())
    }

    /// Checks that every method may be called again.
    fn check_safety(&self, options: &Options) -> Result<(), Failure> {
        if options.every_method || options.serve {
            return Ok(());
        }
        let declared: Vec<_> =
            self.declared.sets().filter_map(|set| SchemaSource::new(set, "the recording").ok()).collect();
        let is_safe = |name: &str| {
            options.safe.iter().any(|glob| filter::matches(glob, name))
                || declared.iter().any(|source| has_no_side_effects(source, name))
        };
        let names: BTreeSet<_> = self.calls.iter().map(Call::full_name).collect();
        let risky: Vec<_> = names.into_iter().filter(|name| !is_safe(name)).collect();
        if risky.is_empty() {
            return Ok(());
        }
        let text = format!("these methods may have side effects: {}", risky.join(", "));
        Err(Failure::new(text)
            .with_hint("name those that may be called again with --safe, or send all with --unsafe"))
    }
}

/// Says how many calls are left out, by the reason.
fn warn(left_out: &BTreeMap<impl fmt::Display, u64>) {
    for (reason, count) in left_out.iter().take(MAX_REASONS) {
        let calls = terminal::pluralize(*count, "call");
        terminal::print_error(format_args!("warning: {calls} left out: {reason}"));
    }
    let others: u64 = left_out.values().skip(MAX_REASONS).sum();
    if others > 0 {
        let calls = terminal::pluralize(others, "call");
        terminal::print_error(format_args!("warning: {calls} left out for other reasons"));
    }
}

/// Maximum number of reasons that are printed: there may be one for each method.
const MAX_REASONS: usize = 20;

fn has_no_side_effects(source: &SchemaSource, name: &str) -> bool {
    let Some((service, method)) = name.rsplit_once('/') else { return false };
    let service = source.pool().service(service);
    service
        .and_then(|service| service.methods().find(|declared| declared.name() == method))
        .is_some_and(|method| method.has_no_side_effects())
}

fn reason_against(call: &Call) -> Option<&'static str> {
    match &call.request {
        _ if !call.is_unary() => Some("streams are recorded without their messages"),
        None => Some("the request was not recorded"),
        Some(request) if !request.omitted.is_empty() => Some("the body of the request was not kept"),
        Some(request) if request.format.is_none() => Some("the format of the request is not known"),
        Some(_) => None,
    }
}

fn due_times(options: &Options, calls: &[Call]) -> Result<Vec<Duration>, Failure> {
    let first = calls.first().map_or(0, |call| call.arrival);
    if options.max {
        return Ok(vec![Duration::ZERO; calls.len()]);
    }
    if let Some(rate) = options.rate {
        if !(rate > 0.0 && rate.is_finite()) {
            return Err(Failure::new("--rate must be above 0"));
        }
        return (0..calls.len()).map(|n| to_duration(n as f64 / rate)).collect();
    }
    if !(options.speed > 0.0 && options.speed.is_finite()) {
        return Err(
            Failure::new("--speed must be above 0").with_hint("--max sends the calls as fast as possible")
        );
    }
    calls.iter().map(|call| to_duration((call.arrival - first) as f64 / 1e9 / options.speed)).collect()
}

fn to_duration(seconds: f64) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| Failure::new("the calls would take longer than a clock can count"))
}
