//! Frame bodies up to v0.20: MessagePack.

use bytes::{Bytes, BytesMut};

use polyrpc_payload::msgpack::{Reader, Token};

/// Splits a call by name, `[name, arg…]`, into its name and the list of its arguments. The name may be `bin`: the peer
/// parses that as a `std::string`, too (msgpack-c `adaptor/string.hpp`).
///
/// The list's new header overwrites the last bytes of the name, which moves to the front: neither is copied to another
/// buffer. An empty list calls the empty name: the peer treats missing elements as empty.
pub(super) fn cut_name(mut body: BytesMut) -> Option<(Bytes, Bytes)> {
    let mut reader = Reader::new(&body);
    let Ok(Token::Array(count)) = reader.next() else { return None };
    if count == 0 {
        return Some((Bytes::new(), body.freeze()));
    }
    let Ok(Token::Str(name) | Token::Bin(name)) = reader.next() else { return None };
    let length = name.len();
    let arguments = body.len() - reader.rest().len();

    let (head, head_length) = array_head(count - 1);
    // The old header is at least as long as the new one, and the name's own header is one more byte.
    let start = arguments.checked_sub(head_length).filter(|start| *start >= length)?;
    body.copy_within(arguments - length..arguments, 0);
    body[start..arguments].copy_from_slice(&head[..head_length]);
    let arguments = body.split_off(start).freeze();
    body.truncate(length);
    Some((body.freeze(), arguments))
}

/// Parses the topic of a subscription, `[key, token]`, where missing elements are empty: the server identifies it by
/// the concatenation of both (rest_rpc `rpc_server.h`).
pub(super) fn parse_topic(body: &[u8]) -> Option<Bytes> {
    let mut reader = Reader::new(body);
    let Ok(Token::Array(count)) = reader.next() else { return None };
    let mut names = [&[][..]; 2];
    for name in names.iter_mut().take(count as usize) {
        let Ok(Token::Str(text) | Token::Bin(text)) = reader.next() else { return None };
        *name = text;
    }
    is_list(body).then(|| names.concat().into())
}

/// Whether the bytes start with a complete list. The peer ignores what follows it.
pub(super) fn is_list(bytes: &[u8]) -> bool {
    let mut reader = Reader::new(bytes);
    matches!(reader.clone().next(), Ok(Token::Array(_))) && reader.skip().is_ok()
}

/// Whether a struct among these arguments was encoded by member names, as `MSGPACK_DEFINE_MAP` of msgpack-c does, so
/// that the response must be encoded likewise. The first non-empty argument decides.
pub(super) fn is_by_name(arguments: &[u8]) -> bool {
    let mut reader = Reader::new(arguments);
    let Ok(Token::Array(count)) = reader.next() else { return false };
    for _ in 0..count {
        match reader.next() {
            Ok(Token::Map(0)) | Ok(Token::Array(0)) => {}
            Ok(Token::Map(_)) => return matches!(reader.next(), Ok(Token::Str(_))),
            Ok(Token::Array(_)) => {
                return matches!(reader.next(), Ok(Token::Map(1..)))
                    && matches!(reader.next(), Ok(Token::Str(_)));
            }
            Ok(_) => {}
            Err(_) => return false,
        }
    }
    false
}

/// Parses a response: the encoded value, empty if there is none, or the text of a failure. `None`: malformed.
pub(super) fn parse_answer(body: &Bytes) -> Option<Result<Bytes, String>> {
    let mut reader = Reader::new(body);
    let Ok(Token::Array(count @ 1..)) = reader.next() else { return None };
    let Ok(Token::Unsigned(code)) = reader.next() else { return None };
    if code == 0 {
        let value = if count > 1 { body.slice_ref(reader.rest()) } else { Bytes::new() };
        return Some(Ok(value));
    }
    let text = match reader.next() {
        Ok(Token::Str(text)) if count > 1 => String::from_utf8_lossy(text).into_owned(),
        _ => String::new(),
    };
    Some(Err(text))
}

/// Parses a published message, `[code, topic, data]`: returns the topic and the data.
pub(super) fn parse_published(body: &Bytes) -> Option<(Bytes, Bytes)> {
    let mut reader = Reader::new(body);
    let Ok(Token::Array(3..)) = reader.next() else { return None };
    let Ok(Token::Unsigned(0)) = reader.next() else { return None };
    let Ok(Token::Str(topic)) = reader.next() else { return None };
    let Ok(Token::Str(data) | Token::Bin(data)) = reader.next() else { return None };
    Some((body.slice_ref(topic), body.slice_ref(data)))
}

/// Parses a list of arguments: returns their number and their bytes.
pub(super) fn parse_arguments(list: &Bytes) -> Option<(u32, Bytes)> {
    let mut reader = Reader::new(list);
    match reader.next() {
        Ok(Token::Array(count)) => Some((count, list.slice_ref(reader.rest()))),
        _ => None,
    }
}

/// Returns the length of the header of a text with `length` bytes.
pub(super) fn text_head(length: usize) -> usize {
    match length {
        0..=0x1f => 1,
        0x20..=0xff => 2,
        0x100..=0xffff => 3,
        _ => 5,
    }
}

/// Returns the header of a list of `count` arguments, and its length.
fn array_head(count: u32) -> ([u8; LONGEST_HEAD], usize) {
    let [a, b, c, d] = count.to_be_bytes();
    match count {
        0..=0xf => ([0x90 | d, 0, 0, 0, 0], 1),
        0x10..=0xffff => ([0xdc, c, d, 0, 0], 3),
        _ => ([0xdd, a, b, c, d], LONGEST_HEAD),
    }
}

const LONGEST_HEAD: usize = 5;
