//! Names, addresses and values that peers choose may contain characters that a terminal or a browser interprets instead
//! of showing. They are written as escapes: `\u{1b}`.

use std::fmt::{self, Display, Write};

/// Writes a value without control characters and characters that change the direction of text or have no width.
pub(crate) fn write_clean(out: &mut impl Write, value: impl Display) -> fmt::Result {
    write!(Cleaner(out), "{value}")
}

/// Returns a value as [`write_clean`] writes it.
pub(crate) fn to_clean_string(value: impl Display) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_clean(&mut text, value);
    text
}

struct Cleaner<'w, W>(&'w mut W);

impl<W: Write> Write for Cleaner<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Nearly all texts; a page has many.
        if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return self.0.write_str(text);
        }
        let mut rest = text;
        while let Some((at, hidden)) = rest.char_indices().find(|(_, letter)| is_hidden(*letter)) {
            let (shown, after) = rest.split_at(at);
            self.0.write_str(shown)?;
            write!(self.0, "{}", hidden.escape_unicode())?;
            rest = after.get(hidden.len_utf8()..).unwrap_or_default();
        }
        self.0.write_str(rest)
    }
}

fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_shown() {
        let mut out = String::new();
        write_clean(&mut out, "a\x1b[2J\n\u{202e}b\u{7f}é漢").unwrap();
        assert_eq!(out, "a\\u{1b}[2J\\u{a}\\u{202e}b\\u{7f}é漢");
        assert_eq!(to_clean_string("plain ~"), "plain ~");
    }
}
