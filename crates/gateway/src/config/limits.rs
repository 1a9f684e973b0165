//! Limits that nothing could keep: each would refuse every call.

use std::time::Duration;

use super::file::{Limits, Route, Tools, Upstream};
use super::span::Lined;
use super::units::Span;
use crate::config_error::ConfigError;

/// Returns the limits of all tables that are zero or too small, with the lines of their keys.
pub(super) fn problems(
    limits: &Lined<Limits>,
    upstreams: &[Lined<Upstream>],
    routes: &[Lined<Route>],
    tools: Option<&Lined<Tools>>,
) -> Vec<ConfigError> {
    let mut found = Found(Vec::new());
    check_all(limits, &mut found);
    for upstream in upstreams {
        let name = format!("upstream `{}`: ", upstream.name);
        let at = Section(upstream, &name);
        let (breaker, checks) = (upstream.breaker.as_ref(), upstream.health.as_ref());
        let times = [("timeout", upstream.timeout), ("connect_timeout", upstream.connect_timeout)];
        found.check_times(&at, times);
        found.check_counts(&at, [("calls", upstream.calls)]);
        for (table, key, time) in [
            ("breaker", "window", breaker.map(|breaker| breaker.window)),
            ("health", "interval", checks.and_then(|checks| checks.interval)),
            ("health", "timeout", checks.and_then(|checks| checks.timeout)),
        ] {
            found.check_in_table(&at, table, key, is_zero(time));
        }
        let consecutive = breaker.and_then(|breaker| breaker.consecutive);
        found.check_in_table(&at, "breaker", "consecutive", consecutive == Some(0));
    }
    for route in routes {
        let name = route.name.as_ref().map_or(String::new(), |name| format!("route `{name}`: "));
        let at = Section(route, &name);
        found.check_times(&at, [("timeout", route.timeout)]);
        found.check_counts(&at, [("calls", route.calls)]);
        if let Some(mirror) = &route.mirror {
            for (key, is_zero) in [
                ("timeout", mirror.timeout.0.is_zero()),
                ("concurrent", mirror.concurrent == 0),
                ("bytes", mirror.bytes.0 == 0),
                ("rate", mirror.rate == 0),
            ] {
                found.check_in_table(&at, "mirror", key, is_zero);
            }
        }
    }
    if let Some(tools) = tools {
        found.check_times(&Section(tools, "[mcp]: "), [("timeout", tools.timeout)]);
    }
    found.0
}

/// Those of `[limits]`.
fn check_all(limits: &Lined<Limits>, found: &mut Found) {
    let at = Section(limits, "[limits]: ");
    found.check_counts(&at, [("calls", limits.calls), ("connections", limits.connections)]);
    found.check_counts(
        &at,
        [("message", limits.message), ("memory", limits.memory)]
            .map(|(key, size)| (key, size.map(|size| size.0))),
    );
    found.check_times(
        &at,
        [
            ("first_byte_timeout", limits.first_byte_timeout),
            ("header_timeout", limits.header_timeout),
            ("message_timeout", limits.message_timeout),
            ("write_timeout", limits.write_timeout),
            ("idle_timeout", limits.idle_timeout),
        ],
    );
    let Some(memory) = limits.memory.map(|size| size.0).filter(|size| *size > 0) else { return };
    let message = limits.message.map_or(0, |size| size.0);
    if memory < MIN_MEMORY {
        found.add(
            &at,
            "memory",
            "`memory` is at least 4MiB: less has no room for the messages of a few callers",
        );
    } else if memory < message {
        found.add(
            &at,
            "memory",
            "`memory` is less than `message`: no message of that size could be received",
        );
    }
}

/// A part of the file, and what a text about it begins with.
struct Section<'c, T>(&'c Lined<T>, &'c str);

struct Found(Vec<ConfigError>);

impl Found {
    fn check_times<T, const N: usize>(&mut self, at: &Section<'_, T>, times: [(&str, Option<Span>); N]) {
        for (key, _) in times.into_iter().filter(|(_, time)| is_zero(*time)) {
            self.add_zero(at, key);
        }
    }

    fn check_counts<T, const N: usize>(&mut self, at: &Section<'_, T>, counts: [(&str, Option<usize>); N]) {
        for (key, _) in counts.into_iter().filter(|(_, count)| *count == Some(0)) {
            self.add_zero(at, key);
        }
    }

    /// A key of a table within the part.
    fn check_in_table<T>(&mut self, at: &Section<'_, T>, table: &str, key: &str, is_zero: bool) {
        if is_zero {
            let text = format!(
                "{}`{key}` of `{table}` is 0, which nothing could keep; leave it out for the default",
                at.1
            );
            self.0.push(ConfigError::new(at.0.line_of(table), text));
        }
    }

    fn add_zero<T>(&mut self, at: &Section<'_, T>, key: &str) {
        self.add(at, key, &format!("`{key}` is 0, which nothing could keep; leave it out for the default"));
    }

    fn add<T>(&mut self, at: &Section<'_, T>, key: &str, text: &str) {
        self.0.push(ConfigError::new(at.0.line_of(key), format!("{}{text}", at.1)));
    }
}

fn is_zero(time: Option<Span>) -> bool {
    time.is_some_and(|time| time.0 == Duration::ZERO)
}

/// Least memory of a gateway, in bytes.
const MIN_MEMORY: usize = 4 << 20;
