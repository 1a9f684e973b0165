use std::fmt;
use std::str::FromStr;

/// A pattern of methods: `Service/Method`, a service with all its methods, or a function, in which `*` stands for any
/// text.
///
/// ```
/// use polyrpc_describe::Pattern;
///
/// let pattern: Pattern = "example.*".parse().unwrap();
/// assert!(pattern.matches("example.EchoService", "Echo"));
/// assert!(!pattern.matches("", "example"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

/// Why a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternError(String);

impl Pattern {
    /// Whether it matches a method. A function has no service.
    pub fn matches(&self, service: &str, method: &str) -> bool {
        match service {
            "" => self.matches_text(method),
            service => self.matches_text(service) || self.matches_text(&format!("{service}/{method}")),
        }
    }

    /// Whether it names what it matches, and is no list of unknown length.
    pub fn is_exact(&self) -> bool {
        !self.0.contains('*')
    }

    fn matches_text(&self, text: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else { return self.0 == text };
        let Some(mut text) = text.strip_prefix(first) else { return false };
        let mut parts: Vec<_> = rest.split('*').collect();
        let last = parts.pop().unwrap_or_default();
        for part in parts {
            match text.split_once(part) {
                Some((_, behind)) => text = behind,
                None => return false,
            }
        }
        text.ends_with(last)
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() || text.chars().any(|letter| letter.is_whitespace() || letter.is_control()) {
            return Err(PatternError(format!("`{}` is not a pattern of methods", text.escape_debug())));
        }
        match text.matches('*').count() {
            0..=MAX_STARS => Ok(Self(text.to_owned())),
            _ => Err(PatternError(format!("`{text}`: a pattern has at most {MAX_STARS} stars"))),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PatternError {}

/// Maximum number of stars, which limits the time of a match.
const MAX_STARS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_matches_services_methods_and_functions() {
        for (pattern, right, wrong) in [
            ("add", &[("", "add")][..], &[("", "adds"), ("add.S", "add")][..]),
            ("a.S", &[("a.S", "Any")], &[("a.T", "Any"), ("", "S")]),
            ("a.S/Get*", &[("a.S", "Get"), ("a.S", "GetAll")], &[("a.S", "Set"), ("a.S", "")]),
            ("a.*", &[("a.S", "M"), ("a.b.S", "M")], &[("b.S", "M")]),
            ("*", &[("a.S", "M"), ("", "add")], &[]),
            ("*/Get", &[("a.S", "Get")], &[("a.S", "GetAll"), ("", "Get")]),
        ] {
            let parsed: Pattern = pattern.parse().unwrap();
            right
                .iter()
                .for_each(|(service, method)| assert!(parsed.matches(service, method), "{pattern} {method}"));
            wrong.iter().for_each(|(service, method)| {
                assert!(!parsed.matches(service, method), "{pattern} {method}")
            });
        }
        for wrong in ["", "a b", "a\n", "*a*b*c*d*e*f*g*h*"] {
            assert!(wrong.parse::<Pattern>().is_err(), "{wrong}");
        }
    }
}
