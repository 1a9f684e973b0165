//! Formatting of JSON. The text is reformatted without being parsed into values, so that numbers and the order of
//! members are preserved.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::Error;

/// Returns the text without surrounding space.
///
/// # Errors
///
/// If it is not JSON.
pub fn check(bytes: &[u8]) -> Result<&str, serde_json::Error> {
    serde_json::from_slice::<IgnoredAny>(bytes)?;
    // Valid JSON is UTF-8 outside of its strings, which the reader above skips unchecked.
    std::str::from_utf8(bytes).map(str::trim).map_err(serde::de::Error::custom)
}

/// Checks that no object has a name twice: one of the values would be lost.
///
/// # Errors
///
/// If it is not JSON, or an object has a name twice.
pub fn check_names(bytes: &[u8]) -> Result<(), serde_json::Error> {
    serde_json::from_slice::<UniqueNames>(bytes).map(drop)
}

/// Any JSON value whose objects have no repeated name.
struct UniqueNames;

impl<'de> Deserialize<'de> for UniqueNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for UniqueNames {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = members.next_key::<Cow<'de, str>>()? {
            if names.contains(&name) {
                return Err(A::Error::custom(format_args!("the name `{name}` occurs twice")));
            }
            names.insert(name);
            members.next_value::<Self>()?;
        }
        Ok(self)
    }
}

/// Formats valid JSON over several lines.
pub fn pretty(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let mut depth = 0;
    let mut rest = json.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        match c {
            '"' => {
                let end = string_end(json, at);
                out.push_str(&json[at..end]);
                while rest.next_if(|(at, _)| *at < end).is_some() {}
            }
            '{' | '[' => {
                out.push(c);
                while rest.next_if(|(_, c)| c.is_ascii_whitespace()).is_some() {}
                match rest.next_if(|(_, next)| matches!(next, '}' | ']')) {
                    Some((_, close)) => out.push(close),
                    None => {
                        depth += 1;
                        new_line(&mut out, depth);
                    }
                }
            }
            '}' | ']' => {
                depth -= 1;
                new_line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => out.push(c),
        }
    }
    out
}

/// Returns the error of an argument that is not JSON, with the position.
pub fn no_json(error: serde_json::Error) -> Error {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let reason = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
    // Some errors have no position.
    let location = if line > 0 { format!("line {line}, column {column}: ") } else { String::new() };
    let wrong = Error::new(format!("the argument is not JSON: {location}{reason}"));
    // The error of a word that begins like `null`, `true` or `false` is after its first letter.
    let is_word =
        line == 1 && (reason == "expected value" && column == 1 || reason == "expected ident" && column == 2);
    match is_word {
        true => wrong.with_hint("a string needs quotes in JSON: '\"hello\"'"),
        false => wrong,
    }
}

/// Returns the error of an argument that is not UTF-8.
pub(crate) fn not_utf8() -> Error {
    Error::new("the argument is not JSON: it is not UTF-8")
}

/// Returns the error of a reply that is malformed.
pub fn unreadable(error: &dyn std::fmt::Display) -> Error {
    Error::new(format!("the reply cannot be read: {error}"))
}

/// The end of the string that starts at `start`.
pub(crate) fn string_end(json: &str, start: usize) -> usize {
    let mut escaped = false;
    for (at, byte) in json.bytes().enumerate().skip(start + 1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    json.len()
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_that_occurs_twice_in_an_object_is_an_error() {
        for valid in [r#"{"a":1,"b":{"a":[1.5,-1,18446744073709551615,"x",null,true]}}"#, "[]", "7", r#""a""#]
        {
            assert!(check_names(valid.as_bytes()).is_ok(), "{valid}");
        }
        let wrong = check_names(br#"{"a":1,"b":[{"x":1,"\u0078":2}]}"#).unwrap_err();
        assert!(wrong.to_string().starts_with("the name `x` occurs twice at line 1"), "{wrong}");
    }

    #[test]
    fn only_a_word_without_quotes_gets_the_hint_to_quote_it() {
        let hint = |text: &[u8]| no_json(check_names(text).unwrap_err()).hint().map(str::to_owned);
        for word in [&b"hello"[..], b"nope", b"tom"] {
            assert!(hint(word).is_some_and(|hint| hint.contains("quotes")), "{word:?}");
        }
        for other in [&br#"{"message":"#[..], br#"{"a":1} {"b":2}"#, b"\"\xff\"", b"[1,]"] {
            assert_eq!(hint(other), None, "{other:?}");
        }
    }

    #[test]
    fn members_are_printed_one_per_line_in_order() {
        let json = r#"{"z":1,"a":[1, 2,{}],"s":"x,{\"}\\","e":[ ],"n":12345678901234567890.10}"#;
        let lines = [
            "{",
            r#"  "z": 1,"#,
            r#"  "a": ["#,
            "    1,",
            "    2,",
            "    {}",
            "  ],",
            r#"  "s": "x,{\"}\\","#,
            r#"  "e": [],"#,
            r#"  "n": 12345678901234567890.10"#,
            "}",
        ];
        assert_eq!(pretty(json), lines.join("\n"));
        assert_eq!(pretty(r#""héllo""#), r#""héllo""#);
    }

    #[test]
    fn invalid_json_is_rejected() {
        assert_eq!(check(b" 1 ").unwrap(), "1");
        for wrong in [&b""[..], b"{", b"hello", b"\"\xff\""] {
            assert!(check(wrong).is_err(), "{wrong:?}");
        }
    }
}
