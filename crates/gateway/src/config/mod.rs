//! The configuration file.

mod file;
mod glob;
mod secret;
mod span;

pub(crate) use self::file::{
    Admin, Credential, Listen, Loss, Match, MetadataPolicy, OpenApi, Rename, Route, Schema, ServerTls,
    Sticky, Tools, Upstream, UpstreamTls,
};
pub(crate) use self::glob::Glob;
pub(crate) use self::span::Lined;

use std::time::Duration;

use polyrpc_transform::closest::closest;

use self::file::File;
use self::span::line_of;
use crate::problem::{Problem, Problems};

/// A parsed configuration: every key and value is known, every name is defined.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) listen: Vec<Lined<Listen>>,
    pub(crate) upstream: Vec<Lined<Upstream>>,
    pub(crate) route: Vec<Lined<Route>>,
    pub(crate) schema: Schema,
    pub(crate) admin: Option<Admin>,
    pub(crate) mcp: Option<Tools>,
    pub(crate) openapi: Option<OpenApi>,
    pub(crate) drain: Duration,
    pub(crate) limits: file::Limits,
}

impl Config {
    /// Parses TOML. Files that it names are not read yet.
    ///
    /// # Errors
    ///
    /// Everything that is wrong, with lines: malformed TOML, unknown keys, names without a definition.
    pub fn parse(text: &str) -> Result<Self, Problems> {
        let file: File = toml::from_str(text).map_err(|error| syntax(text, &error))?;
        let config = Self {
            listen: Lined::all(text, file.listen),
            upstream: Lined::all(text, file.upstream),
            route: Lined::all(text, file.route),
            schema: file.schema,
            admin: file.admin,
            mcp: file.mcp,
            openapi: file.openapi,
            drain: file.drain.map_or(DRAIN, |drain| drain.0),
            limits: file.limits,
        };
        let problems = config.problems();
        if problems.is_empty() { Ok(config) } else { Err(Problems(problems)) }
    }

    /// What is wrong although each part is well-formed.
    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (list, key) in [
            (self.listen.is_empty(), "listen"),
            (self.upstream.is_empty(), "upstream"),
            (self.route.is_empty(), "route"),
        ] {
            if list {
                problems.push(Problem::new(0, format!("there is no [[{key}]]")));
            }
        }
        for (n, listen) in self.listen.iter().enumerate() {
            if self.listen[..n]
                .iter()
                .any(|other| other.address == listen.address && !has_port_zero(&other.address))
            {
                problems.push(Problem::new(listen.line, format!("{} is listened on twice", listen.address)));
            }
        }
        for (n, upstream) in self.upstream.iter().enumerate() {
            if self.upstream[..n].iter().any(|other| other.name == upstream.name) {
                problems.push(Problem::new(
                    upstream.line,
                    format!("upstream `{}` is defined twice", upstream.name),
                ));
            }
        }
        let names: Vec<_> = self.upstream.iter().map(|upstream| upstream.name.as_str()).collect();
        for route in &self.route {
            let targets = route.to.shares();
            if targets.iter().all(|(_, share)| *share == 0) {
                problems.push(Problem::new(route.line, "the route leads nowhere: no upstream has a share"));
            }
            for (name, _) in targets.iter().filter(|(name, _)| !names.contains(name)) {
                let hint = closest(name, names.iter().copied()).map(|name| format!("did you mean `{name}`?"));
                problems
                    .push(Problem::new(route.line, format!("there is no upstream `{name}`")).with_hint(hint));
            }
        }
        for name in &self.schema.reflect {
            if !names.contains(&name.as_str()) {
                problems.push(Problem::new(0, format!("there is no upstream `{name}` to reflect")));
            }
        }
        problems
    }
}

fn has_port_zero(address: &str) -> bool {
    address.ends_with(":0")
}

/// The position and a suggestion for malformed TOML, an unknown key or a wrong value.
fn syntax(text: &str, error: &toml::de::Error) -> Problems {
    let line = error.span().map_or(0, |span| line_of(text, span.start));
    let message = error.message();
    let mut quoted = message.split('`').skip(1).step_by(2);
    let hint = match (message.starts_with("unknown "), quoted.next()) {
        (true, Some(wrong)) => closest(wrong, quoted).map(|name| format!("did you mean `{name}`?")),
        _ => None,
    };
    Problem::new(line, message.trim_end()).with_hint(hint).into()
}

/// Default time for calls to end on shutdown.
const DRAIN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
