//! Compares messages as trees, with rules by path.

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use regex_lite::Regex;

use crate::path::{Path, Step, is_same_name};
use crate::value::Value;

/// Rules of a comparison.
///
/// Differences between formats are ignored: an unset field equals its default, a number its text, bytes their base64,
/// `user_name` equals `userName`, and maps have no order.
///
/// ```
/// use polyrpc_record::compare::Rules;
/// use polyrpc_record::value::Value;
/// use polyrpc_core::{Format, Json};
///
/// let rules = Rules::new().ignore("time".parse()?).tolerance("price".parse()?, 0.01);
/// let tree = |json: &str| Value::decode(Format::Json(Json::Go), json.as_bytes(), None).unwrap();
/// let differences = rules.compare(
///     &tree(r#"{"time": 1, "price": 2.0, "name": "a", "count": 0}"#),
///     &tree(r#"{"time": 2, "price": 2.001, "name": "b"}"#),
/// );
/// assert_eq!(differences.len(), 1);
/// assert_eq!(differences[0].to_string(), r#"name: "a" became "b""#);
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Rules {
    ignored: Vec<Path>,
    unordered: Vec<(Path, Option<String>)>,
    tolerances: Vec<(Path, f64)>,
    patterns: Vec<(Path, Regex)>,
    renamed: Vec<(Path, String)>,
}

/// A difference between two messages.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Path of the field; empty for the whole message.
    pub path: String,
    /// The value on the left; `None` if there is none.
    pub left: Option<Value>,
    /// The value on the right.
    pub right: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "the message" } else { &self.path };
        match (&self.left, &self.right) {
            (Some(left), Some(right)) => write!(f, "{path}: {} became {}", to_line(left), to_line(right)),
            (Some(left), None) => write!(f, "{path}: {} is missing", to_line(left)),
            (None, Some(right)) => write!(f, "{path}: {} is new", to_line(right)),
            (None, None) => write!(f, "{path} differs"),
        }
    }
}

/// A value on one line.
fn to_line(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MAX_LINE_CHARS) {
        None => text,
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

const MAX_LINE_CHARS: usize = 80;

impl Rules {
    /// Compares everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ignores a field.
    #[must_use]
    pub fn ignore(mut self, path: Path) -> Self {
        self.ignored.push(path);
        self
    }

    /// Compares a list of up to 2,000 elements regardless of its order. If a field is named, elements with the same
    /// value of that field are compared with each other.
    #[must_use]
    pub fn unordered(mut self, path: Path, key: Option<&str>) -> Self {
        self.unordered.push((path, key.map(str::to_owned)));
        self
    }

    /// Accepts numbers that differ by at most this much.
    #[must_use]
    pub fn tolerance(mut self, path: Path, max_difference: f64) -> Self {
        self.tolerances.push((path, max_difference));
        self
    }

    /// Accepts any two values that both match a regular expression.
    ///
    /// # Errors
    ///
    /// If the expression is invalid.
    pub fn pattern(mut self, path: Path, pattern: &str) -> Result<Self, String> {
        let pattern = Regex::new(pattern)
            .map_err(|error| format!("`{pattern}` is not a regular expression: {error}"))?;
        self.patterns.push((path, pattern));
        Ok(self)
    }

    /// Compares a field of the left message with a field of another name at the same position of the right one.
    #[must_use]
    pub fn rename(mut self, path: Path, name: &str) -> Self {
        self.renamed.push((path, name.to_owned()));
        self
    }

    /// Returns the differences of two messages, at most 1,000.
    pub fn compare(&self, left: &Value, right: &Value) -> Vec<Difference> {
        let mut comparison = Comparison { rules: self, differences: Vec::new() };
        comparison.compare_values(&mut Vec::new(), Some(left), Some(right));
        comparison.differences
    }

    fn is_ignored(&self, steps: &[Step<'_>]) -> bool {
        self.ignored.iter().any(|path| path.matches(steps))
    }
}

struct Comparison<'r> {
    rules: &'r Rules,
    differences: Vec<Difference>,
}

impl Comparison<'_> {
    fn compare_values<'v>(
        &mut self,
        steps: &mut Vec<Step<'v>>,
        left: Option<&'v Value>,
        right: Option<&'v Value>,
    ) {
        if self.differences.len() >= MAX_DIFFERENCES || self.rules.is_ignored(steps) {
            return;
        }
        match (left, right) {
            (Some(Value::Map(one)), Some(Value::Map(other))) => self.compare_maps(steps, one, other),
            (Some(Value::Map(one)), None) if !one.is_empty() => self.compare_maps(steps, one, &[]),
            (None, Some(Value::Map(other))) if !other.is_empty() => self.compare_maps(steps, &[], other),
            (Some(Value::List(one)), Some(Value::List(other))) => self.compare_lists(steps, one, other),
            (Some(one), Some(other)) if is_same(one, other) || self.is_accepted(steps, one, other) => {}
            // An unset field has its default.
            (Some(one), None) if one.is_default() => {}
            (None, Some(other)) if other.is_default() => {}
            (Some(one), Some(other)) if one.is_default() && other.is_default() => {}
            (None, None) => {}
            _ => self.record_difference(steps, left, right),
        }
    }

    fn compare_maps<'v>(
        &mut self,
        steps: &mut Vec<Step<'v>>,
        left: &'v [(String, Value)],
        right: &'v [(String, Value)],
    ) {
        let exact = Names::new(right);
        let mut used = vec![false; right.len()];
        for (name, value) in left {
            steps.push(Step::Name(name));
            let renamed = self.rules.renamed.iter().find(|(path, _)| path.matches(steps));
            let wanted = renamed.map_or(name, |(_, name)| name);
            let partner = exact.find(wanted).filter(|at| !used.get(*at).copied().unwrap_or(true));
            if let Some(used) = partner.and_then(|at| used.get_mut(at)) {
                *used = true;
            }
            let partner = partner.and_then(|at| right.get(at)).map(|(_, value)| value);
            self.compare_values(steps, Some(value), partner);
            steps.pop();
        }
        for ((name, value), _) in right.iter().zip(&used).filter(|(_, used)| !**used) {
            steps.push(Step::Name(name));
            self.compare_values(steps, None, Some(value));
            steps.pop();
        }
    }

    fn compare_lists<'v>(&mut self, steps: &mut Vec<Step<'v>>, left: &'v [Value], right: &'v [Value]) {
        let rule = self.rules.unordered.iter().find(|(path, _)| path.matches(steps));
        // Pairing takes the product of both lengths.
        let is_long = left.len().saturating_mul(right.len()) > MAX_PAIRS;
        if let Some((_, key)) = rule.filter(|_| !is_long) {
            return self.compare_unordered(steps, key.as_deref(), left, right);
        }
        for index in 0..left.len().max(right.len()) {
            steps.push(Step::Index(index));
            match (left.get(index), right.get(index)) {
                (Some(one), Some(other)) => self.compare_values(steps, Some(one), Some(other)),
                // Elements have no default.
                (one, other) if !self.rules.is_ignored(steps) => self.record_difference(steps, one, other),
                _ => {}
            }
            steps.pop();
        }
    }

    /// Pairs equal elements, or those with the same key, and compares the rest in its order.
    fn compare_unordered<'v>(
        &mut self,
        steps: &mut Vec<Step<'v>>,
        key: Option<&str>,
        left: &'v [Value],
        right: &'v [Value],
    ) {
        let mut rest: Vec<&Value> = right.iter().collect();
        let mut alone = Vec::new();
        for (index, one) in left.iter().enumerate() {
            steps.push(Step::Index(index));
            let matches = |other: &&Value| match key {
                Some(key) => {
                    let (one, other) = (member(one, key), member(other, key));
                    one.zip(other).is_some_and(|(one, other)| is_same(one, other))
                }
                None => self.rules.are_equal_at(steps, one, other),
            };
            match rest.iter().position(matches) {
                Some(at) => {
                    let other = rest.remove(at);
                    self.compare_values(steps, Some(one), Some(other));
                }
                None => alone.push((index, one)),
            }
            steps.pop();
        }
        let mut rest = rest.into_iter();
        for (index, one) in alone {
            steps.push(Step::Index(index));
            match rest.next() {
                Some(other) if key.is_none() => self.compare_values(steps, Some(one), Some(other)),
                other => {
                    self.record_difference(steps, Some(one), None);
                    other.into_iter().for_each(|other| self.record_difference(steps, None, Some(other)));
                }
            }
            steps.pop();
        }
        for (index, other) in (left.len()..).zip(rest) {
            steps.push(Step::Index(index));
            self.record_difference(steps, None, Some(other));
            steps.pop();
        }
    }

    fn is_accepted(&self, steps: &[Step<'_>], left: &Value, right: &Value) -> bool {
        let near = self.rules.tolerances.iter().filter(|(path, _)| path.matches(steps)).any(
            |(_, max_difference)| {
                let difference = number(left).zip(number(right)).map(|(one, other)| (one - other).abs());
                difference.is_some_and(|difference| difference <= *max_difference)
            },
        );
        near || self.rules.patterns.iter().filter(|(path, _)| path.matches(steps)).any(|(_, pattern)| {
            let texts = [left, right].map(text);
            texts.iter().all(|text| pattern.is_match(text))
        })
    }

    fn record_difference(&mut self, steps: &[Step<'_>], left: Option<&Value>, right: Option<&Value>) {
        if self.differences.len() >= MAX_DIFFERENCES {
            return;
        }
        let path: Vec<_> = steps.iter().map(ToString::to_string).collect();
        self.differences.push(Difference {
            path: path.join("."),
            left: left.cloned(),
            right: right.cloned(),
        });
    }
}

impl Rules {
    /// Whether two elements are equal at this path.
    fn are_equal_at(&self, steps: &[Step<'_>], left: &Value, right: &Value) -> bool {
        let mut comparison = Comparison { rules: self, differences: Vec::new() };
        comparison.compare_values(&mut steps.to_vec(), Some(left), Some(right));
        comparison.differences.is_empty()
    }
}

/// Positions of names, found exactly or by another spelling.
struct Names<'v> {
    entries: &'v [(String, Value)],
    sorted: Vec<usize>,
}

impl<'v> Names<'v> {
    fn new(entries: &'v [(String, Value)]) -> Self {
        let mut sorted: Vec<usize> = (0..entries.len()).collect();
        sorted.sort_by_key(|at| entries.get(*at).map(|(name, _)| name));
        Self { entries, sorted }
    }

    fn find(&self, wanted: &str) -> Option<usize> {
        let name = |at: &usize| self.entries.get(*at).map(|(name, _)| name.as_str());
        if let Ok(found) = self.sorted.binary_search_by(|at| name(at).cmp(&Some(wanted))) {
            return self.sorted.get(found).copied();
        }
        // Maps with many keys are data, whose keys have one spelling.
        let is_message = self.entries.len() <= 100;
        is_message.then(|| self.entries.iter().position(|(name, _)| is_same_name(name, wanted))).flatten()
    }
}

fn member<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    let Value::Map(entries) = value else { return None };
    entries.iter().find(|(there, _)| is_same_name(there, name)).map(|(_, value)| value)
}

/// Whether two plain values are the same, as formats write them.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Float(one), Value::Float(other)) => one == other || one.is_nan() && other.is_nan(),
        (Value::Integer(whole), Value::Float(float)) | (Value::Float(float), Value::Integer(whole)) => {
            *whole as f64 == *float
        }
        (Value::Integer(whole), Value::Text(text)) | (Value::Text(text), Value::Integer(whole)) => {
            text.parse() == Ok(*whole)
        }
        (Value::Float(float), Value::Text(text)) | (Value::Text(text), Value::Float(float)) => {
            text.parse() == Ok(*float)
        }
        (Value::Bytes(bytes), Value::Text(text)) | (Value::Text(text), Value::Bytes(bytes)) => {
            let decoded = STANDARD.decode(text).or_else(|_| URL_SAFE_NO_PAD.decode(text));
            text.as_bytes() == bytes.as_slice() || decoded.is_ok_and(|decoded| decoded == *bytes)
        }
        (one, other) => one == other,
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(whole) => Some(*whole as f64),
        Value::Float(float) => Some(*float),
        Value::Text(text) => text.parse().ok(),
        _ => None,
    }
}

fn text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::Text(text) => Cow::Borrowed(text),
        other => Cow::Owned(other.to_string()),
    }
}

/// Longer lists are compared in order, regardless of rules.
const MAX_PAIRS: usize = 4_000_000;
/// Maximum number of differences.
const MAX_DIFFERENCES: usize = 1000;

#[cfg(test)]
mod tests {
    use polyrpc_core::{Format, Json};

    use super::*;

    fn tree(json: &str) -> Value {
        Value::decode(Format::Json(Json::Go), json.as_bytes(), None).unwrap()
    }

    fn differences(rules: &Rules, left: &str, right: &str) -> Vec<String> {
        rules.compare(&tree(left), &tree(right)).iter().map(ToString::to_string).collect()
    }

    fn path(text: &str) -> Path {
        text.parse().unwrap()
    }

    #[test]
    fn different_spellings_of_formats_are_equal() {
        let none = Rules::new();
        for (left, right) in [
            (r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#),
            (r#"{"a":0,"b":"","c":[],"d":{},"e":false,"f":null}"#, "{}"),
            (r#"{"id":"9007199254740993"}"#, r#"{"id":9007199254740993}"#),
            (r#"{"user_name":"x"}"#, r#"{"userName":"x"}"#),
            (r#"{"a":1.0}"#, r#"{"a":1}"#),
            (r#"{"a":{"b":0}}"#, "{}"),
            (r#"{"a":[]}"#, r#"{"a":null}"#),
        ] {
            assert_eq!(differences(&none, left, right), [""; 0], "{left} {right}");
            assert_eq!(differences(&none, right, left), [""; 0], "{right} {left}");
        }
        assert!(none.compare(&Value::Bytes(b"\0\x01".to_vec()), &Value::Text("AAE=".into())).is_empty());
    }

    #[test]
    fn each_difference_has_its_path() {
        let found = differences(
            &Rules::new(),
            r#"{"a":{"b":[1,2,{"c":3}]},"gone":1}"#,
            r#"{"a":{"b":[1,5,{"c":4}, 0]},"new":"x"}"#,
        );
        let expected = [
            "a.b.1: 2 became 5",
            "a.b.2.c: 3 became 4",
            "a.b.3: 0 is new",
            "gone: 1 is missing",
            r#"new: "x" is new"#,
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn each_rule_accepts_what_it_names_and_nothing_else() {
        let left = r#"{"t":1,"p":1.0,"id":"a-1","l":[{"k":1,"v":"x"},{"k":2,"v":"y"}],"old":5,"s":[1,2]}"#;
        let right = r#"{"t":2,"p":1.4,"id":"b-2","l":[{"k":2,"v":"z"},{"k":1,"v":"x"}],"new":5,"s":[2,1]}"#;
        let rules = Rules::new()
            .ignore(path("t"))
            .tolerance(path("p"), 0.5)
            .pattern(path("id"), "^[a-z]-[0-9]$")
            .unwrap()
            .unordered(path("l"), Some("k"))
            .unordered(path("s"), None)
            .rename(path("old"), "new");
        assert_eq!(differences(&rules, left, right), [r#"l.1.v: "y" became "z""#]);
        assert_eq!(differences(&Rules::new(), left, right).len(), 11);
        assert_eq!(differences(&rules, r#"{"p":1}"#, r#"{"p":2}"#), ["p: 1 became 2"]);
        assert_eq!(differences(&rules, r#"{"s":[1,2]}"#, r#"{"s":[2]}"#), ["s.0: 1 is missing"]);
        assert!(Rules::new().pattern(path("a"), "(").is_err());
    }

    #[test]
    fn number_of_differences_is_limited() {
        let list = |first: i128| Value::List((first..first + 5000).map(Value::Integer).collect());
        assert_eq!(Rules::new().compare(&list(0), &list(1)).len(), MAX_DIFFERENCES);
    }
}
