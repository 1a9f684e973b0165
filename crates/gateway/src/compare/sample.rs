//! How values are shown in a report.

use std::hash::{BuildHasher, RandomState};

use serde_json::Value;

/// Shows values in plain text, or in a form that only reveals which ones are equal.
#[derive(Debug)]
pub(crate) struct Samples {
    /// Key of the fingerprints; it never leaves the process.
    redacting: Option<RandomState>,
}

impl Samples {
    /// Values are shown, truncated after some characters.
    pub(crate) fn plain() -> Self {
        Self { redacting: None }
    }

    /// A value is shown by its kind, its length if it is text, and a fingerprint.
    pub(crate) fn redacted() -> Self {
        Self { redacting: Some(RandomState::new()) }
    }

    pub(super) fn format_value(&self, value: &Value) -> String {
        let Some(key) = &self.redacting else { return cut(value) };
        let kind = match value {
            Value::Null => return "absent".to_owned(),
            Value::Bool(_) => "boolean".to_owned(),
            Value::Number(_) => "number".to_owned(),
            Value::String(text) => format!("text of {} bytes", text.len()),
            Value::Array(items) => return format!("list of {} items", items.len()),
            Value::Object(members) => return format!("object of {} members", members.len()),
        };
        format!("{kind}, #{:04x}", key.hash_one(value.to_string()) & 0xffff)
    }
}

fn cut(value: &Value) -> String {
    if value.is_null() {
        return "absent".to_owned();
    }
    let text = value.to_string();
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Maximum number of shown characters of a value.
const MAX_CHARS: usize = 80;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn redacted_values_show_no_content() {
        let samples = Samples::redacted();
        let shown = samples.format_value(&json!("secret"));
        assert!(shown.starts_with("text of 6 bytes, #") && !shown.contains("secret"), "{shown}");
        assert_eq!(shown, samples.format_value(&json!("secret")));
        assert!(!samples.format_value(&json!(4711)).contains("4711"));
        assert_eq!(samples.format_value(&json!(["secret"])), "list of 1 items");
    }

    #[test]
    fn long_values_are_cut() {
        assert_eq!(Samples::plain().format_value(&json!("é".repeat(200))).chars().count(), MAX_CHARS + 1);
        assert_eq!(Samples::plain().format_value(&json!({"a": 1})), r#"{"a":1}"#);
        assert_eq!(Samples::plain().format_value(&Value::Null), "absent");
    }
}
