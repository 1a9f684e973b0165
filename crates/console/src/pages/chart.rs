//! Small plots that need no script.

use std::fmt::Display;

use crate::html::Html;

const WIDTH: f64 = 120.0;
const HEIGHT: f64 = 24.0;

/// Adds a line through the values, the latest on the right, between zero and the largest.
pub(crate) fn sparkline(html: &mut Html, label: impl Display, values: impl Iterator<Item = f32>) {
    let values: Vec<f64> =
        values.map(f64::from).map(|value| if value.is_finite() { value } else { 0.0 }).collect();
    let largest = values.iter().copied().fold(0.0, f64::max);
    let smallest = values.iter().copied().fold(0.0, f64::min);
    let span = if largest > smallest { largest - smallest } else { 1.0 };
    let step = WIDTH / (values.len().max(2) - 1) as f64;
    html.raw("<svg class=spark viewBox=\"0 0 120 24\" preserveAspectRatio=none role=img aria-label=\"");
    html.text(label).raw(", largest ").text(number(largest)).raw("\"><polyline points=\"");
    for (at, value) in values.iter().enumerate() {
        let height = HEIGHT - 1.0 - (value - smallest) / span * (HEIGHT - 2.0);
        html.text(format_args!("{:.1},{height:.1} ", at as f64 * step));
    }
    html.raw("\"/></svg>");
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
    fn lines_stay_within_the_picture() {
        for values in [vec![], vec![5.0], vec![0.0, -3.0, f32::NAN, 1e30], vec![0.0; 60]] {
            let mut html = Html::default();
            sparkline(&mut html, "a\"b", values.into_iter());
            let text = html.into_string();
            assert!(text.contains("a&quot;b"));
            let points = text.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
            for point in points.split_whitespace() {
                let (x, y) = point.split_once(',').unwrap();
                assert!((0.0..=120.0).contains(&x.parse::<f64>().unwrap()), "{point}");
                assert!((0.0..=24.0).contains(&y.parse::<f64>().unwrap()), "{point}");
            }
        }
        assert_eq!(
            [0.25, 12345.678, 3.0, 112.94, 120.01, 0.000_01].map(number),
            ["0.25", "12346", "3", "112.9", "120", "0"]
        );
    }
}
