use polyrpc_payload::msgpack::{Reader, Token, Writer};
use polyrpc_payload::schema::Kind;

use super::declaration::{Declaration, is_whole_number};
use super::{Action, Redaction};
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
    match rules.action(steps) {
        Action::Drop => {
            reader.skip().ok()?;
            Writer::new(out).nil();
        }
        Action::Hash => {
            let mut token = Reader::new(start);
            reader.skip().ok()?;
            put_hash(rules, declared.map(Declaration::kind), token.next().ok()?, out);
        }
        Action::Keep => match reader.next().ok()? {
            Token::Array(count) => {
                Writer::new(out).array(count);
                let declared = declared.and_then(Declaration::item);
                for index in 0..count {
                    steps.push(Step::Index(index as usize));
                    redact_value(rules, declared, steps, reader, out, depth)?;
                    steps.pop();
                }
            }
            Token::Map(count) => {
                Writer::new(out).map(count);
                for _ in 0..count {
                    redact_entry(rules, declared, steps, reader, out, depth)?;
                }
            }
            _ => out.extend_from_slice(start.get(..start.len() - reader.rest().len())?),
        },
    }
    Some(())
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
    declared: Option<Declaration<'_>>,
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
    let mut steps = steps.to_vec();
    steps.push(Step::Name(&key));
    let declared = declared.and_then(|declared| declared.member(&key));
    redact_value(rules, declared, &mut steps, reader, out, depth)
}

const MAX_DEPTH: usize = 100;
