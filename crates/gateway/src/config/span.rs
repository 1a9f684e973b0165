use std::ops::Deref;

use toml::Spanned;

/// A part of the file with the line where it starts.
#[derive(Clone, Debug)]
pub(crate) struct Lined<T> {
    pub(crate) line: usize,
    value: T,
}

impl<T> Lined<T> {
    pub(super) fn all(text: &str, parts: Vec<Spanned<T>>) -> Vec<Self> {
        parts.into_iter().map(|part| Self::one(text, part)).collect()
    }

    pub(super) fn one(text: &str, part: Spanned<T>) -> Self {
        Self { line: line_of(text, part.span().start), value: part.into_inner() }
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
