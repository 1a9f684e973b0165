//! Small plots that need no script.

use std::fmt::Display;

use crate::html::Html;

/// Height of a small plot in its own units: half a pixel each.
const HEIGHT: u32 = 48;

/// Adds a line through the values, the latest on the right, between zero and the largest. A page has thousands of them: points
/// are whole numbers, and a line that is flat has two.
pub(crate) fn sparkline(html: &mut Html, label: impl Display, values: impl Iterator<Item = f32>) {
    let values: Vec<f64> =
        values.map(f64::from).map(|value| if value.is_finite() { value } else { 0.0 }).collect();
    let largest = values.iter().copied().fold(0.0, f64::max);
    let smallest = values.iter().copied().fold(0.0, f64::min);
    let span = if largest > smallest { largest - smallest } else { 1.0 };
    let steps = values.len().max(2) as u32 - 1;
    html.raw("<svg class=spark viewBox=\"0 0 ").text(steps).raw(" ").text(HEIGHT);
    html.raw("\" preserveAspectRatio=none role=img aria-label=\"").text(label);
    html.raw(", largest ").text(number(largest)).raw("\"><polyline points=\"");
    let height = |value: f64| HEIGHT - 2 - ((value - smallest) / span * f64::from(HEIGHT - 4)).round() as u32;
    match values.first().filter(|first| values.iter().all(|value| value == *first)) {
        Some(&flat) => html.points([(0, height(flat)), (steps, height(flat))].into_iter()),
        None => html.points((0..).zip(values.iter().map(|value| height(*value)))),
    };
    html.raw("\"/></svg>");
}

/// The size of a plot, and where its lines are within.
const PLOT: (f64, f64) = (320.0, 112.0);
const TOP: f64 = 16.0;
const BOTTOM: f64 = 94.0;

/// Adds a plot of values with its scale, the latest on the right; `since` is the time of the first.
pub(crate) fn plot(html: &mut Html, label: impl Display, since: &'static str, values: &[f32]) {
    let values: Vec<f64> = values
        .iter()
        .map(|value| f64::from(*value))
        .map(|value| if value.is_finite() { value } else { 0.0 })
        .collect();
    let largest = values.iter().copied().fold(0.0, f64::max);
    let smallest = values.iter().copied().fold(0.0, f64::min);
    let last = values.last().copied().unwrap_or(0.0);
    let span = if largest > smallest { largest - smallest } else { 1.0 };
    let step = PLOT.0 / (values.len().max(2) - 1) as f64;
    html.raw("<svg class=plot viewBox=\"0 0 320 112\" width=320 height=112 role=img aria-label=\"")
        .text(label);
    html.raw(": largest ").text(number(largest)).raw(", last ").text(number(last)).raw("\">");
    html.raw("<path class=grid d=\"M0 16H320M0 55H320M0 94H320\"/><polyline points=\"");
    for (at, value) in values.iter().enumerate() {
        let height = BOTTOM - (value - smallest) / span * (BOTTOM - TOP);
        html.text(format_args!("{:.1},{height:.1} ", at as f64 * step));
    }
    html.raw("\"/><text x=0 y=12>").text(number(largest)).raw("</text>");
    html.raw("<text x=0 y=108>").raw(since).raw("</text><text class=end x=320 y=108>now</text></svg>");
}

/// Formats a number for people: the larger, the fewer digits behind the point.
pub(crate) fn number(value: f64) -> String {
    let digits = match value.abs() {
        large if large >= 1000.0 || value.fract() == 0.0 => return format!("{value:.0}"),
        large if large >= 10.0 => 1,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_keep_to_their_scale() {
        let mut html = Html::default();
        plot(&mut html, "a\"b", "60 s ago", &[0.0, f32::INFINITY, 50.0, 100.0]);
        let text = html.into_string();
        assert!(text.contains("aria-label=\"a&quot;b: largest 100, last 100\""), "{text}");
        assert!(text.contains("points=\"0.0,94.0 106.7,94.0 213.3,55.0 320.0,16.0 \""), "{text}");
    }

    #[test]
    fn line_that_is_flat_has_two_points() {
        for (values, points) in [
            (vec![0.0; 60], "0,46 59,46 "),
            (vec![7.0; 60], "0,2 59,2 "),
            (vec![0.0, 1.0, 2.0], "0,46 1,24 2,2 "),
        ] {
            let mut html = Html::default();
            sparkline(&mut html, "flat", values.into_iter());
            let text = html.into_string();
            assert!(text.contains(&format!("<polyline points=\"{points}\"/>")), "{text}");
        }
    }

    #[test]
    fn lines_stay_within_the_picture() {
        for values in [vec![], vec![5.0], vec![0.0, -3.0, f32::NAN, 1e30], vec![0.0; 60]] {
            let mut html = Html::default();
            sparkline(&mut html, "a\"b", values.into_iter());
            let text = html.into_string();
            assert!(text.contains("a&quot;b"));
            let points = text.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
            for point in points.split_whitespace() {
                let (x, y) = point.split_once(',').unwrap();
                assert!((0..60).contains(&x.parse::<u32>().unwrap()), "{point}");
                assert!((2..HEIGHT - 1).contains(&y.parse::<u32>().unwrap()), "{point}");
            }
        }
        assert_eq!(
            [0.25, 12345.678, 3.0, 112.94, 120.01, 0.000_01].map(number),
            ["0.25", "12346", "3", "112.9", "120", "0"]
        );
    }
}
