use serde_json::Value;

use super::{Action, Redaction};
use crate::path::Step;

/// Removes fields of a JSON text. `None` if it is malformed.
pub(super) fn redact(rules: &Redaction, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut value: Value = serde_json::from_slice(bytes).ok()?;
    redact_value(rules, &mut Vec::new(), &mut value);
    serde_json::to_vec(&value).ok()
}

fn redact_value(rules: &Redaction, steps: &mut Vec<Step<'_>>, value: &mut Value) {
    match value {
        Value::Object(members) => {
            let names: Vec<String> = members.keys().cloned().collect();
            for name in names {
                let mut steps: Vec<Step<'_>> = steps.clone();
                steps.push(Step::Name(&name));
                let Some(member) = members.get_mut(&name) else { continue };
                if !keeps(rules, &mut steps, member) {
                    members.remove(&name);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                steps.push(Step::Index(index));
                if !keeps(rules, steps, item) {
                    *item = Value::Null;
                }
                steps.pop();
            }
        }
        _ => {}
    }
}

/// Applies the rules. Returns whether the value stays.
fn keeps(rules: &Redaction, steps: &mut Vec<Step<'_>>, value: &mut Value) -> bool {
    match rules.action(steps) {
        Action::Drop => return false,
        Action::Hash => match value {
            Value::String(text) => *text = rules.digest_text(text.as_bytes()),
            Value::Number(number) => {
                let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
                match whole {
                    Some(whole) => *value = rules.digest_number(whole).into(),
                    None => return false,
                }
            }
            _ => return false,
        },
        Action::Keep => redact_value(rules, steps, value),
    }
    true
}
