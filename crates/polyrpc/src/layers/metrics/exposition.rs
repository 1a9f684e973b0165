//! The text format of Prometheus (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::fmt::{self, Display, Write};

use super::family::{Family, Labels, Value};
use super::histogram::PARTS;

/// Formats families; a histogram has `buckets_a_doubling` buckets for every doubling of its values.
pub(super) fn text(families: &[Family], buckets_a_doubling: i32) -> String {
    let mut page = Page(String::new());
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        let Family { name, help, kind, samples } = family;
        let space = if help.is_empty() { "" } else { " " };
        page.text(format_args!("# HELP {name}{space}{}\n", EscapedText(help, false)));
        page.text(format_args!("# TYPE {name} {}\n", kind.as_str()));
        for sample in samples {
            let line = Line { name, page: &mut page, labels: &sample.labels };
            line.write(&sample.value, buckets_a_doubling);
        }
    }
    page.0
}

/// Lower and upper bound of a histogram's buckets, as logarithms of seconds to the base of 2: from 15 µs to 16 s.
const BOUNDS: (i32, i32) = (-16, 4);

/// The same for values of any size, each bound four times as large as the one before.
const WIDE: (i32, i32) = (-20, 40);

struct Line<'a> {
    name: &'a str,
    page: &'a mut Page,
    labels: &'a Labels,
}

impl Line<'_> {
    fn write(mut self, value: &Value, buckets_a_doubling: i32) {
        match value {
            Value::Number(number) => self.line("", None, number),
            Value::Histogram(counts, sum) => {
                let (bounds, step) = match counts.are_wide() {
                    true => (WIDE, 2 * PARTS),
                    false => (BOUNDS, PARTS / buckets_a_doubling.clamp(1, PARTS)),
                };
                for (bound, count) in counts.cumulative_counts(bounds, step as usize) {
                    self.line("_bucket", Some(("le", &bound.to_string())), count);
                }
                self.line("_bucket", Some(("le", "+Inf")), counts.total());
                self.line("_sum", None, sum);
                self.line("_count", None, counts.total());
            }
            Value::Summary(quantiles, sum, count) => {
                for (quantile, value) in quantiles {
                    self.line("", Some(("quantile", quantile)), value);
                }
                self.line("_sum", None, sum);
                self.line("_count", None, count);
            }
        }
    }

    fn line(&mut self, end: &str, more: Option<(&str, &str)>, value: impl Display) {
        let (name, labels) = (self.name, LabelSet { labels: self.labels, more });
        self.page.text(format_args!("{name}{end}{labels} {value}\n"));
    }
}

/// A page under construction.
struct Page(String);

impl Page {
    fn text(&mut self, text: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.0.write_fmt(text);
    }
}

struct LabelSet<'a> {
    labels: &'a Labels,
    more: Option<(&'a str, &'a str)>,
}

impl Display for LabelSet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = self.labels.iter().map(|(name, value)| (&**name, &**value));
        let mut separator = '{';
        for (name, value) in own.chain(self.more) {
            write!(f, "{separator}{name}=\"{}\"", EscapedText(value, true))?;
            separator = ',';
        }
        if separator == ',' { f.write_char('}') } else { Ok(()) }
    }
}

/// A label's value, or a help text, in which quotation marks are not escaped.
struct EscapedText<'a>(&'a str, bool);

impl Display for EscapedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '\\' => f.write_str("\\\\")?,
                '"' if self.1 => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                letter => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}
