use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use polyrpc_payload::lenient_base64;
use polyrpc_payload::schema::{Kind, Message};
use serde_json::{Map, Number, Value};

use super::declaration::{Declaration, is_whole_number};
use super::object::{Content, DYNAMIC_LIST, Object, is_text_field};
use super::{Action, Redaction, protobuf};
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
        Value::Object(members) => redact_object(rules, declared, steps, members),
        Value::Array(items) => {
            let depth = steps.len();
            if declared.is_some_and(Declaration::is_dynamic) {
                steps.extend(DYNAMIC_LIST);
            }
            let item_declared = declared.and_then(Declaration::item);
            let is_undeclared = declared.is_some() && item_declared.is_none();
            for (index, item) in items.iter_mut().enumerate() {
                steps.push(Step::Index(index));
                if is_undeclared || !keeps(rules, item_declared, steps, item) {
                    *item = Value::Null;
                }
                steps.pop();
            }
            steps.truncate(depth);
        }
        _ => {}
    }
}

fn redact_object(
    rules: &Redaction,
    declared: Option<Declaration<'_>>,
    steps: &[Step<'_>],
    members: &mut Map<String, Value>,
) {
    let object = Object::new(declared, || texts(members));
    let names: Vec<String> = members.keys().cloned().collect();
    for name in names {
        let (more, content) = object.member(&name);
        let Some(member) = members.get_mut(&name) else { continue };
        let is_hidden = rules.hides_omitted(steps, &more);
        let mut steps: Vec<Step<'_>> = [steps, &more[..]].concat();
        let keeps = match content {
            _ if is_hidden => false,
            Content::Value(declared) => keeps(rules, declared, &mut steps, member),
            Content::Packed(message) => keeps_packed(rules, message.as_ref(), &steps, member),
            Content::Opaque => rules.keeps_opaque(&steps),
            Content::Undeclared => false,
        };
        if !keeps {
            members.remove(&name);
        }
    }
}

fn texts(members: &Map<String, Value>) -> Vec<(String, String)> {
    let text = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
    members.iter().filter_map(text).collect()
}

/// Applies the rules. Returns whether the value stays.
fn keeps(
    rules: &Redaction,
    declared: Option<Declaration<'_>>,
    steps: &mut Vec<Step<'_>>,
    value: &mut Value,
) -> bool {
    let depth = steps.len();
    let is_dynamic = declared.is_some_and(Declaration::is_dynamic);
    if is_dynamic {
        steps.extend(dynamic_field(value));
    }
    let action = rules.action(steps);
    steps.truncate(depth);
    match action {
        Action::Drop => false,
        Action::Hash if is_dynamic && is_text_message(value) => {
            redact_value(rules, declared, steps, value);
            true
        }
        Action::Hash => put_hash(rules, declared.map(Declaration::kind), value),
        Action::Keep => {
            redact_value(rules, declared, steps, value);
            true
        }
    }
}

/// Returns the step to a value of any type that has no parts.
fn dynamic_field(value: &Value) -> Option<Step<'static>> {
    Some(Step::Optional(match value {
        Value::Null => "null_value",
        Value::Bool(_) => "bool_value",
        Value::Number(_) => "number_value",
        Value::String(_) => "string_value",
        Value::Array(_) | Value::Object(_) => return None,
    }))
}

/// Whether a value of any type is a text that has the form of a `google.protobuf.Value`.
fn is_text_message(value: &Value) -> bool {
    let Some(members) = value.as_object() else { return false };
    members.len() == 1 && members.keys().all(|name| is_text_field(name))
}

/// Applies the rules to the message in an `Any`. Returns whether it stays.
fn keeps_packed(rules: &Redaction, message: Option<&Message>, steps: &[Step<'_>], value: &mut Value) -> bool {
    match rules.action(steps) {
        Action::Drop => false,
        Action::Hash => put_hash(rules, Some(Kind::Bytes), value),
        Action::Keep => {
            let bytes = value.as_str().and_then(decode_base64);
            match bytes.and_then(|bytes| protobuf::redact_packed(rules, message, steps, &bytes)) {
                Some(bytes) => *value = STANDARD.encode(bytes).into(),
                None => return false,
            }
            true
        }
    }
}

/// Replaces a value by its hash. Returns whether it has one.
fn put_hash(rules: &Redaction, kind: Option<Kind>, value: &mut Value) -> bool {
    let hash = hash(rules, kind, value);
    let has_one = hash.is_some();
    *value = hash.unwrap_or_default();
    has_one
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

/// The same, also of `7.0` and `7e0`, which ProtoJSON accepts.
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
