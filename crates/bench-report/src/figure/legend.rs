//! Names of the lines of a plot.

use super::svg::{Anchor, Canvas, WIDTH};
use super::text::{fit, width};

/// How a line is drawn: class of its stroke, and class of what is filled in its colour.
pub(super) const STROKES: [&str; 4] = ["s1", "s2", "s3", "s4"];
pub(super) const FILLS: [&str; 4] = ["f1", "f2", "f3", "f4"];

/// Position of each name, and the height of all rows.
#[derive(Debug)]
pub(super) struct Legend {
    entries: Vec<(f64, f64, String, Sample)>,
    height: f64,
}

/// What stands before a name.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sample {
    Line(&'static str),
    Box(&'static str),
}

impl Legend {
    /// Arranges names in rows from `left` to the right edge of the plot.
    pub(super) fn new(names: impl IntoIterator<Item = (String, Sample)>, left: f64) -> Self {
        let mut entries = Vec::new();
        let (mut x, mut row) = (left, 0.0);
        for (name, sample) in names {
            let name = fit(&name, WIDTH - left - SAMPLE - GAP);
            let needed = SAMPLE + width(&name);
            if x > left && x + needed > WIDTH {
                (x, row) = (left, row + ROW);
            }
            entries.push((x, row, name, sample));
            x += needed + GAP;
        }
        let height = if entries.is_empty() { 0.0 } else { row + ROW };
        Self { entries, height }
    }

    pub(super) fn height(&self) -> f64 {
        self.height
    }

    pub(super) fn draw(&self, canvas: &mut Canvas, top: f64) {
        for (x, row, name, sample) in &self.entries {
            let y = top + row + ROW / 2.0;
            match sample {
                Sample::Line(class) => canvas.polyline(class, &[(*x, y), (x + SAMPLE - 5.0, y)]),
                Sample::Box(class) => canvas.rect(class, (x + 4.0, y - 4.5), (9.0, 9.0)),
            }
            canvas.text(x + SAMPLE, y + 4.0, Anchor::Start, name);
        }
    }
}

const ROW: f64 = 16.0;
const SAMPLE: f64 = 23.0;
const GAP: f64 = 12.0;
