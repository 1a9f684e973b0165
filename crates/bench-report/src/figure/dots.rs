//! Rounds as dots, with the interval of their median.

use super::axis::Axis;
use super::legend::FILLS;
use super::svg::{Anchor, Canvas, Svg, WIDTH};
use super::text::{fit, width};
use crate::statistics::Interval;

/// A row of the plot: one ratio in several rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct DotRow {
    /// Its name.
    pub name: String,
    /// What follows from it, in a few words.
    pub finding: String,
    /// The ratio in each round.
    pub rounds: Vec<f64>,
    /// Their median.
    pub median: Option<f64>,
    /// Interval of the median.
    pub interval: Option<Interval>,
}

/// Ratios around 1 on a logarithmic axis. Differences of less than `same` (0.03 for 3 %) are shaded. `None` without rows.
pub fn dots(title: &str, axis_name: &str, rows: &[DotRow], same: f64) -> Option<Svg> {
    if rows.is_empty() {
        return None;
    }
    let all = rows.iter().flat_map(|row| {
        let ends = row.interval.map(|interval| [interval.low, interval.high]);
        row.rounds.iter().copied().chain(ends.into_iter().flatten())
    });
    let axis = Axis::ratio(all.chain([1.0 + same]));
    let (left, right) = (14.0, WIDTH - 14.0);
    let x = |value: f64| left + axis.position(value) * (right - left);
    let bottom = TOP + ROW * rows.len() as f64;
    let summary: Vec<_> = rows.iter().map(|row| format!("{}: {}.", row.name, row.finding)).collect();
    let mut canvas = Canvas::new(title, &summary.join(" "), bottom + 36.0);
    canvas.rect("same", (x(1.0 / (1.0 + same)), TOP), (x(1.0 + same) - x(1.0 / (1.0 + same)), bottom - TOP));
    for (value, label) in axis.ticks(6) {
        canvas.line("grid", (x(value), TOP), (x(value), bottom));
        canvas.text(x(value), bottom + 16.0, Anchor::Middle, &label);
    }
    canvas.line("axis", (x(1.0), TOP), (x(1.0), bottom));
    canvas.text(right, bottom + 31.0, Anchor::End, axis_name);
    for (number, row) in rows.iter().enumerate() {
        draw_row(&mut canvas, row, TOP + ROW * number as f64, &x);
    }
    Some(canvas.finish())
}

fn draw_row(canvas: &mut Canvas, row: &DotRow, top: f64, x: &impl Fn(f64) -> f64) {
    let finding = fit(&row.finding, WIDTH * 0.62);
    let name = fit(&row.name, WIDTH - width(&finding) - 24.0);
    canvas.text(6.0, top + 14.0, Anchor::Start, &name);
    canvas.text(WIDTH - 6.0, top + 14.0, Anchor::End, &finding);
    let middle = top + 31.0;
    if let Some(interval) = row.interval {
        canvas.whisker(x(interval.low), x(interval.high), middle);
    }
    for (number, ratio) in row.rounds.iter().enumerate() {
        // Three levels, so that equal values stay apart.
        let y = middle + (number % 3) as f64 * 4.0 - 4.0;
        canvas.dot("hollow s1", (x(*ratio), y), 2.8, &format!("round {}: {ratio:.3}", number + 1));
    }
    if let Some(median) = row.median {
        canvas.dot(FILLS[0], (x(median), middle), 4.2, &format!("median: {median:.3}"));
    }
}

const TOP: f64 = 6.0;
const ROW: f64 = 46.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_is_a_dot_and_the_finding_is_text() {
        let row = DotRow {
            name: "<p99>".to_owned(),
            finding: "no difference shown".to_owned(),
            rounds: vec![0.9, 1.0, 1.1],
            median: Some(1.0),
            interval: Some(Interval { low: 0.9, high: 1.1, confidence: 0.95 }),
        };
        let svg = dots("Rounds", "B / A", &[row.clone(), row], 0.03).unwrap();
        assert_eq!(svg.element().matches("<circle").count(), 8);
        assert!(svg.element().contains("&lt;p99&gt;") && svg.element().contains("no difference shown"));
        assert_eq!(dots("Rounds", "B / A", &[], 0.03), None);
    }
}
