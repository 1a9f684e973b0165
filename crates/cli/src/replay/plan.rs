//! What is replayed: the calls of recordings, and when each is due.

use std::collections::{BTreeMap, BTreeSet};
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
    /// Calls that are not sent, by the reason.
    pub(super) left_out: BTreeMap<&'static str, u64>,
}

impl Plan {
    /// Reads the recordings.
    ///
    /// # Errors
    ///
    /// If one cannot be read, there is nothing to send, or a method may have side effects.
    pub(super) fn read(options: &Options) -> Result<Self, Failure> {
        let (mut calls, mut left_out) = (Vec::new(), BTreeMap::new());
        let read = files::for_each_call(&options.recordings, &options.filter, |_, call| {
            match reason_against(&call) {
                Some(reason) => *left_out.entry(reason).or_default() += 1,
                None => calls.push(call),
            }
            Ok(true)
        })?;
        for (reason, count) in &left_out {
            let calls = terminal::counted(*count, "call");
            terminal::print_error(format_args!("warning: {calls} left out: {reason}"));
        }
        if calls.is_empty() {
            return Err(Failure::new("there is no call to replay"));
        }
        calls.sort_by_key(|call| call.arrival);
        let plan = Self { due: due(options, &calls)?, calls, declared: read.schemas, left_out };
        plan.check_safety(options)?;
        Ok(plan)
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

fn due(options: &Options, calls: &[Call]) -> Result<Vec<Duration>, Failure> {
    let first = calls.first().map_or(0, |call| call.arrival);
    if options.max {
        return Ok(vec![Duration::ZERO; calls.len()]);
    }
    if let Some(rate) = options.rate {
        if !(rate > 0.0 && rate.is_finite()) {
            return Err(Failure::new("--rate must be above 0"));
        }
        return (0..calls.len()).map(|n| seconds(n as f64 / rate)).collect();
    }
    if !(options.speed > 0.0 && options.speed.is_finite()) {
        return Err(
            Failure::new("--speed must be above 0").with_hint("--max sends the calls as fast as possible")
        );
    }
    calls.iter().map(|call| seconds((call.arrival - first) as f64 / 1e9 / options.speed)).collect()
}

fn seconds(seconds: f64) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| Failure::new("the calls would take longer than a clock can count"))
}
