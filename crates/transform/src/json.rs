//! Formatting of JSON. The text is reformatted without being parsed into values, so that numbers and the order of
//! members are preserved.

use serde::de::IgnoredAny;

use crate::Error;

/// Returns the text without surrounding space.
///
/// # Errors
///
/// If it is not JSON.
pub fn checked(bytes: &[u8]) -> Result<&str, serde_json::Error> {
    serde_json::from_slice::<IgnoredAny>(bytes)?;
    // Valid JSON is UTF-8 outside of its strings, which the reader above skips unchecked.
    std::str::from_utf8(bytes).map(str::trim).map_err(serde::de::Error::custom)
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
    Error::new(format!("the argument is not JSON: line {line}, column {column}: {reason}"))
        .with_hint("a string needs quotes in JSON: '\"hello\"'")
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
        assert_eq!(checked(b" 1 ").unwrap(), "1");
        for wrong in [&b""[..], b"{", b"hello", b"\"\xff\""] {
            assert!(checked(wrong).is_err(), "{wrong:?}");
        }
    }
}
