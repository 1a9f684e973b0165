//! A writer of SVG. Text is escaped, since there is no other way to add it.

use std::fmt::{self, Display, Write};

use super::STYLE;

/// A plot as an `svg` element, for a page that contains [`STYLE`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Svg {
    /// What the plot shows, in a few words.
    pub title: String,
    /// The element.
    element: String,
}

impl Svg {
    /// The `svg` element.
    pub fn element(&self) -> &str {
        &self.element
    }

    /// A document with its own style: a file that browsers and converters show.
    pub fn standalone(&self) -> String {
        let (start, rest) = self.element.split_once('>').unwrap_or((&self.element, ""));
        format!("{start}><style>{STYLE}</style>{rest}\n")
    }
}

/// Width of every plot in units.
pub(super) const WIDTH: f64 = 360.0;

/// An `svg` element that is being written.
#[derive(Debug)]
pub(super) struct Canvas {
    title: String,
    head: String,
    body: String,
}

/// Where a text is placed relative to its point.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Canvas {
    /// `summary` describes the plot to those who do not see it; its figures are in the table beside it.
    pub(super) fn new(title: &str, summary: &str, height: f64) -> Self {
        let mut head = format!(
            "<svg class=\"plot\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"",
            Number(height)
        );
        escape_to(&mut head, title);
        head.push_str(". ");
        escape_to(&mut head, summary);
        let body = format!("\"><rect class=\"page\" width=\"{WIDTH}\" height=\"{}\"/>", Number(height));
        Self { title: title.to_owned(), head, body }
    }

    pub(super) fn text(&mut self, x: f64, y: f64, anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.add(format_args!("<text x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\">", Number(x), Number(y)));
        escape_to(&mut self.body, text);
        self.body.push_str("</text>");
    }

    pub(super) fn line(&mut self, class: &'static str, from: (f64, f64), to: (f64, f64)) {
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(Number);
        self.add(format_args!("<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>"));
    }

    /// A line through points.
    pub(super) fn polyline(&mut self, class: &'static str, points: &[(f64, f64)]) {
        self.path(&format!("line {class}"), points, false);
    }

    /// A filled area.
    pub(super) fn area(&mut self, class: &'static str, points: &[(f64, f64)]) {
        self.path(&format!("band {class}"), points, true);
    }

    fn path(&mut self, class: &str, points: &[(f64, f64)], is_closed: bool) {
        if points.is_empty() {
            return;
        }
        self.add(format_args!("<path class=\"{class}\" d=\""));
        for (index, (x, y)) in points.iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            self.add(format_args!("{command}{} {}", Number(*x), Number(*y)));
        }
        self.body.push_str(if is_closed { "Z\"/>" } else { "\"/>" });
    }

    pub(super) fn rect(&mut self, class: &'static str, corner: (f64, f64), size: (f64, f64)) {
        let [x, y, width, height] = [corner.0, corner.1, size.0, size.1].map(Number);
        self.add(format_args!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>"
        ));
    }

    /// A dot with a tooltip.
    pub(super) fn dot(&mut self, class: &'static str, at: (f64, f64), radius: f64, tooltip: &str) {
        let [x, y, radius] = [at.0, at.1, radius].map(Number);
        self.add(format_args!("<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"><title>"));
        escape_to(&mut self.body, tooltip);
        self.body.push_str("</title></circle>");
    }

    /// An interval: a line with a stroke at each end.
    pub(super) fn whisker(&mut self, low: f64, high: f64, y: f64) {
        self.line("whisker", (low, y), (high, y));
        for end in [low, high] {
            self.line("whisker", (end, y - 3.5), (end, y + 3.5));
        }
    }

    pub(super) fn finish(self) -> Svg {
        Svg { title: self.title, element: format!("{}{}</svg>", self.head, self.body) }
    }

    fn add(&mut self, markup: fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.body.write_fmt(markup);
    }
}

/// Text for markup: `&`, `<`, `>` and quotes are escaped, control characters and those that change the direction of text are
/// replaced.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    escape_to(&mut escaped, text);
    escaped
}

fn escape_to(markup: &mut String, text: &str) {
    for letter in text.chars() {
        match letter {
            '&' => markup.push_str("&amp;"),
            '<' => markup.push_str("&lt;"),
            '>' => markup.push_str("&gt;"),
            '"' => markup.push_str("&quot;"),
            '\'' => markup.push_str("&#39;"),
            '\n' | '\t' => markup.push(' '),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                markup.push('\u{fffd}')
            }
            // XML permits no other control characters, nor these two.
            '\u{fffe}' | '\u{ffff}' => markup.push('\u{fffd}'),
            letter if letter.is_control() => markup.push('\u{fffd}'),
            letter => markup.push(letter),
        }
    }
}

/// A coordinate with one decimal; 0 if it is not finite.
struct Number(f64);

impl Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = if self.0.is_finite() { (self.0 * 10.0).round() } else { 0.0 };
        if tenths % 10.0 == 0.0 {
            write!(f, "{:.0}", tenths / 10.0)
        } else {
            write!(f, "{:.1}", tenths / 10.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_not_parsed_as_markup() {
        let mut canvas = Canvas::new("<script>\"", "'&\u{202e}\0", 10.0);
        canvas.text(1.0, 2.25, Anchor::Start, "<img src=x onerror=alert(1)>");
        canvas.dot("f1", (1.0, f64::NAN), 2.0, "</title><script>");
        let svg = canvas.finish();
        assert!(!svg.element().contains("<script") && !svg.element().contains("<img"), "{}", svg.element());
        assert!(svg.element().contains("aria-label=\"&lt;script&gt;&quot;. &#39;&amp;\u{fffd}\u{fffd}\""));
        assert!(svg.element().contains("cy=\"0\""));
        assert!(svg.standalone().contains("<style>"));
        assert_eq!(svg.standalone().matches("<svg").count(), 1);
    }
}
