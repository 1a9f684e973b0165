//! Lexer: splits text into tokens.

use crate::error::Position;

/// Token, with its position and the doc comment before it.
#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) at: Position,
    /// Lines after `///`.
    pub(super) docs: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    Word(String),
    /// Digits with all characters that a number may contain, except its sign.
    Number(String),
    Text(String),
    Symbol(char),
    End,
}

impl Kind {
    /// Representation in an error message.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Word(word) | Self::Number(word) => format!("`{word}`"),
            Self::Text(text) => format!("{text:?}"),
            Self::Symbol(symbol) => format!("`{symbol}`"),
            Self::End => "the end of the file".to_owned(),
        }
    }
}

/// Error: malformed token.
#[derive(Debug)]
pub(super) struct SyntaxError {
    pub(super) at: Position,
    pub(super) reason: String,
}

/// Returns all tokens of a file, the last of which is [`Kind::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, SyntaxError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lexer = Lexer { rest: text, at: Position { line: 1, column: 1 }, docs: Vec::new() };
    let mut tokens = Vec::new();
    loop {
        let token = lexer.token()?;
        let ended = token.kind == Kind::End;
        tokens.push(token);
        if ended {
            return Ok(tokens);
        }
    }
}

struct Lexer<'s> {
    rest: &'s str,
    at: Position,
    docs: Vec<String>,
}

impl Lexer<'_> {
    fn token(&mut self) -> Result<Token, SyntaxError> {
        self.skip()?;
        let (at, docs) = (self.at, std::mem::take(&mut self.docs));
        let Some(first) = self.rest.chars().next() else {
            return Ok(Token { kind: Kind::End, at, docs });
        };
        let kind = match first {
            'a'..='z' | 'A'..='Z' | '_' => Kind::Word(self.take(|c| c.is_ascii_alphanumeric() || c == '_')),
            '0'..='9' => Kind::Number(self.number()),
            '.' if self.rest[1..].starts_with(|c: char| c.is_ascii_digit()) => Kind::Number(self.number()),
            '"' | '\'' => Kind::Text(self.text(first)?),
            '{' | '}' | '(' | ')' | '[' | ']' | ':' | ';' | ',' | '=' | '.' | '-' | '+' => {
                self.advance();
                Kind::Symbol(first)
            }
            other => return Err(SyntaxError { at, reason: format!("unexpected character `{other}`") }),
        };
        Ok(Token { kind, at, docs })
    }

    /// Skips blanks and comments; keeps the doc comment of the next token.
    fn skip(&mut self) -> Result<(), SyntaxError> {
        loop {
            if self.rest.starts_with(char::is_whitespace) {
                self.advance();
            } else if let Some(doc) = self.rest.strip_prefix("///") {
                let line = doc.split('\n').next().unwrap_or_default().trim_end_matches('\r').to_owned();
                self.docs.push(line);
                self.take(|c| c != '\n');
            } else if self.rest.starts_with("//") {
                self.take(|c| c != '\n');
            } else if self.rest.starts_with("/*") {
                let at = self.at;
                let end = self
                    .rest
                    .find("*/")
                    .ok_or_else(|| SyntaxError { at, reason: "unterminated comment".into() })?;
                let rest = self.rest.len() - end - 2;
                while self.rest.len() > rest {
                    self.advance();
                }
            } else {
                return Ok(());
            }
        }
    }

    /// Scans `12`, `0x1F`, `1.5e-3`, `0x1.8p1`; a malformed number is reported when its value is parsed.
    fn number(&mut self) -> String {
        let hexadecimal = self.rest.starts_with("0x") || self.rest.starts_with("0X");
        let mut last = ' ';
        self.take(|c| {
            let exponent = if hexadecimal { matches!(last, 'p' | 'P') } else { matches!(last, 'e' | 'E') };
            last = c;
            c.is_ascii_alphanumeric() || c == '.' || exponent && matches!(c, '+' | '-')
        })
    }

    fn text(&mut self, quote: char) -> Result<String, SyntaxError> {
        let start = self.at;
        self.advance();
        let mut text = String::new();
        loop {
            let at = self.at;
            match self.advance() {
                Some(c) if c == quote => return Ok(text),
                Some('\\') => text.push(self.escape(at)?),
                None | Some('\n') => {
                    return Err(SyntaxError { at: start, reason: "unterminated string".into() });
                }
                Some(c) => text.push(c),
            }
        }
    }

    fn escape(&mut self, at: Position) -> Result<char, SyntaxError> {
        let wrong = |reason: &str| SyntaxError { at, reason: reason.to_owned() };
        Ok(match self.advance() {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some(c @ ('"' | '\'' | '\\' | '/')) => c,
            Some('u') => {
                self.code_point(4).ok_or_else(|| wrong("expected four hexadecimal digits after `\\u`"))?
            }
            Some('x') => {
                self.code_point(2).ok_or_else(|| wrong("expected two hexadecimal digits after `\\x`"))?
            }
            _ => return Err(wrong("unknown escape sequence")),
        })
    }

    fn code_point(&mut self, digits: usize) -> Option<char> {
        let text = self.rest.get(..digits)?;
        // Rust's own conversion accepts a sign, too.
        let has_digits_only = text.bytes().all(|digit| digit.is_ascii_hexdigit());
        let code = u32::from_str_radix(text, 16).ok().filter(|_| has_digits_only)?;
        for _ in 0..digits {
            self.advance();
        }
        char::from_u32(code)
    }

    fn take(&mut self, mut wanted: impl FnMut(char) -> bool) -> String {
        let mut taken = String::new();
        while let Some(c) = self.rest.chars().next().filter(|c| wanted(*c)) {
            taken.push(c);
            self.advance();
        }
        taken
    }

    fn advance(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        match c {
            '\n' => self.at = Position { line: self.at.line + 1, column: 1 },
            _ => self.at.column += 1,
        }
        Some(c)
    }
}
