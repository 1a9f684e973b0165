//! The configuration file.

mod file;
mod glob;
mod key_lines;
mod limits;
mod mirror;
mod record;
mod secret;
mod span;
mod units;

pub(crate) use self::file::{
    Admin, Breaker, Check, Credential, Health, Listen, Loss, Match, MetadataPolicy, OpenApi, Rename, Route,
    Schema, ServerTls, Sticky, Tools, Topic, Upstream, UpstreamTls,
};
pub(crate) use self::glob::Glob;
pub(crate) use self::mirror::{Mirror, Rollback, Rule, RuleAction, SampleForm};
pub(crate) use self::record::Record;
pub(crate) use self::span::Lined;
pub(crate) use self::units::Span;

use std::time::Duration;
use std::{iter, thread};

use polyrpc::Protocol;
use polyrpc_transform::closest::closest;

use self::file::File;
use self::key_lines::line_of_key;
use self::span::line_of;
use crate::config_error::{ConfigError, ConfigErrors};

/// A parsed configuration: every key and value is known, every name is defined.
#[derive(Clone, Debug)]
pub struct Config {
    /// Prefix of the names of its variables.
    pub(crate) name: String,
    /// Each thread has its own runtime and connections. `None`: one thread for each core.
    pub(crate) threads: Option<usize>,
    pub(crate) listen: Vec<Lined<Listen>>,
    pub(crate) upstream: Vec<Lined<Upstream>>,
    pub(crate) route: Vec<Lined<Route>>,
    pub(crate) schema: Lined<Schema>,
    pub(crate) admin: Option<Lined<Admin>>,
    pub(crate) mcp: Option<Lined<Tools>>,
    pub(crate) openapi: Option<Lined<OpenApi>>,
    pub(crate) record: Option<Lined<Record>>,
    pub(crate) drain: Duration,
    pub(crate) lame_duck: Duration,
    pub(crate) limits: Lined<file::Limits>,
}

impl Config {
    /// Parses TOML. Files that it refers to are not read yet.
    ///
    /// # Errors
    ///
    /// All errors, with their lines: malformed TOML, unknown keys, undefined names.
    pub fn parse(text: &str) -> Result<Self, ConfigErrors> {
        let file: File = toml::from_str(text).map_err(|error| syntax(text, &error))?;
        let config = Self {
            name: file.name.unwrap_or_else(|| NAME.to_owned()),
            threads: file.threads,
            listen: Lined::all(text, file.listen),
            upstream: Lined::all(text, file.upstream),
            route: Lined::all(text, file.route),
            schema: file.schema.map_or_else(Lined::missing, |schema| Lined::one(text, schema)),
            admin: file.admin.map(|admin| Lined::one(text, admin)),
            mcp: file.mcp.map(|mcp| Lined::one(text, mcp)),
            openapi: file.openapi.map(|openapi| Lined::one(text, openapi)),
            record: file.record.map(|record| Lined::one(text, record)),
            drain: file.drain.map_or(DRAIN, |drain| drain.0),
            lame_duck: file.lame_duck.map_or(Duration::ZERO, |lame_duck| lame_duck.0),
            limits: file.limits.map_or_else(Lined::missing, |limits| Lined::one(text, limits)),
        };
        let problems = config.problems(text);
        if problems.is_empty() { Ok(config) } else { Err(ConfigErrors(problems)) }
    }

    /// Returns the lines, names and URLs of the upstreams.
    pub fn upstreams(&self) -> impl Iterator<Item = (usize, &str, &str)> {
        self.upstream.iter().map(|upstream| (upstream.line, upstream.name.as_str(), upstream.url.as_str()))
    }

    /// Whether a listener accepts callers of a protocol.
    pub(crate) fn accepts(&self, protocol: Protocol) -> bool {
        self.listen.iter().any(|listen| listen.protocols().contains(&protocol))
    }

    /// Returns the number of threads of a gateway that starts now. Without `threads` in the file it may differ the next
    /// time: a container's cores can change while it runs.
    pub(crate) fn threads_at_start(&self) -> usize {
        self.threads.unwrap_or_else(cores)
    }

    /// What is wrong although each part is well-formed.
    fn problems(&self, text: &str) -> Vec<ConfigError> {
        let mut problems = Vec::new();
        let is_word = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_lowercase())
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        };
        if !is_word(&self.name) {
            let wrong = format!("`name` is `{}`; expected lower-case letters, digits and `_`", self.name);
            problems.push(ConfigError::new(line_of_key(text, "name"), wrong));
        }
        if self.threads.is_some_and(|threads| !(1..=MAX_THREADS).contains(&threads)) {
            let wrong = format!("`threads` is a number from 1 to {MAX_THREADS}");
            problems.push(ConfigError::new(line_of_key(text, "threads"), wrong));
        }
        for (list, key) in [
            (self.listen.is_empty(), "listen"),
            (self.upstream.is_empty(), "upstream"),
            (self.route.is_empty(), "route"),
        ] {
            if list {
                problems.push(ConfigError::new(0, format!("there is no [[{key}]]")));
            }
        }
        for (n, listen) in self.listen.iter().enumerate() {
            if self.listen[..n]
                .iter()
                .any(|other| other.address == listen.address && !has_port_zero(&other.address))
            {
                problems
                    .push(ConfigError::new(listen.line, format!("{} is listened on twice", listen.address)));
            }
            if listen.proxy_protocol && listen.trusted.is_empty() {
                let wrong = "`proxy_protocol` needs the networks of the proxies in `trusted`";
                problems.push(ConfigError::new(listen.line, wrong));
            }
        }
        for (n, upstream) in self.upstream.iter().enumerate() {
            if self.upstream[..n].iter().any(|other| other.name == upstream.name) {
                problems.push(ConfigError::new(
                    upstream.line,
                    format!("upstream `{}` is defined twice", upstream.name),
                ));
            }
        }
        let names: Vec<_> = self.upstream.iter().map(|upstream| upstream.name.as_str()).collect();
        for route in &self.route {
            let targets = route.to.shares();
            if targets.iter().all(|(_, share)| *share == 0) {
                problems
                    .push(ConfigError::new(route.line, "the route leads nowhere: no upstream has a share"));
            }
            let mirror = route.mirror.iter().flat_map(|mirror| iter::once(&mirror.to).chain(&mirror.noise));
            let others = mirror.chain(route.rollback.iter().map(|rollback| &rollback.to)).map(String::as_str);
            for name in targets.iter().map(|(name, _)| *name).chain(others) {
                if names.contains(&name) {
                    continue;
                }
                let hint = closest(name, names.iter().copied()).map(|name| format!("did you mean `{name}`?"));
                problems.push(
                    ConfigError::new(route.line, format!("there is no upstream `{name}`")).with_hint(hint),
                );
            }
            problems.extend(check_rollback(route, &targets).map(|text| ConfigError::new(route.line, text)));
        }
        problems.extend(self.repeated_route_names());
        problems.extend(self.wrong_recording());
        let tools = self.mcp.as_ref();
        problems.extend(limits::problems(&self.limits, &self.upstream, &self.route, tools));
        for name in &self.schema.reflect {
            if !names.contains(&name.as_str()) {
                let hint = closest(name, names.iter().copied()).map(|name| format!("did you mean `{name}`?"));
                let wrong = format!("[schema]: `reflect`: there is no upstream `{name}`");
                problems.push(ConfigError::new(self.schema.line_of("reflect"), wrong).with_hint(hint));
            }
        }
        problems
    }

    fn wrong_recording(&self) -> Vec<ConfigError> {
        let Some(record) = &self.record else {
            let recorded = self.route.iter().filter(|route| route.record.is_some());
            let text = "`record` needs a [record] with the `file` of the recording";
            return recorded.map(|route| ConfigError::new(route.line, text)).collect();
        };
        let chosen: Vec<_> = self.route.iter().map(|route| route.record).collect();
        record.problems(&chosen).into_iter().map(|text| ConfigError::new(record.line, text)).collect()
    }

    fn repeated_route_names(&self) -> Vec<ConfigError> {
        let repeated = self.route.iter().enumerate().filter_map(|(n, route)| {
            let name = route.name.as_ref()?;
            let is_repeated = self.route[..n].iter().any(|other| other.name.as_ref() == Some(name));
            is_repeated.then(|| ConfigError::new(route.line, format!("two routes have the name `{name}`")))
        });
        repeated.collect()
    }
}

/// Errors in a route's `rollback` condition.
fn check_rollback(route: &Route, targets: &[(&str, u32)]) -> Option<String> {
    let rollback = route.rollback.as_ref()?;
    let limits = [rollback.failures.is_some(), rollback.p99_ratio.is_some()];
    if !targets.iter().any(|(name, _)| *name == rollback.to) {
        return Some(format!("`rollback` leads to `{0}`, which is not in `to`: add `{0} = 0`", rollback.to));
    }
    if targets.len() < 2 {
        return Some("`rollback` needs another upstream in `to`".to_owned());
    }
    if limits == [false, false] {
        return Some("`rollback` needs `failures` or `p99_ratio`".to_owned());
    }
    if rollback.p99_ratio.is_some_and(|ratio| ratio.is_nan() || ratio < 1.0) {
        return Some("`p99_ratio` is a number from 1 on".to_owned());
    }
    (rollback.window.0 < Duration::from_secs(1)).then(|| "`window` of `rollback` is at least 1s".to_owned())
}

/// Parses a file that contains only rules.
#[cfg(test)]
pub(crate) fn rules(text: &str) -> Result<Vec<Rule>, ConfigErrors> {
    #[derive(serde::Deserialize)]
    struct Rules {
        #[serde(default)]
        rule: Vec<Rule>,
    }
    let rules: Rules = toml::from_str(text).map_err(|error| syntax(text, &error))?;
    Ok(rules.rule)
}

/// A condition over a window of 30 s and 100 calls.
#[cfg(test)]
pub(crate) fn rollback(to: &str, failures: Option<f64>, p99_ratio: Option<f64>) -> Rollback {
    let (failures, window) = (failures.map(units::Share), Span(Duration::from_secs(30)));
    Rollback { to: to.to_owned(), failures, p99_ratio, window, min_calls: 100 }
}

fn has_port_zero(address: &str) -> bool {
    address.ends_with(":0")
}

/// Position and suggestion for malformed TOML, an unknown key or an invalid value.
fn syntax(text: &str, error: &toml::de::Error) -> ConfigErrors {
    let line = error.span().map_or(0, |span| line_of(text, span.start));
    let message = error.message();
    let mut quoted = message.split('`').skip(1).step_by(2);
    let hint = match (message.starts_with("unknown "), quoted.next()) {
        (true, Some(wrong)) => closest(wrong, quoted).map(|name| format!("did you mean `{name}`?")),
        _ => None,
    };
    ConfigError::new(line, message.trim_end()).with_hint(hint).into()
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS)
}

/// Maximum number of threads.
const MAX_THREADS: usize = 256;

/// Default name of a gateway.
const NAME: &str = "gateway";

/// Default time for calls to end on shutdown.
const DRAIN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
