//! HTML pages. Anything that is not a literal is escaped; there is no other way to add it.

use std::fmt::{self, Display, Write};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::clean::write_clean;

/// A part of an HTML page.
#[derive(Debug, Default)]
pub(crate) struct Html(String);

impl Html {
    /// Adds markup of the page itself.
    pub(crate) fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Adds a value as text; also within the quotes of an attribute.
    pub(crate) fn text(&mut self, value: impl Display) -> &mut Self {
        // Writing to a string does not fail.
        let _ = write_clean(&mut Escaper(&mut self.0), value);
        self
    }

    /// Adds a value as a segment of a path, or a value of a query, within the quotes of an attribute.
    pub(crate) fn segment(&mut self, value: &str) -> &mut Self {
        self.0.extend(utf8_percent_encode(value, ESCAPED));
        self
    }

    /// Adds the points of a line, within the quotes of an attribute.
    pub(crate) fn points(&mut self, points: impl Iterator<Item = (u32, u32)>) -> &mut Self {
        for (x, y) in points {
            // Numbers only. Writing to a string does not fail.
            let _ = write!(self.0, "{x},{y} ");
        }
        self
    }

    /// Adds a cell of a table.
    pub(crate) fn cell(&mut self, value: impl Display) -> &mut Self {
        self.raw("<td>").text(value).raw("</td>")
    }

    /// Adds a cell of a table with a number.
    pub(crate) fn number(&mut self, value: impl Display) -> &mut Self {
        self.raw("<td class=n>").text(value).raw("</td>")
    }

    /// Adds a row of a table of two columns.
    pub(crate) fn row(&mut self, name: impl Display, value: impl Display) -> &mut Self {
        self.raw("<tr><th scope=row>").text(name).raw("</th>").cell(value).raw("</tr>")
    }

    /// Starts a table with these columns and a caption.
    pub(crate) fn table(&mut self, caption: impl Display, columns: &[&'static str]) -> &mut Self {
        self.raw("<div class=scroll tabindex=0><table><caption>").text(caption).raw("</caption><thead><tr>");
        for column in columns {
            self.raw("<th scope=col>").raw(column).raw("</th>");
        }
        self.raw("</tr></thead><tbody>")
    }

    /// Ends a table.
    pub(crate) fn end_table(&mut self) -> &mut Self {
        self.raw("</tbody></table></div>")
    }

    /// Adds another part.
    pub(crate) fn part(&mut self, part: Self) -> &mut Self {
        self.0.push_str(&part.0);
        self
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

struct Escaper<'s>(&'s mut String);

impl Write for Escaper<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if !text.bytes().any(|byte| b"&<>\"'".contains(&byte)) {
            self.0.push_str(text);
            return Ok(());
        }
        for letter in text.chars() {
            match letter {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                letter => self.0.push(letter),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped() {
        let mut html = Html::default();
        html.raw("<a href=\"/vars/").segment("a/\"b?").raw("\">").text("<script>'\"&\u{202e}").raw("</a>");
        let want = "<a href=\"/vars/a%2F%22b%3F\">&lt;script&gt;&#39;&quot;&amp;\\u{202e}</a>";
        assert_eq!(html.into_string(), want);
    }
}
