use polyrpc_payload::msgpack::{Reader, Token, Writer};

use super::{Action, Redaction};
use crate::path::Step;

/// Replaces fields of a MessagePack value by nil. `None` if it is malformed.
pub(super) fn redact(rules: &Redaction, bytes: &[u8]) -> Option<Vec<u8>> {
    let (mut reader, mut out) = (Reader::new(bytes), Vec::with_capacity(bytes.len()));
    redact_value(rules, &mut Vec::new(), &mut reader, &mut out, MAX_DEPTH)?;
    reader.is_empty().then_some(out)
}

fn redact_value(
    rules: &Redaction,
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
            let mut writer = Writer::new(out);
            match token.next().ok()? {
                Token::Str(text) => writer.str(&rules.digest_text(text)),
                Token::Bin(bytes) => writer.bin(rules.digest_text(bytes).as_bytes()),
                Token::Unsigned(number) => writer.unsigned(rules.digest_number(number.into()).into()),
                Token::Negative(number) => writer.unsigned(rules.digest_number(number.into()).into()),
                _ => writer.nil(),
            }
        }
        Action::Keep => match reader.next().ok()? {
            Token::Array(count) => {
                Writer::new(out).array(count);
                for index in 0..count {
                    steps.push(Step::Index(index as usize));
                    redact_value(rules, steps, reader, out, depth)?;
                    steps.pop();
                }
            }
            Token::Map(count) => {
                Writer::new(out).map(count);
                for _ in 0..count {
                    redact_entry(rules, steps, reader, out, depth)?;
                }
            }
            _ => out.extend_from_slice(start.get(..start.len() - reader.rest().len())?),
        },
    }
    Some(())
}

fn redact_entry(
    rules: &Redaction,
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
    redact_value(rules, &mut steps, reader, out, depth)
}

const MAX_DEPTH: usize = 100;
