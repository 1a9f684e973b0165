//! Scanning of JSON texts without building values.

use std::borrow::Cow;

/// Iterator over the values of an array or the members of an object in valid JSON.
pub(crate) struct Parts<'a> {
    rest: &'a [u8],
}

impl<'a> Parts<'a> {
    /// Returns the parts of `text` if it starts with `open`.
    pub(crate) fn new(text: &'a [u8], open: u8) -> Option<Self> {
        // In ASCII, `]` and `}` are two after the bracket they close.
        let rest = text.strip_prefix(&[open])?.strip_suffix(&[open + 2])?;
        Some(Self { rest })
    }

    /// Returns the next member of an object: its key, and its value in its original text.
    pub(crate) fn next_member(&mut self) -> Option<(Cow<'a, str>, &'a [u8])> {
        // A key that cannot be decoded (a lone surrogate) matches none that is looked up.
        let key = string(self.next_value()?).unwrap_or_default();
        Some((key, self.next_value()?))
    }

    /// Returns the next value of an array in its original text.
    pub(crate) fn next_value(&mut self) -> Option<&'a [u8]> {
        let blank = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b',' | b':');
        let start = self.rest.iter().position(|byte| !blank(byte))?;
        let (_, value) = self.rest.split_at(start);
        let (value, rest) = value.split_at(value.len() - after_value(value).len());
        self.rest = rest;
        Some(value)
    }
}

/// Decodes a string; `None` if the value is not a string, or not valid Unicode.
pub(crate) fn string(value: &[u8]) -> Option<Cow<'_, str>> {
    let inner = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    match inner.contains(&b'\\') {
        false => std::str::from_utf8(inner).ok().map(Cow::Borrowed),
        true => serde_json::from_slice(value).ok().map(Cow::Owned),
    }
}

/// Encodes a text as a JSON string.
pub(crate) fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns the text after the value at the start of `text`.
fn after_value(text: &[u8]) -> &[u8] {
    match text {
        [b'"', rest @ ..] => after_string(rest),
        [b'{' | b'[', rest @ ..] => after_brackets(rest),
        plain => {
            let end = plain.iter().position(|byte| byte.is_ascii_whitespace() || matches!(byte, b',' | b':'));
            plain.split_at(end.unwrap_or(plain.len())).1
        }
    }
}

/// Returns the text after the string whose opening quote directly precedes `rest`.
pub(super) fn after_string(mut rest: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
        if rest[at] == b'"' {
            return &rest[at + 1..];
        }
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    &[]
}

/// Returns the text after the object or array whose opening bracket directly precedes `rest`.
fn after_brackets(mut rest: &[u8]) -> &[u8] {
    let mut depth = 1usize;
    while let [byte, after @ ..] = rest {
        rest = match byte {
            b'"' => after_string(after),
            _ => after,
        };
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    rest
}
