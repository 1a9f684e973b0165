//! Configuration keys for moving a route from one upstream to another: `mirror` and `rollback`.

use std::fmt;
use std::time::Duration;

use regex_lite::Regex;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::glob::Glob;
use super::units::{Share, Size, Span};

/// Sends copies of calls to another upstream and compares its answers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mirror {
    /// The upstream that gets the copies.
    pub(crate) to: String,
    /// The second primary; by default the upstream that answered the caller.
    pub(crate) noise: Option<String>,
    /// Share of the calls that are copied.
    #[serde(default)]
    pub(crate) share: Share,
    /// Limits of copies in flight.
    #[serde(default = "concurrent")]
    pub(crate) concurrent: usize,
    #[serde(default = "bytes")]
    pub(crate) bytes: Size,
    /// Copies per second.
    #[serde(default = "rate")]
    pub(crate) rate: u32,
    #[serde(default = "timeout")]
    pub(crate) timeout: Span,
    #[serde(default)]
    pub(crate) samples: SampleForm,
    #[serde(default)]
    pub(crate) rule: Vec<Rule>,
}

fn concurrent() -> usize {
    64
}

fn bytes() -> Size {
    Size(64 << 20)
}

fn rate() -> u32 {
    1_000
}

fn timeout() -> Span {
    Span(Duration::from_secs(5))
}

/// How values are shown in the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SampleForm {
    #[default]
    Redacted,
    Plain,
}

/// Differences to ignore.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "RuleKeys")]
pub(crate) struct Rule {
    pub(crate) path: Glob,
    pub(crate) action: RuleAction,
}

/// The effect of a rule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RuleAction {
    /// Values are not compared.
    Ignore,
    /// A list is compared by a member of its items, or as a set if it is empty.
    Unordered(String),
    /// Numbers may differ by this much.
    Tolerance(f64),
    /// Texts are equal if both match.
    Regex(Pattern),
    /// The member has another name in the mirror's answers.
    Rename(String),
}

impl RuleAction {
    pub(crate) fn is_rename(&self) -> bool {
        matches!(self, Self::Rename(_))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleKeys {
    path: Glob,
    #[serde(default)]
    ignore: bool,
    unordered: Option<String>,
    tolerance: Option<f64>,
    regex: Option<Pattern>,
    rename: Option<String>,
}

impl TryFrom<RuleKeys> for Rule {
    type Error = String;

    fn try_from(keys: RuleKeys) -> Result<Self, String> {
        let RuleKeys { path, ignore, unordered, tolerance, regex, rename } = keys;
        if tolerance.is_some_and(|tolerance| tolerance.is_nan() || tolerance < 0.0) {
            return Err("a tolerance is a number from 0 on".to_owned());
        }
        let mut actions = ignore
            .then_some(RuleAction::Ignore)
            .into_iter()
            .chain(unordered.map(RuleAction::Unordered))
            .chain(tolerance.map(RuleAction::Tolerance))
            .chain(regex.map(RuleAction::Regex))
            .chain(rename.map(RuleAction::Rename));
        match (actions.next(), actions.next()) {
            (Some(action), None) => Ok(Self { path, action }),
            _ => Err("a rule has one of ignore, unordered, tolerance, regex, rename".to_owned()),
        }
    }
}

/// A regular expression.
#[derive(Clone)]
pub(crate) struct Pattern(Regex);

impl Pattern {
    pub(crate) fn matches(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_str().fmt(f)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = |error| D::Error::custom(format!("`{text}` is not a regular expression: {error}"));
        Regex::new(&text).map(Self).map_err(wrong)
    }
}

/// When all calls fall back to one upstream.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rollback {
    /// The upstream that then gets all calls.
    pub(crate) to: String,
    /// How much higher the failure rate of another upstream may be than that of this one.
    pub(crate) failures: Option<Share>,
    /// Maximum ratio of another upstream's p99 to that of this one.
    pub(crate) p99_ratio: Option<f64>,
    #[serde(default = "window")]
    pub(crate) window: Span,
    /// Minimum number of calls within the window for a decision.
    #[serde(default = "min_calls")]
    pub(crate) min_calls: u64,
}

fn window() -> Span {
    Span(Duration::from_secs(30))
}

fn min_calls() -> u64 {
    100
}
