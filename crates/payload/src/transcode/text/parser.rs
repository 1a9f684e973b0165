use std::borrow::Cow;

use polyrpc_core::protobuf::{WireType, put_tag};

use super::super::binary::{close, close_message, open, open_message, put_bytes, put_integer};
use crate::schema::{Field, FieldSet, Kind, Message, MessageType, Pool, Spelling, WellKnown};
use crate::transcode::{Error, MAX_DEPTH};

pub(in super::super) fn parse(message: &Message, text: &[u8]) -> Result<Vec<u8>, Error> {
    let out = Vec::with_capacity(text.len());
    let mut parser = Parser { pool: message.pool(), text, at: 0, out };
    parser.blanks();
    parser.fields(message, None, MAX_DEPTH)?;
    Ok(parser.out)
}

/// Converts the text format to the binary format. After each token the following blanks and comments are skipped, so
/// that `at` is always at the next token.
struct Parser<'p, 'a> {
    pool: &'p Pool,
    text: &'a [u8],
    at: usize,
    out: Vec<u8>,
}

impl<'p, 'a> Parser<'p, 'a> {
    /// Parses fields up to `end`, which is skipped, or to the end of the text.
    fn fields(&mut self, message: &'p MessageType, end: Option<u8>, depth: usize) -> Result<(), Error> {
        let mut seen = SeenFields::default();
        let mut hint = 0;
        loop {
            match (self.peek(), end) {
                (None, None) => return Ok(()),
                (Some(byte), Some(end)) if byte == end => {
                    self.bump();
                    return Ok(());
                }
                (Some(b'['), _) if message.well_known() == Some(WellKnown::Any) => self.any(depth)?,
                (Some(_), _) => hint = self.field(message, &mut seen, hint, depth)? + 1,
                (None, Some(_)) => return Err(self.wrong("the text ends within a message")),
            }
            if let Some(b',' | b';') = self.peek() {
                self.bump();
            }
        }
    }

    /// Parses one field and returns its index.
    fn field(
        &mut self,
        message: &'p MessageType,
        seen: &mut SeenFields,
        hint: usize,
        depth: usize,
    ) -> Result<usize, Error> {
        let name = self.name()?;
        let index = message.index_spelled(Spelling::Text, &name, hint);
        let Some((index, field)) = index.and_then(|i| Some((i, message.fields().get(i as usize)?))) else {
            let of = message.full_name();
            return Err(self.wrong(&format!("Message type \"{of}\" has no field named \"{name}\".")));
        };
        self.check_single(field, index, seen)?;
        let colon = self.eat(b':');
        if !colon && field.kind().message().is_none() {
            return Err(self.wrong("Expected \":\"."));
        }
        if field.is_repeated() && self.eat(b'[') {
            self.list(field, depth)?;
        } else {
            self.value(field, depth)?;
        }
        Ok(index as usize)
    }

    fn check_single(&self, field: &Field, index: u32, seen: &mut SeenFields) -> Result<(), Error> {
        let name = field.name();
        if !field.is_repeated() && !seen.fields.insert(index) {
            return Err(self.wrong(&format!("Non-repeated field \"{name}\" is specified multiple times.")));
        }
        if field.oneof().is_some_and(|oneof| !seen.oneofs.insert(oneof as u32)) {
            return Err(
                self.wrong(&format!("Field \"{name}\" is specified along with another of its oneof."))
            );
        }
        Ok(())
    }

    /// Parses a field's name, or an extension's with its brackets.
    fn name(&mut self) -> Result<Cow<'a, str>, Error> {
        if self.peek() != Some(b'[') {
            return self.identifier().map(Cow::Borrowed);
        }
        self.bracketed_name().map(Cow::Owned)
    }

    /// Returns the text between brackets, including them, without blanks.
    fn bracketed_name(&mut self) -> Result<String, Error> {
        self.bump();
        let mut name = String::from("[");
        loop {
            match self.peek() {
                Some(b']') => {
                    self.bump();
                    name.push(']');
                    return Ok(name);
                }
                Some(byte) if byte.is_ascii_alphanumeric() || b"_.-/%~".contains(&byte) => {
                    self.bump();
                    name.push(byte.into());
                }
                _ => return Err(self.wrong("Expected a name in brackets.")),
            }
        }
    }

    /// Parses `[type.googleapis.com/pkg.Name] { … }` in place of an `Any`'s own fields.
    fn any(&mut self, depth: usize) -> Result<(), Error> {
        let bracketed = self.bracketed_name()?;
        let url = bracketed.trim_matches(['[', ']']);
        let message = url.rsplit_once('/').and_then(|(_, name)| self.pool.message_id(name));
        let Some(message) = message.map(|id| self.pool.message_type(id)) else {
            return Err(self.wrong(&format!("unknown type {url}")));
        };
        put_tag(&mut self.out, 1, WireType::Bytes);
        put_bytes(&mut self.out, url.as_bytes());
        put_tag(&mut self.out, 2, WireType::Bytes);
        let mark = open(&mut self.out);
        self.eat(b':');
        self.message(message, depth)?;
        close(&mut self.out, mark);
        Ok(())
    }

    fn list(&mut self, field: &'p Field, depth: usize) -> Result<(), Error> {
        if self.eat(b']') {
            return Ok(());
        }
        loop {
            self.value(field, depth)?;
            if self.eat(b']') {
                return Ok(());
            }
            if !self.eat(b',') {
                return Err(self.wrong("Expected \",\" or \"]\"."));
            }
        }
    }

    fn value(&mut self, field: &'p Field, depth: usize) -> Result<(), Error> {
        let (number, kind) = (field.number(), field.kind());
        if let Some(id) = kind.message() {
            let nested = open_message(&mut self.out, number, kind);
            // A map's entry does not add a nesting level.
            let depth = depth + usize::from(field.is_map());
            self.message(self.pool.message_type(id), depth)?;
            close_message(&mut self.out, nested);
            return Ok(());
        }
        put_tag(&mut self.out, number, kind.wire_type());
        match kind {
            Kind::String | Kind::Bytes => self.string(field),
            Kind::Float => {
                let value: f32 = self.float(|text| text.parse().ok())?;
                self.out.extend_from_slice(&value.to_le_bytes());
                Ok(())
            }
            Kind::Double => {
                let value: f64 = self.float(|text| text.parse().ok())?;
                self.out.extend_from_slice(&value.to_le_bytes());
                Ok(())
            }
            Kind::Bool => self.bool(),
            Kind::Enum(_) if self.peek().is_some_and(is_letter) => self.enumeration(field),
            kind => self.integer(field, kind),
        }
    }

    fn message(&mut self, message: &'p MessageType, depth: usize) -> Result<(), Error> {
        let depth = depth.checked_sub(1).ok_or_else(Error::too_deep)?;
        let end = match self.peek() {
            Some(b'{') => b'}',
            Some(b'<') => b'>',
            _ => return Err(self.wrong("Expected \"{\".")),
        };
        self.bump();
        self.fields(message, Some(end), depth)
    }

    fn bool(&mut self) -> Result<(), Error> {
        let value = match self.word() {
            b"true" | b"True" | b"t" | b"1" => 1,
            b"false" | b"False" | b"f" | b"0" => 0,
            _ => return Err(self.wrong("Expected \"true\" or \"false\".")),
        };
        self.out.push(value);
        Ok(())
    }

    fn enumeration(&mut self, field: &Field) -> Result<(), Error> {
        let Kind::Enum(id) = field.kind() else { return Err(self.wrong("Expected an enum.")) };
        let name = self.identifier()?;
        match self.pool.enum_type(id).number(name) {
            Some(number) => self.put(field.kind(), number.into()),
            None => Err(self
                .wrong(&format!("Unknown enumeration value of \"{name}\" for field \"{}\".", field.name()))),
        }
    }

    fn integer(&mut self, field: &Field, kind: Kind) -> Result<(), Error> {
        let negative = self.eat(b'-');
        let word = self.word();
        let text = std::str::from_utf8(word).unwrap_or_default();
        let value = match text.as_bytes() {
            [b'0', b'x' | b'X', ..] => parse_digits(text.get(2..).unwrap_or_default(), 16),
            [b'0', _, ..] => parse_digits(text, 8),
            _ => parse_digits(text, 10),
        };
        let value = value.ok_or_else(|| self.wrong("Expected integer."))?;
        let value = if negative { -i128::from(value) } else { value.into() };
        if let (Kind::Enum(id), Ok(number)) = (kind, i32::try_from(value)) {
            let of = self.pool.enum_type(id);
            if of.is_closed() && of.name(number).is_none() {
                let name = field.name();
                return Err(
                    self.wrong(&format!("Unknown enumeration value of \"{number}\" for field \"{name}\"."))
                );
            }
        }
        self.put(kind, value)
    }

    fn put(&mut self, kind: Kind, value: i128) -> Result<(), Error> {
        put_integer(&mut self.out, kind, value)
            .ok_or_else(|| self.wrong(&format!("Integer out of range ({value})")))
    }

    fn float<F>(&mut self, parse: impl Fn(&str) -> Option<F>) -> Result<F, Error> {
        let negative = self.eat(b'-');
        let word = std::str::from_utf8(self.word()).unwrap_or_default();
        let is_number = word.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        let digits = match word.strip_suffix(['f', 'F']) {
            Some(digits) if is_number => digits,
            _ => word,
        };
        let octal = word.len() > 1 && word.starts_with('0') && word.bytes().all(|byte| byte.is_ascii_digit());
        let is_word = ["inf", "infinity", "nan"].iter().any(|name| name.eq_ignore_ascii_case(word));
        let value = match (is_number && !octal) || is_word {
            true if negative => parse(&format!("-{digits}")),
            true => parse(digits),
            false => None,
        };
        value.ok_or_else(|| self.wrong("Expected double."))
    }

    /// Parses one or more adjacent literals.
    fn string(&mut self, field: &Field) -> Result<(), Error> {
        let mark = open(&mut self.out);
        let start = self.out.len();
        let Some(b'"' | b'\'') = self.peek() else { return Err(self.wrong("Expected string.")) };
        while let Some(quote @ (b'"' | b'\'')) = self.peek() {
            self.literal(quote)?;
        }
        let written = self.out.get(start..).unwrap_or_default();
        if field.is_utf8_checked() && std::str::from_utf8(written).is_err() {
            return Err(self.wrong(&format!("string field {} is not UTF-8", field.full_name())));
        }
        close(&mut self.out, mark);
        Ok(())
    }

    fn literal(&mut self, quote: u8) -> Result<(), Error> {
        self.at += 1;
        loop {
            let byte = self.peek();
            self.at += 1;
            match byte {
                Some(byte) if byte == quote => break,
                Some(b'\\') => self.escape()?,
                None | Some(b'\n') => return Err(self.wrong("String literals cannot cross line boundaries.")),
                Some(byte) => self.out.push(byte),
            }
        }
        self.blanks();
        Ok(())
    }

    fn escape(&mut self) -> Result<(), Error> {
        let escape = self.peek();
        self.at += 1;
        let byte = match escape {
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'a') => 0x07,
            Some(b'b') => 0x08,
            Some(b'v') => 0x0b,
            Some(b'f') => 0x0c,
            Some(c @ (b'\\' | b'\'' | b'"' | b'?')) => c,
            Some(b'0'..=b'7') => {
                self.at -= 1;
                self.digits(1, 3, 8)? as u8
            }
            Some(b'x' | b'X') => self.digits(1, 2, 16)? as u8,
            Some(b'u') => return self.unicode(4),
            Some(b'U') => return self.unicode(8),
            _ => return Err(self.wrong("Invalid escape sequence in string literal.")),
        };
        self.out.push(byte);
        Ok(())
    }

    fn unicode(&mut self, length: usize) -> Result<(), Error> {
        let mut code = self.digits(length, length, 16)?;
        if (0xd800..0xdc00).contains(&code) && self.text.get(self.at..).is_some_and(|r| r.starts_with(b"\\u"))
        {
            self.at += 2;
            let low = self.digits(4, 4, 16)?;
            if (0xdc00..0xe000).contains(&low) {
                code = 0x10000 + ((code - 0xd800) << 10 | (low - 0xdc00));
            }
        }
        let c =
            char::from_u32(code).ok_or_else(|| self.wrong("Invalid escape sequence in string literal."))?;
        self.out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    fn digits(&mut self, min: usize, max: usize, radix: u32) -> Result<u32, Error> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let count = rest.iter().take(max).take_while(|byte| char::from(**byte).is_digit(radix)).count();
        let digits = rest.get(..count).and_then(|digits| std::str::from_utf8(digits).ok());
        self.at += count;
        match digits.and_then(|digits| u32::from_str_radix(digits, radix).ok()) {
            Some(value) if count >= min => Ok(value),
            _ => Err(self.wrong("Invalid escape sequence in string literal.")),
        }
    }

    fn identifier(&mut self) -> Result<&'a str, Error> {
        let is_identifier = self.peek().is_some_and(is_letter);
        let word = self.word();
        match std::str::from_utf8(word) {
            Ok(word) if is_identifier && word.bytes().all(is_letter_or_digit) => Ok(word),
            _ => Err(self.wrong("Expected identifier.")),
        }
    }

    /// Parses a name or an unsigned number.
    fn word(&mut self) -> &'a [u8] {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let is_number = rest.first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b'.');
        let mut length = 0;
        while let Some(&byte) = rest.get(length) {
            let exponent = length > 0 && matches!(rest.get(length - 1), Some(b'e' | b'E')) && !is_hex(rest);
            let goes_on = is_letter_or_digit(byte)
                || is_number && (byte == b'.' || exponent && matches!(byte, b'+' | b'-'));
            if !goes_on {
                break;
            }
            length += 1;
        }
        self.at += length;
        self.blanks();
        rest.get(..length).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn bump(&mut self) {
        self.at += 1;
        self.blanks();
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        if found {
            self.bump();
        }
        found
    }

    /// Skips blanks and line comments.
    fn blanks(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => self.at += 1,
                b'#' => {
                    let rest = self.text.get(self.at..).unwrap_or_default();
                    self.at += rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
                }
                _ => return,
            }
        }
    }

    /// Creates an error with line and column, counted from 1 as in C++.
    #[cold]
    fn wrong(&self, reason: &str) -> Error {
        let before = self.text.get(..self.at).unwrap_or(self.text);
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|&&byte| byte != b'\n').count() + 1;
        Error::new(format!("{line}:{column}: {reason}"))
    }
}

#[derive(Default)]
struct SeenFields {
    fields: FieldSet,
    oneofs: FieldSet,
}

/// Parses digits only: Rust's own conversion would accept a sign, too.
fn parse_digits(text: &str, radix: u32) -> Option<u64> {
    let digits = text.chars().all(|c| c.is_digit(radix));
    digits.then(|| u64::from_str_radix(text, radix).ok())?
}

fn is_hex(rest: &[u8]) -> bool {
    matches!(rest, [b'0', b'x' | b'X', ..])
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

fn is_letter_or_digit(byte: u8) -> bool {
    is_letter(byte) || byte.is_ascii_digit()
}
