//! Objects that exceed the limit: what identifies their call is kept, the rest is discarded as it arrives.

use bytes::{Buf, BytesMut};

use super::extent::State;
use crate::oversized::MAX_DISCARDED;

/// An incomplete object that exceeds the limit. Its members are kept. Long values become empty ones: `""`,
/// `[]`, `{}`.
#[derive(Debug)]
pub(super) struct OversizedObject {
    /// The start of the object, without blanks between its parts and without what was dropped.
    kept: Vec<u8>,
    /// Where the current key or value starts in `kept`.
    part: usize,
    /// The rest of the current value is dropped.
    is_dropping: bool,
    depth: usize,
    state: State,
    /// Number of bytes received.
    received: usize,
    /// Maximum length of `kept`.
    limit: usize,
}

/// State of an object after some of its bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Its end has not arrived.
    Partial,
    /// It has ended. This is left of it.
    Ended(Vec<u8>),
    /// Its call cannot be identified, or the rest of it is too long to skip.
    Unusable,
}

impl OversizedObject {
    /// Creates the state before the first byte. At most `limit` bytes are kept.
    pub(super) fn new(limit: usize) -> Self {
        let (kept, state) = (Vec::new(), State::default());
        Self { kept, part: 0, is_dropping: false, depth: 0, state, received: 0, limit }
    }

    /// Returns the number of bytes kept.
    pub(super) fn held(&self) -> usize {
        self.kept.len()
    }

    /// Removes what has arrived of the object.
    #[cold]
    pub(super) fn take(&mut self, inbox: &mut BytesMut) -> Progress {
        for (at, byte) in inbox.iter().enumerate() {
            if !self.push(*byte) {
                return Progress::Unusable;
            }
            if self.depth == 0 {
                inbox.advance(at + 1);
                return Progress::Ended(std::mem::take(&mut self.kept));
            }
        }
        self.received += inbox.len();
        inbox.clear();
        if self.received > MAX_DISCARDED { Progress::Unusable } else { Progress::Partial }
    }

    /// Takes the next byte. Returns whether the object can still be used.
    fn push(&mut self, byte: u8) -> bool {
        let was_plain = self.state == State::Plain;
        self.state = self.state.after(byte);
        match (was_plain && self.state == State::Plain, byte) {
            (true, b'{' | b'[') => {
                self.depth += 1;
                let usable = self.keep(byte);
                if self.depth == 1 {
                    self.part = self.kept.len();
                }
                usable
            }
            (true, b'}' | b']') => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth <= 1 { self.end_value(byte) } else { self.keep(byte) }
            }
            (true, b',' | b':') if self.depth == 1 => {
                self.kept.push(byte);
                self.part = self.kept.len();
                self.part <= self.limit
            }
            (true, _) if self.depth == 1 && byte.is_ascii_whitespace() => true,
            (false, b'"') if self.depth == 1 && self.state == State::Plain => self.end_value(byte),
            _ => self.keep(byte),
        }
    }

    /// Keeps the last byte of a value, even if the value was dropped.
    fn end_value(&mut self, byte: u8) -> bool {
        self.is_dropping = false;
        self.kept.push(byte);
        true
    }

    fn keep(&mut self, byte: u8) -> bool {
        if self.is_dropping {
            return true;
        }
        self.kept.push(byte);
        let is_long = self.kept.len() - self.part > self.limit / 4 || self.kept.len() > self.limit;
        !is_long || self.drop_value()
    }

    /// Drops the current value, all but its first byte. Returns `false` if that is not possible: it is a key, a number,
    /// or identifies the call.
    fn drop_value(&mut self) -> bool {
        let (before, value) = self.kept.split_at(self.part);
        let identifies = |key: &[u8]| {
            let start = before.len().checked_sub(key.len());
            start.and_then(|start| before.get(start..)).is_some_and(|end| end.eq_ignore_ascii_case(key))
        };
        if !matches!(value, [b'"' | b'[' | b'{', ..])
            || !before.ends_with(b":")
            || identifies(br#""id":"#)
            || identifies(br#""method":"#)
        {
            return false;
        }
        self.kept.truncate(self.part + 1);
        self.is_dropping = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 200;

    fn take(pieces: &[&[u8]]) -> (Progress, usize) {
        let (mut object, mut inbox) = (OversizedObject::new(LIMIT), BytesMut::new());
        for piece in pieces {
            inbox.extend_from_slice(piece);
            match object.take(&mut inbox) {
                Progress::Partial => assert!(object.held() <= LIMIT + 2 && inbox.is_empty()),
                progress => return (progress, inbox.len()),
            }
        }
        (Progress::Partial, inbox.len())
    }

    /// Returns what is left of an object, which is followed by another one.
    fn take_first(text: &str) -> Progress {
        let bytes = format!("{text}{{}}").into_bytes();
        let (whole, rest) = take(&[&bytes]);
        assert_eq!(rest, 2, "what follows is left: {text}");
        assert_eq!(whole, take(&bytes.chunks(1).collect::<Vec<_>>()).0, "{text}");
        whole
    }

    #[test]
    fn long_values_become_empty_and_short_ones_are_kept() {
        let long = r#"{"}\"":["]\\"]}"#.repeat(20);
        for (object, left) in [
            (
                format!(r#"{{"method":"S.M","params":[{long}],"id":7}}"#),
                r#"{"method":"S.M","params":[],"id":7}"#,
            ),
            (format!(r#"{{ "a" : {{"b":[{long}]}} , "id" : "x y" }}"#), r#"{"a":{},"id":"x y"}"#),
            (
                format!(r#"{{"id":[1, 2],"result":"{}\"\\"}}"#, "x".repeat(999)),
                r#"{"id":[1, 2],"result":""}"#,
            ),
        ] {
            assert_eq!(take_first(&object), Progress::Ended(left.as_bytes().to_vec()), "{object}");
        }
    }

    #[test]
    fn object_whose_call_cannot_be_identified_is_unusable() {
        let long = "x".repeat(LIMIT);
        for object in [
            format!(r#"{{"method":"{long}","id":7}}"#),
            format!(r#"{{"ID":["{long}"]}}"#),
            format!(r#"{{"{long}":1}}"#),
            format!(r#"{{"a":{}}}"#, "1".repeat(LIMIT)),
            format!("{{{}}}", r#""a":1,"#.repeat(LIMIT)),
            format!("{{{}}}", ",".repeat(2 * LIMIT)),
        ] {
            assert_eq!(take(&[object.as_bytes()]).0, Progress::Unusable, "{object}");
        }
    }
}
