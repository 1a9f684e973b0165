use std::ops::Deref;

use toml::Spanned;

use super::key_lines::KeyLines;

/// A part of the file with the line where it starts.
#[derive(Clone, Debug)]
pub(crate) struct Lined<T> {
    pub(crate) line: usize,
    keys: KeyLines,
    value: T,
}

impl<T> Lined<T> {
    pub(super) fn all(text: &str, parts: Vec<Spanned<T>>) -> Vec<Self> {
        parts.into_iter().map(|part| Self::one(text, part)).collect()
    }

    pub(super) fn one(text: &str, part: Spanned<T>) -> Self {
        let line = line_of(text, part.span().start);
        Self { line, keys: KeyLines::from_table(text, line), value: part.into_inner() }
    }

    /// A part that the file does not have.
    pub(super) fn missing() -> Self
    where
        T: Default,
    {
        Self { line: 0, keys: KeyLines::default(), value: T::default() }
    }

    /// The line of a key of the part; that of the part if the key has no line of its own.
    pub(crate) fn line_of(&self, key: &str) -> usize {
        self.keys.line(key).unwrap_or(self.line)
    }
}

impl<T> Deref for Lined<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// The line, from 1, of a byte of the text.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}
