//! HTML. What is not a literal is escaped, since there is no other way to add it.

use std::fmt::Display;

use crate::figure::{Svg, escape};

/// A part of a page.
#[derive(Debug, Default)]
pub(super) struct Html(String);

impl Html {
    /// Adds markup of the page itself.
    pub(super) fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Adds a value as text; also within the quotes of an attribute.
    pub(super) fn text(&mut self, value: impl Display) -> &mut Self {
        self.0.push_str(&escape(&value.to_string()));
        self
    }

    /// Begins a table. A caption says what it holds; long tables scroll, also by the keyboard.
    pub(super) fn table(&mut self, caption: &str, columns: &[&str]) -> &mut Self {
        self.raw("<div class=scroll").open_table(caption, columns)
    }

    /// Begins a table with a row for each second, which is not printed: the plot above it and the CSV form are for that.
    pub(super) fn long_table(&mut self, caption: &str, columns: &[&str]) -> &mut Self {
        self.raw("<div class=\"scroll long\"").open_table(caption, columns)
    }

    fn open_table(&mut self, caption: &str, columns: &[&str]) -> &mut Self {
        self.raw(" tabindex=0 role=group aria-label=\"").text(caption).raw("\"><table><caption>");
        self.text(caption).raw("</caption><thead><tr>");
        for (number, column) in columns.iter().enumerate() {
            self.raw(if number == 0 { "<th scope=col>" } else { "<th scope=col class=n>" })
                .text(column)
                .raw("</th>");
        }
        self.raw("</tr></thead><tbody>")
    }

    /// Adds a row: its name, and its cells, which are numbers.
    pub(super) fn row(&mut self, name: impl Display, cells: &[String]) -> &mut Self {
        self.raw("<tr><th scope=row>").text(name).raw("</th>");
        for cell in cells {
            self.raw("<td class=n>").text(cell).raw("</td>");
        }
        self.raw("</tr>")
    }

    /// Ends a table.
    pub(super) fn end_table(&mut self) -> &mut Self {
        self.raw("</tbody></table></div>")
    }

    /// Begins a figure with its plot. What follows is the table beside it.
    pub(super) fn figure(&mut self, plot: &Svg) -> &mut Self {
        self.raw("<figure><figcaption>").text(&plot.title).raw("</figcaption>");
        // An `Svg` escapes its texts itself.
        self.0.push_str(plot.element());
        self
    }

    /// Begins a figure without a plot.
    pub(super) fn figure_without_plot(&mut self, title: &str, reason: &str) -> &mut Self {
        self.raw("<figure><figcaption>")
            .text(title)
            .raw("</figcaption><p class=note>not measured: ")
            .text(reason)
            .raw("</p>")
    }

    /// Ends a figure.
    pub(super) fn end_figure(&mut self) -> &mut Self {
        self.raw("</figure>")
    }

    /// Adds a definition.
    pub(super) fn fact(&mut self, name: &str, value: impl Display) -> &mut Self {
        self.raw("<div><dt>").text(name).raw("</dt><dd>").text(value).raw("</dd></div>")
    }

    /// Adds a definition of a list in two columns.
    pub(super) fn condition(&mut self, name: &str, value: impl Display) -> &mut Self {
        self.raw("<dt>").text(name).raw("</dt><dd>").text(value).raw("</dd>")
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}
