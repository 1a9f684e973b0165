//! Which calls of a recording are meant.

use clap::Args;
use polyrpc::Protocol;
use polyrpc_record::Call;

use crate::url;

/// Options that select calls.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Filter {
    /// Only methods of this name: Service/Method or a function, with `*` for any characters; may be repeated
    #[arg(long = "method", value_name = "GLOB")]
    methods: Vec<String>,
    /// Only calls of this protocol, for example `rpcx`
    #[arg(long, value_name = "NAME", value_parser = url::parse_protocol)]
    protocol: Option<Protocol>,
    /// Only calls that failed
    #[arg(long)]
    failed: bool,
}

impl Filter {
    /// Whether it has a name that may be misspelled.
    pub(crate) fn has_name(&self) -> bool {
        !self.methods.is_empty() || self.protocol.is_some()
    }

    pub(crate) fn selects(&self, call: &Call) -> bool {
        let name = call.full_name();
        (self.methods.is_empty() || self.methods.iter().any(|glob| is_named(glob, &name)))
            && self.protocol.is_none_or(|protocol| protocol.as_str() == call.protocol)
            && (!self.failed || call.failure().is_some())
    }
}

/// Whether a name matches a pattern, which may have a dot before the method as on other command lines.
fn is_named(glob: &str, name: &str) -> bool {
    let slashed = || match glob.rsplit_once('.') {
        Some((service, method)) if !glob.contains('/') => matches(&format!("{service}/{method}"), name),
        _ => false,
    };
    matches(glob, name) || slashed()
}

/// Whether a name matches a pattern in which `*` stands for any characters.
pub(crate) fn matches(glob: &str, name: &str) -> bool {
    let Some((start, rest)) = glob.split_once('*') else { return glob == name };
    let Some(mut left) = name.strip_prefix(start) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        match left.find(part) {
            Some(at) => left = left.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    left.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glob_matches_any_characters() {
        for (glob, name) in
            [("*", ""), ("a*", "abc"), ("*c", "abc"), ("a*b*c", "a1b2c"), ("S/M", "S/M"), ("*/M*", "S/Mul")]
        {
            assert!(matches(glob, name), "{glob} {name}");
        }
        assert!(
            is_named("Arith.Mul", "Arith/Mul") && is_named("a.B.M*", "a.B/Mul") && is_named("a.b", "a.b")
        );
        assert!(!is_named("a.B/M.x", "a.B/M/x"));
        for (glob, name) in [("a*", "ba"), ("*c", "cb"), ("a*bc*c", "abc"), ("S/M", "S/Mul"), ("", "x")] {
            assert!(!matches(glob, name), "{glob} {name}");
        }
    }
}
