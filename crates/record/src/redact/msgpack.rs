use polyrpc_payload::msgpack::{Reader, Token, Writer};
use polyrpc_payload::schema::{Kind, Message};

use super::declaration::{Declaration, is_whole_number};
use super::object::{Content, DYNAMIC_LIST, Object, is_text_field};
use super::{Action, Redaction, protobuf};
use crate::path::Step;

/// Replaces fields of a MessagePack value by nil. `None` if it is malformed.
pub(super) fn redact(rules: &Redaction, declared: Option<Declaration<'_>>, bytes: &[u8]) -> Option<Vec<u8>> {
    let (mut reader, mut out) = (Reader::new(bytes), Vec::with_capacity(bytes.len()));
    redact_value(rules, declared, &mut Vec::new(), &mut reader, &mut out, MAX_DEPTH)?;
    reader.is_empty().then_some(out)
}

fn redact_value(
    rules: &Redaction,
    declared: Option<Declaration<'_>>,
    steps: &mut Vec<Step<'_>>,
    reader: &mut Reader<'_>,
    out: &mut Vec<u8>,
    depth: usize,
) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    let start = reader.rest();
    let is_dynamic = declared.is_some_and(Declaration::is_dynamic);
    let above = steps.len();
    if is_dynamic {
        steps.extend(dynamic_field(Reader::new(start).next().ok()?));
    }
    let action = rules.action(steps);
    steps.truncate(above);
    match action {
        Action::Drop => put_nil(reader, out)?,
        Action::Hash if !(is_dynamic && is_text_message(start)) => {
            let mut token = Reader::new(start);
            reader.skip().ok()?;
            put_hash(rules, declared.map(Declaration::kind), token.next().ok()?, out);
        }
        Action::Hash | Action::Keep => match reader.next().ok()? {
            Token::Array(count) => {
                Writer::new(out).array(count);
                if is_dynamic {
                    steps.extend(DYNAMIC_LIST);
                }
                let item_declared = declared.and_then(Declaration::item);
                let is_undeclared = declared.is_some() && item_declared.is_none();
                for index in 0..count {
                    steps.push(Step::Index(index as usize));
                    match is_undeclared {
                        true => put_nil(reader, out)?,
                        false => redact_value(rules, item_declared, steps, reader, out, depth)?,
                    }
                    steps.pop();
                }
                steps.truncate(above);
            }
            Token::Map(count) => {
                Writer::new(out).map(count);
                let object = Object::new(declared, || texts(reader.clone(), count));
                for _ in 0..count {
                    redact_entry(rules, &object, steps, reader, out, depth)?;
                }
            }
            _ => out.extend_from_slice(start.get(..start.len() - reader.rest().len())?),
        },
    }
    Some(())
}

/// Replaces a value.
fn put_nil(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Option<()> {
    reader.skip().ok()?;
    Writer::new(out).nil();
    Some(())
}

/// Returns the step to a value of any type that has no parts.
fn dynamic_field(value: Token<'_>) -> Option<Step<'static>> {
    Some(Step::Optional(match value {
        Token::Nil => "null_value",
        Token::Bool(_) => "bool_value",
        Token::Str(_) | Token::Bin(_) => "string_value",
        Token::Array(_) | Token::Map(_) => return None,
        Token::Unsigned(_) | Token::Negative(_) | Token::F32(_) | Token::F64(_) | Token::Ext(..) => {
            "number_value"
        }
    }))
}

/// Whether a value of any type is a text that has the form of a `google.protobuf.Value`.
fn is_text_message(bytes: &[u8]) -> bool {
    let mut reader = Reader::new(bytes);
    matches!(reader.next(), Ok(Token::Map(1)))
        && matches!(reader.next(), Ok(Token::Str(name)) if std::str::from_utf8(name).is_ok_and(is_text_field))
}

/// Returns the entries of a map whose keys and values are texts.
fn texts(mut reader: Reader<'_>, count: u32) -> Vec<(String, String)> {
    let mut texts = Vec::new();
    let next = |reader: &mut Reader<'_>| {
        let text = match Reader::new(reader.rest()).next().ok()? {
            Token::Str(text) => std::str::from_utf8(text).ok().map(str::to_owned),
            _ => None,
        };
        reader.skip().ok()?;
        Some(text)
    };
    for _ in 0..count {
        let (Some(key), Some(value)) = (next(&mut reader), next(&mut reader)) else { break };
        texts.extend(key.zip(value));
    }
    texts
}

/// Writes the hash of a value that is a text, bytes or a whole number, also by its declaration if it has one.
fn put_hash(rules: &Redaction, kind: Option<Kind>, value: Token<'_>, out: &mut Vec<u8>) {
    let is_text = kind.is_none_or(|kind| matches!(kind, Kind::String | Kind::Bytes));
    let is_whole = kind.is_none_or(is_whole_number);
    let mut writer = Writer::new(out);
    match value {
        Token::Str(text) if is_text => writer.str(&rules.digest_text(text)),
        Token::Bin(bytes) if is_text => writer.bin(rules.digest_text(bytes).as_bytes()),
        Token::Unsigned(number) if is_whole => writer.unsigned(rules.digest_number(number.into()).into()),
        Token::Negative(number) if is_whole => writer.unsigned(rules.digest_number(number.into()).into()),
        _ => writer.nil(),
    }
}

fn redact_entry(
    rules: &Redaction,
    object: &Object<'_>,
    steps: &[Step<'_>],
    reader: &mut Reader<'_>,
    out: &mut Vec<u8>,
    depth: usize,
) -> Option<()> {
    let start = reader.rest();
    let key = match Reader::new(start).next().ok()? {
        Token::Str(text) => std::str::from_utf8(text).ok()?.to_owned(),
        Token::Unsigned(number) => number.to_string(),
        Token::Negative(number) => number.to_string(),
        Token::Bool(truth) => truth.to_string(),
        // No path can name it.
        _ => return None,
    };
    reader.skip().ok()?;
    out.extend_from_slice(start.get(..start.len() - reader.rest().len())?);
    let (more, content) = object.member(&key);
    let is_hidden = rules.hides_omitted(steps, &more);
    let mut steps: Vec<Step<'_>> = [steps, &more[..]].concat();
    match content {
        _ if is_hidden => put_nil(reader, out),
        Content::Value(declared) => redact_value(rules, declared, &mut steps, reader, out, depth),
        Content::Packed(message) => redact_packed(rules, message.as_ref(), &steps, reader, out),
        Content::Opaque if rules.keeps_opaque(&steps) => {
            let start = reader.rest();
            reader.skip().ok()?;
            out.extend_from_slice(start.get(..start.len() - reader.rest().len())?);
            Some(())
        }
        Content::Opaque | Content::Undeclared => put_nil(reader, out),
    }
}

/// Writes the message in an `Any` as far as the rules keep it.
fn redact_packed(
    rules: &Redaction,
    message: Option<&Message>,
    steps: &[Step<'_>],
    reader: &mut Reader<'_>,
    out: &mut Vec<u8>,
) -> Option<()> {
    let action = rules.action(steps);
    let (Token::Bin(bytes) | Token::Str(bytes)) = Reader::new(reader.rest()).next().ok()? else {
        return put_nil(reader, out);
    };
    reader.skip().ok()?;
    let redacted = match action {
        Action::Drop => None,
        Action::Hash => Some(rules.digest_text(bytes).into_bytes()),
        Action::Keep => protobuf::redact_packed(rules, message, steps, bytes),
    };
    match redacted {
        Some(bytes) => Writer::new(out).bin(&bytes),
        None => Writer::new(out).nil(),
    }
    Some(())
}

const MAX_DEPTH: usize = 100;
