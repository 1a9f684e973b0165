//! Bars with whiskers.

use super::axis::{Axis, Unit};
use super::legend::{FILLS, Legend, Sample};
use super::svg::{Anchor, Canvas, Svg, WIDTH};
use super::text::{fit, width};
use crate::statistics::Interval;

/// Bars that belong together, under one name.
#[derive(Debug, Clone, PartialEq)]
pub struct BarGroup {
    /// Its name.
    pub name: String,
    /// A bar for each subject, in the order of the legend.
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Debug, Clone, PartialEq)]
pub enum Bar {
    /// A value with its interval.
    Value {
        /// Length of the bar, from 0.
        value: f64,
        /// Its interval.
        interval: Option<Interval>,
    },
    /// Why there is no value.
    Missing(String),
}

/// Horizontal bars of counts, such as calls per second, or of nanoseconds if `is_time`. `subjects` are the names in the legend.
/// `None` without groups.
pub fn bars(
    title: &str,
    axis_name: &str,
    is_time: bool,
    subjects: &[&str],
    groups: &[BarGroup],
) -> Option<Svg> {
    if groups.is_empty() {
        return None;
    }
    let values = groups.iter().flat_map(|group| &group.bars).flat_map(|bar| match bar {
        Bar::Value { value, interval } => [Some(*value), interval.map(|interval| interval.high)],
        Bar::Missing(_) => [None, None],
    });
    let axis = Axis::linear(values.flatten(), if is_time { Unit::Nanoseconds } else { Unit::Count });
    let names = subjects
        .iter()
        .enumerate()
        .map(|(number, name)| (String::from(*name), Sample::Box(FILLS[number % FILLS.len()])));
    let legend = Legend::new(names, 4.0);
    let top = legend.height() + 6.0;
    let height: f64 = groups.iter().map(|group| HEAD + BAR * group.bars.len() as f64).sum();
    let (left, right) = (10.0, WIDTH - 18.0);
    let x = |value: f64| left + axis.position(value) * (right - left);
    let mut canvas = Canvas::new(title, &format!("{} groups of bars.", groups.len()), top + height + 36.0);
    legend.draw(&mut canvas, 2.0);
    for (value, label) in axis.ticks(5) {
        canvas.line("grid", (x(value), top), (x(value), top + height));
        canvas.text(x(value).min(WIDTH - width(&label) / 2.0), top + height + 16.0, Anchor::Middle, &label);
    }
    canvas.line("axis", (left, top), (left, top + height));
    canvas.text(right, top + height + 31.0, Anchor::End, axis_name);
    let mut y = top;
    for group in groups {
        canvas.text(left + 4.0, y + 14.0, Anchor::Start, &fit(&group.name, WIDTH - 20.0));
        y += HEAD;
        for (number, bar) in group.bars.iter().enumerate() {
            draw_bar(&mut canvas, bar, number, (left, y), &x);
            y += BAR;
        }
    }
    Some(canvas.finish())
}

fn draw_bar(canvas: &mut Canvas, bar: &Bar, number: usize, (left, top): (f64, f64), x: &impl Fn(f64) -> f64) {
    let middle = top + BAR / 2.0 - 1.0;
    match bar {
        Bar::Value { value, interval } => {
            canvas.rect(FILLS[number % FILLS.len()], (left, top), (x(*value) - left, BAR - 3.0));
            if let Some(interval) = interval {
                canvas.whisker(x(interval.low), x(interval.high), middle);
            }
        }
        Bar::Missing(reason) => {
            canvas.text(left + 4.0, middle + 4.0, Anchor::Start, &fit(reason, WIDTH - 28.0));
        }
    }
}

const HEAD: f64 = 20.0;
const BAR: f64 = 15.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_subject_keeps_its_position_and_its_reason() {
        let interval = Some(Interval { low: 90e3, high: 110e3, confidence: 0.95 });
        let group = BarGroup {
            name: "1 caller, 1 KiB".to_owned(),
            bars: vec![Bar::Value { value: 100e3, interval }, Bar::Missing("not installed".to_owned())],
        };
        let svg = bars("Rates", "calls/s", false, &["polyrpc", "brpc"], &[group]).unwrap();
        assert!(svg.element().contains("not installed"));
        assert_eq!(svg.element().matches("class=\"whisker\"").count(), 3);
        assert_eq!(bars("Rates", "calls/s", false, &[], &[]), None);
    }
}
