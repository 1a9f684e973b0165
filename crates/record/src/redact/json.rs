use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use polyrpc_payload::lenient_base64;
use polyrpc_payload::schema::Kind;
use serde_json::{Number, Value};

use super::declaration::{Declaration, is_whole_number};
use super::{Action, Redaction};
use crate::path::Step;

/// Removes fields of a JSON text. `None` if it is malformed.
pub(super) fn redact(rules: &Redaction, declared: Option<Declaration<'_>>, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut value: Value = serde_json::from_slice(bytes).ok()?;
    redact_value(rules, declared, &mut Vec::new(), &mut value);
    serde_json::to_vec(&value).ok()
}

fn redact_value(
    rules: &Redaction,
    declared: Option<Declaration<'_>>,
    steps: &mut Vec<Step<'_>>,
    value: &mut Value,
) {
    match value {
        Value::Object(members) => {
            let names: Vec<String> = members.keys().cloned().collect();
            for name in names {
                let mut steps: Vec<Step<'_>> = steps.clone();
                steps.push(Step::Name(&name));
                let Some(member) = members.get_mut(&name) else { continue };
                let declared = declared.and_then(|declared| declared.member(&name));
                if !keeps(rules, declared, &mut steps, member) {
                    members.remove(&name);
                }
            }
        }
        Value::Array(items) => {
            let declared = declared.and_then(Declaration::item);
            for (index, item) in items.iter_mut().enumerate() {
                steps.push(Step::Index(index));
                if !keeps(rules, declared, steps, item) {
                    *item = Value::Null;
                }
                steps.pop();
            }
        }
        _ => {}
    }
}

/// Applies the rules. Returns whether the value stays.
fn keeps(
    rules: &Redaction,
    declared: Option<Declaration<'_>>,
    steps: &mut Vec<Step<'_>>,
    value: &mut Value,
) -> bool {
    match rules.action(steps) {
        Action::Drop => return false,
        Action::Hash => match hash(rules, declared.map(Declaration::kind), value) {
            Some(hash) => *value = hash,
            None => return false,
        },
        Action::Keep => redact_value(rules, declared, steps, value),
    }
    true
}

/// Returns the hash of a value, by its type if that is declared: a text can be a number, or bytes.
fn hash(rules: &Redaction, kind: Option<Kind>, value: &Value) -> Option<Value> {
    match (kind, value) {
        (None | Some(Kind::String), Value::String(text)) => Some(rules.digest_text(text.as_bytes()).into()),
        (Some(Kind::Bytes), Value::String(text)) => {
            let hash = rules.digest_text(&decode_base64(text)?);
            Some(STANDARD.encode(hash).into())
        }
        (None, Value::Number(number)) => Some(rules.digest_number(to_whole(number)?).into()),
        (Some(kind), Value::Number(number)) if is_whole_number(kind) => {
            Some(rules.digest_number(to_declared_whole(number)?).into())
        }
        (Some(kind), Value::String(text)) if is_whole_number(kind) => {
            let number: Number = serde_json::from_str(text).ok()?;
            Some(rules.digest_number(to_declared_whole(&number)?).to_string().into())
        }
        _ => None,
    }
}

fn to_whole(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

/// The same, also of `7.0` and `7e0`, which canonical JSON accepts.
fn to_declared_whole(number: &Number) -> Option<i128> {
    to_whole(number).or_else(|| {
        let is_in_range = |value: &f64| value.fract() == 0.0 && value.abs() <= u64::MAX as f64;
        number.as_f64().filter(is_in_range).map(|value| value as i128)
    })
}

fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    lenient_base64::decode_into(text, &mut bytes).map(|()| bytes)
}
