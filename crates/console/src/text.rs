//! Text pages, as curl shows them.

use std::fmt::Display;

use crate::clean::write_clean;

/// A page of text. Markup of the page is literal; values are [cleaned](write_clean).
#[derive(Debug, Default)]
pub(crate) struct Text(String);

impl Text {
    /// Adds a part of the page itself.
    pub(crate) fn raw(&mut self, part: &'static str) -> &mut Self {
        self.0.push_str(part);
        self
    }

    /// Adds a value.
    pub(crate) fn value(&mut self, value: impl Display) -> &mut Self {
        // Writing to a string does not fail.
        let _ = write_clean(&mut self.0, value);
        self
    }

    /// Adds a value, and spaces up to this number of characters.
    pub(crate) fn column(&mut self, value: impl Display, width: usize) -> &mut Self {
        let start = self.0.len();
        self.value(value);
        let written = self.0.get(start..).unwrap_or_default().chars().count();
        self.0.extend(std::iter::repeat_n(' ', width.saturating_sub(written)));
        self
    }

    /// Adds a line `name: value`.
    pub(crate) fn line(&mut self, name: &'static str, value: impl Display) -> &mut Self {
        self.raw(name).raw(": ").value(value).raw("\n")
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

/// Returns a number with what it counts: `1 server`, `2 servers`.
pub(crate) fn format_count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        let texts = [0, 1, 2].map(|n| format_count(n, "variable"));
        assert_eq!(texts, ["0 variables", "1 variable", "2 variables"]);
    }

    #[test]
    fn values_cannot_begin_lines() {
        let mut text = Text::default();
        text.line("peer", "a\nqps: 5").column("é", 3).raw("|");
        assert_eq!(text.into_string(), "peer: a\\u{a}qps: 5\né  |");
    }
}
