use std::borrow::Cow;

use super::super::parse::{self, Parser, RemainingItems, Token};
use super::well_known;
use crate::schema::{MessageType, WellKnown};
use crate::transcode::Error;

/// JSON parser that is as strict as RapidJSON and uses its error texts (`rapidjson/error/en.h`), since brpc's callers
/// know those.
#[derive(Clone)]
pub(super) struct Source<'a> {
    text: &'a str,
    at: usize,
    /// Name of the message, which brpc adds to the error text.
    root: &'a str,
}

/// A list or an object that has just started.
const BEGUN: RemainingItems = RemainingItems(0);

impl<'a> Source<'a> {
    pub(super) fn new(bytes: &'a [u8], root: &'a str) -> Result<Self, Error> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Self { text, at: 0, root }),
            Err(_) => Err(Self { text: "", at: 0, root }.wrong("Invalid encoding in string.")),
        }
    }

    #[cold]
    fn wrong(&self, reason: &str) -> Error {
        Error::new(format!("Invalid json: {reason} [{}]", self.root))
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
        self.peek()
    }

    fn word(&mut self, word: &str, token: Token<'a>) -> Result<Token<'a>, Error> {
        match self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            true => {
                self.at += word.len();
                Ok(token)
            }
            false => Err(self.wrong("Invalid value.")),
        }
    }

    /// Parses a string whose opening quotation mark was just read.
    fn string(&mut self) -> Result<Cow<'a, str>, Error> {
        let start = self.at;
        self.pass_plain();
        let plain = self.text.get(start..self.at).unwrap_or_default();
        if self.peek() == Some(b'"') {
            self.at += 1;
            return Ok(Cow::Borrowed(plain));
        }
        self.string_with_escapes(plain.to_owned()).map(Cow::Owned)
    }

    fn string_with_escapes(&mut self, mut text: String) -> Result<String, Error> {
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => {
                    self.at += 1;
                    text.push(self.escape()?);
                }
                Some(_) => return Err(self.wrong("Invalid escape character in string.")),
                None => return Err(self.wrong("Missing a closing quotation mark in string.")),
            }
            let start = self.at;
            self.pass_plain();
            text.push_str(self.text.get(start..self.at).unwrap_or_default());
        }
    }

    /// Skips unescaped characters.
    fn pass_plain(&mut self) {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let plain = rest.iter().position(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\');
        self.at += plain.unwrap_or(rest.len());
    }

    fn escape(&mut self) -> Result<char, Error> {
        let escape = self.peek();
        self.at += 1;
        Ok(match escape {
            Some(c @ (b'"' | b'\\' | b'/')) => c.into(),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.wrong("Invalid escape character in string.")),
        })
    }

    fn unicode_escape(&mut self) -> Result<char, Error> {
        let first = self.four_digits()?;
        if let Some(c) = char::from_u32(first) {
            return Ok(c);
        }
        let is_pair = self.text.get(self.at..).is_some_and(|rest| rest.starts_with("\\u"));
        if is_pair && first < 0xdc00 {
            self.at += 2;
            let second = self.four_digits()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x10000 + ((first - 0xd800) << 10 | (second - 0xdc00));
                return char::from_u32(code).ok_or_else(|| self.wrong(SURROGATE));
            }
        }
        Err(self.wrong(SURROGATE))
    }

    fn four_digits(&mut self) -> Result<u32, Error> {
        let digits = self.text.get(self.at..self.at + 4);
        let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        self.at += 4;
        code.ok_or_else(|| self.wrong("Incorrect hex digit after \\u escape in string."))
    }

    fn number(&mut self) -> Result<Token<'a>, Error> {
        let start = self.at;
        let rest = self.text.get(start..).unwrap_or_default();
        let (length, is_integer) = number_length(rest).map_err(|reason| self.wrong(reason))?;
        self.at = start + length;
        let text = rest.get(..length).unwrap_or_default();
        number(text, is_integer).ok_or_else(|| self.wrong("Number too big to be stored in double."))
    }

    /// Advances to the next item or to the end of a list or an object.
    fn next(&mut self, left: &mut RemainingItems, end: u8, missing: &str) -> Result<bool, Error> {
        let first = std::mem::replace(left, RemainingItems(1)) == BEGUN;
        match self.skip_blanks() {
            Some(byte) if byte == end => {
                self.at += 1;
                Ok(false)
            }
            Some(b',') if !first => {
                self.at += 1;
                Ok(true)
            }
            _ if first => Ok(true),
            _ => Err(self.wrong(missing)),
        }
    }
}

impl<'a> parse::Source<'a> for Source<'a> {
    const BASE64: bool = true;

    fn value(&mut self) -> Result<Token<'a>, Error> {
        match self.skip_blanks() {
            Some(b'"') => {
                self.at += 1;
                self.string().map(Token::Text)
            }
            Some(b'{') => {
                self.at += 1;
                Ok(Token::Object(BEGUN))
            }
            Some(b'[') => {
                self.at += 1;
                Ok(Token::List(BEGUN))
            }
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Token::Bool(true)),
            Some(b'f') => self.word("false", Token::Bool(false)),
            Some(b'n') => self.word("null", Token::Null),
            None if self.text.trim_ascii().is_empty() => Err(self.wrong("The document is empty.")),
            _ => Err(self.wrong("Invalid value.")),
        }
    }

    fn item(&mut self, left: &mut RemainingItems) -> Result<bool, Error> {
        self.next(left, b']', "Missing a comma or ] after an array element.")
    }

    fn key(&mut self, left: &mut RemainingItems) -> Result<Option<Token<'a>>, Error> {
        if !self.next(left, b'}', "Missing a comma or } after an object member.")? {
            return Ok(None);
        }
        if self.skip_blanks() != Some(b'"') {
            return Err(self.wrong("Missing a name for object member."));
        }
        self.at += 1;
        let key = self.string()?;
        if self.skip_blanks() != Some(b':') {
            return Err(self.wrong("Missing a colon after a name of object member."));
        }
        self.at += 1;
        Ok(Some(Token::Text(key)))
    }

    fn end(&mut self) -> Result<(), Error> {
        match self.skip_blanks() {
            None => Ok(()),
            Some(_) => Err(self.wrong("The document root must not follow by other values.")),
        }
    }

    fn number(text: &str) -> Option<Token<'_>> {
        let (length, is_integer) = number_length(text).ok()?;
        if length == text.len() { number(text, is_integer) } else { None }
    }

    fn special<'p>(
        parser: &mut Parser<'p, Self>,
        kind: WellKnown,
        message: &'p MessageType,
        token: Token<'a>,
        depth: usize,
    ) -> Result<(), Error> {
        well_known::parse(parser, kind, message, token, depth)
    }
}

/// Returns the length of the number at the start of a text, and whether it is written as an integer.
fn number_length(text: &str) -> Result<(usize, bool), &'static str> {
    let bytes = text.as_bytes();
    let digits = |from: usize| {
        let rest = bytes.get(from..).unwrap_or_default();
        rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    let mut at = usize::from(bytes.first() == Some(&b'-'));
    at += match (bytes.get(at), digits(at)) {
        (Some(b'0'), _) => 1,
        (_, 0) => return Err("Invalid value."),
        (_, count) => count,
    };
    let whole = at;
    if bytes.get(at) == Some(&b'.') {
        match digits(at + 1) {
            0 => return Err("Miss fraction part in number."),
            count => at += 1 + count,
        }
    }
    if let Some(b'e' | b'E') = bytes.get(at) {
        let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        match digits(at + 1 + sign) {
            0 => return Err("Miss exponent in number."),
            count => at += 1 + sign + count,
        }
    }
    Ok((at, at == whole))
}

/// Parses a number, with integers exact in 64 bits; `None` if it is too large for a double.
fn number(text: &str, is_integer: bool) -> Option<Token<'_>> {
    // As an integer, minus zero would lose its sign.
    if is_integer && text != "-0" {
        if let Ok(value) = text.parse() {
            return Some(Token::Int(value));
        }
        if let Ok(value) = text.parse() {
            return Some(Token::Uint(value));
        }
    }
    let value: f64 = text.parse().ok()?;
    value.is_finite().then_some(Token::Float(value, text))
}

const SURROGATE: &str = "The surrogate pair in string is invalid.";
