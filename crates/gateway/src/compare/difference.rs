//! Differences between two values. Values that a schema or a language does not distinguish are equal: a default and a
//! missing member, a 64-bit integer as text and as a number, members in another order.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Number, Value};

use super::rules::Rules;
use super::sample::Samples;
use crate::config::RuleAction;

/// The two values at a path, in the form of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) one: String,
    pub(crate) other: String,
}

/// Compares two values. Returns differences by path: `user.name`, `items[].price`; all items of a list have the same
/// path, and the first difference at a path counts. At most 100 paths are returned.
///
/// `renames`: the other value comes from the server whose members are renamed.
pub(crate) fn differences(
    rules: &Rules,
    samples: &Samples,
    renames: bool,
    one: &Value,
    other: &Value,
) -> BTreeMap<String, Difference> {
    let mut comparison = Comparison { rules, samples, renames, found: BTreeMap::new() };
    comparison.compare("", one, other);
    comparison.found
}

struct Comparison<'r> {
    rules: &'r Rules,
    samples: &'r Samples,
    renames: bool,
    found: BTreeMap<String, Difference>,
}

const MAX_PATHS: usize = 100;

impl Comparison<'_> {
    fn compare(&mut self, path: &str, one: &Value, other: &Value) {
        if self.found.len() >= MAX_PATHS {
            return;
        }
        let equal = match (self.rules.action_for(path), one, other) {
            (Some(RuleAction::Ignore), ..) => true,
            (Some(RuleAction::Tolerance(tolerance)), one, other) => match (number(one), number(other)) {
                (Some(one), Some(other)) => (one - other).abs() <= *tolerance,
                _ => is_same(one, other),
            },
            (Some(RuleAction::Regex(pattern)), Value::String(one), Value::String(other)) => {
                one == other || pattern.matches(one) && pattern.matches(other)
            }
            (Some(RuleAction::Unordered(key)), Value::Array(one), Value::Array(other)) => {
                return self.compare_unordered(path, key, one, other);
            }
            (_, Value::Object(one), Value::Object(other)) => return self.compare_members(path, one, other),
            (_, Value::Array(one), Value::Array(other)) => return self.compare_items(path, one, other),
            (_, one, other) => is_same(one, other),
        };
        if !equal {
            self.record_difference(path, one, other);
        }
    }

    fn compare_members(&mut self, path: &str, one: &Map<String, Value>, other: &Map<String, Value>) {
        let mut seen = BTreeSet::new();
        for (name, value) in one {
            let path = join_path(path, name);
            let renamed = if self.renames { self.rules.new_name(&path) } else { None };
            let name = renamed.unwrap_or(name);
            seen.insert(name);
            self.compare(&path, value, other.get(name).unwrap_or(&Value::Null));
        }
        for (name, value) in other.iter().filter(|(name, _)| !seen.contains(name.as_str())) {
            self.compare(&join_path(path, name), &Value::Null, value);
        }
    }

    fn compare_items(&mut self, path: &str, one: &[Value], other: &[Value]) {
        let path = format!("{path}[]");
        // Otherwise an added or missing item would make all following items differ.
        if one.len() != other.len() {
            return match self.rules.action_for(&path) {
                Some(RuleAction::Ignore) => {}
                _ => self.record_lengths(path, one.len(), other.len()),
            };
        }
        for (one, other) in one.iter().zip(other) {
            self.compare(&path, one, other);
        }
    }

    /// Compares items with the same key, at whatever positions.
    fn compare_unordered(&mut self, path: &str, key: &str, one: &[Value], other: &[Value]) {
        let path = format!("{path}[]");
        let mut by_key: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
        for item in other.iter().rev() {
            by_key.entry(key_of(item, key)).or_default().push(item);
        }
        for item in one {
            let found = by_key.get_mut(&key_of(item, key)).and_then(Vec::pop);
            self.compare(&path, item, found.unwrap_or(&Value::Null));
        }
        for item in by_key.values().flatten() {
            self.compare(&path, &Value::Null, item);
        }
    }

    fn record_difference(&mut self, path: &str, one: &Value, other: &Value) {
        if !self.found.contains_key(path) {
            let [one, other] = [one, other].map(|value| self.samples.format_value(value));
            self.found.insert(path.to_owned(), Difference { one, other });
        }
    }

    fn record_lengths(&mut self, path: String, one: usize, other: usize) {
        let shown = |count: usize| format!("{count} items");
        self.found.entry(path).or_insert_with(|| Difference { one: shown(one), other: shown(other) });
    }
}

fn join_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The key of an item: a member of it, or the whole item.
fn key_of(item: &Value, key: &str) -> String {
    match key {
        "" => item.to_string(),
        key => item.get(key).unwrap_or(&Value::Null).to_string(),
    }
}

fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => is_same_number(one, other),
        (Value::String(text), Value::Number(number)) | (Value::Number(number), Value::String(text)) => {
            integer(number).is_some_and(|number| text.parse() == Ok(number))
        }
        (Value::Null, value) | (value, Value::Null) => is_default(value),
        // Containers have been compared item by item before.
        (one, other) => one == other,
    }
}

fn is_same_number(one: &Number, other: &Number) -> bool {
    match (integer(one), integer(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one.as_f64() == other.as_f64(),
    }
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        Value::Null => Some(0.0),
        _ => None,
    }
}

/// Whether protobuf and Go do not distinguish the value from a missing one.
fn is_default(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_f64() == Some(0.0),
        // A 64-bit integer may be text.
        Value::String(text) => text.is_empty() || text == "0",
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.values().all(is_default),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn paths(rules: &str, one: Value, other: Value) -> Vec<String> {
        let rules = Rules::new(crate::config::rules(rules).unwrap());
        differences(&rules, &Samples::plain(), true, &one, &other).into_keys().collect()
    }

    #[test]
    fn values_that_no_schema_distinguishes_are_equal() {
        for (one, other) in [
            (json!({"a": 1, "b": [true]}), json!({"b": [true], "a": 1})),
            (json!({"id": "9007199254740993"}), json!({"id": 9_007_199_254_740_993_u64})),
            (json!({"a": 0, "b": "", "c": [], "d": {"e": false}, "f": null}), json!({})),
            (json!({"a": 1.0}), json!({"a": 1})),
            (json!(7), json!("7")),
        ] {
            assert!(paths("", one.clone(), other.clone()).is_empty(), "{one} {other}");
            assert!(paths("", other.clone(), one.clone()).is_empty(), "{other} {one}");
        }
    }

    #[test]
    fn differences_have_the_path_of_the_value() {
        for (one, other, wanted) in [
            (json!({"a": {"b": 1}}), json!({"a": {"b": 2}}), &["a.b"][..]),
            (json!({"l": [{"x": 1}, {"x": 2}]}), json!({"l": [{"x": 3}, {"x": 4}]}), &["l[].x"]),
            (json!({"l": [1, 2]}), json!({"l": [0, 1, 2]}), &["l[]"]),
            (json!({"a": 1}), json!({"b": 1}), &["a", "b"]),
            (json!({"a": [1]}), json!({"a": {"x": 1}}), &["a"]),
            (json!("x"), json!("y"), &[""]),
            (json!({"id": "9007199254740993"}), json!({"id": 9_007_199_254_740_992_u64}), &["id"]),
        ] {
            assert_eq!(paths("", one.clone(), other.clone()), wanted, "{one} {other}");
        }
    }

    #[test]
    fn rules_suppress_differences() {
        let one = json!({"t": 100.0, "id": "a-17", "l": [{"k": 1, "v": 2}, {"k": 2, "v": 3}], "old": 5});
        let other = json!({"t": 100.4, "id": "a-99", "l": [{"k": 2, "v": 3}, {"k": 1, "v": 2}], "new": 5});
        assert_eq!(paths("", one.clone(), other.clone()), ["id", "l[].k", "l[].v", "new", "old", "t"]);
        let rules = r#"
            [[rule]]
            path = "t"
            tolerance = 0.5
            [[rule]]
            path = "id"
            regex = "^a-[0-9]+$"
            [[rule]]
            path = "l"
            unordered = "k"
            [[rule]]
            path = "old"
            rename = "new"
        "#;
        assert!(paths(rules, one.clone(), other.clone()).is_empty());
        let mut wrong = other;
        wrong["t"] = json!(101);
        wrong["id"] = json!("b-1");
        wrong["l"][0]["v"] = json!(4);
        wrong["new"] = json!(6);
        assert_eq!(paths(rules, one.clone(), wrong.clone()), ["id", "l[].v", "old", "t"]);
        assert!(paths("[[rule]]\npath = \"*\"\nignore = true", one, wrong).is_empty());
    }

    #[test]
    fn items_without_a_key_are_a_set() {
        let rule = "[[rule]]\npath = \"l\"\nunordered = \"\"";
        assert!(paths(rule, json!({"l": [1, 2, 2]}), json!({"l": [2, 1, 2]})).is_empty());
        assert_eq!(paths(rule, json!({"l": [1, 2, 2]}), json!({"l": [2, 1, 1]})), ["l[]"]);
    }

    #[test]
    fn number_of_paths_is_bounded() {
        let object = |value: u32| {
            let members = (0..1000).map(|n| (n.to_string(), json!(value)));
            Value::Object(members.collect())
        };
        assert_eq!(paths("", object(1), object(2)).len(), MAX_PATHS);
    }
}
