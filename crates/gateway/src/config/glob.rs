use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// A pattern of a name, in which `*` stands for any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glob(String);

impl Glob {
    /// Returns the only text that matches, if the pattern has no `*`.
    pub(crate) fn exact(&self) -> Option<&str> {
        (!self.0.contains('*')).then_some(&*self.0)
    }

    /// Whether every text matches.
    pub(crate) fn matches_all(&self) -> bool {
        !self.0.is_empty() && self.0.bytes().all(|byte| byte == b'*')
    }

    /// Whether the whole text matches.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else { return self.0 == text };
        let Some(mut text) = text.strip_prefix(first) else { return false };
        let mut parts: Vec<_> = rest.split('*').collect();
        let last = parts.pop().unwrap_or_default();
        for part in parts {
            match text.find(part) {
                Some(at) => text = &text[at + part.len()..],
                None => return false,
            }
        }
        text.ends_with(last)
    }
}

impl<'de> Deserialize<'de> for Glob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pattern = String::deserialize(deserializer)?;
        match pattern.matches('*').count() {
            0..=8 => Ok(Self(pattern)),
            _ => Err(D::Error::custom("a pattern has at most 8 stars")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_stands_for_any_text() {
        for (pattern, right, wrong) in [
            ("User", &["User"][..], &["user", "Users", ""][..]),
            ("*", &["", "a.b"], &[]),
            ("demo.*", &["demo.User", "demo."], &["demo", "xdemo.User"]),
            ("*.User", &["demo.User", ".User"], &["User", "demo.Users"]),
            ("a*b*c", &["abc", "axbxc", "abbc"], &["ab", "acb", "abcx"]),
            ("a*a", &["aa", "aba"], &["a"]),
        ] {
            let glob = Glob(pattern.to_owned());
            right.iter().for_each(|text| assert!(glob.matches(text), "{pattern} {text}"));
            wrong.iter().for_each(|text| assert!(!glob.matches(text), "{pattern} {text}"));
        }
    }
}
