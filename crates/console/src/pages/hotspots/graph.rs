//! A flame graph as SVG, without a script.

use crate::html::Html;
use crate::profiler::{Flame, Rect};

const WIDTH: f64 = 1200.0;
const ROW: usize = 18;

/// Width of a letter, about.
const LETTER: f64 = 6.6;

/// Adds the graph, the outermost functions on top.
pub(super) fn draw(html: &mut Html, flame: &Flame, label: &str, unit: &'static str) {
    html.raw("<div class=scroll tabindex=0><svg class=flame role=img aria-label=\"").text(label);
    html.raw("\" viewBox=\"0 0 1200 ").text(flame.depth * ROW).raw("\" width=1200 height=");
    html.text(flame.depth * ROW).raw(">");
    for rect in &flame.rects {
        draw_rect(html, rect, flame.weight, unit);
    }
    html.raw("</svg></div>");
}

fn draw_rect(html: &mut Html, rect: &Rect, weight: u64, unit: &'static str) {
    let (x, y, width) = (rect.start * WIDTH, rect.row * ROW, rect.width * WIDTH);
    html.raw("<g><title>").text(&rect.name).raw(" · ").text(rect.weight).raw(" of ").text(weight);
    html.raw(" ").raw(unit).raw(", ").text(format_args!("{:.2} %", rect.width * 100.0));
    if let Some(before) = rect.before {
        html.raw("; before: ").text(format_args!("{:.2} %", before * 100.0));
    }
    html.raw("</title><rect class=").raw(class(rect)).raw(" x=\"").text(format_args!("{x:.1}"));
    html.raw("\" y=\"").text(y).raw("\" width=\"").text(format_args!("{:.1}", (width - 0.3).max(0.2)));
    html.raw("\" height=17></rect>");
    let letters = ((width - 6.0) / LETTER) as usize;
    if letters >= 3 {
        html.raw("<text x=\"").text(format_args!("{:.1}", x + 3.0)).raw("\" y=\"").text(y + 13).raw("\">");
        html.text(shorten(&rect.name, letters)).raw("</text>");
    }
    html.raw("</g>");
}

/// Returns the class of a rectangle: what has grown and what has shrunk, or one of a few colours by name.
fn class(rect: &Rect) -> &'static str {
    match rect.before {
        Some(before) if rect.width > before + 0.005 => "f-more",
        Some(before) if rect.width < before - 0.005 => "f-less",
        Some(_) => "f-same",
        None => {
            let sum =
                rect.name.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
            ["f-0", "f-1", "f-2", "f-3"].into_iter().nth(sum as usize % 4).unwrap_or("f-0")
        }
    }
}

/// Returns the end of a name, which is more specific than its beginning.
fn shorten(name: &str, letters: usize) -> String {
    let length = name.chars().count();
    match length <= letters {
        true => name.to_owned(),
        false => ['…'].into_iter().chain(name.chars().skip(length + 1 - letters)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_shortened() {
        let rect = |name: &str, width| Rect {
            name: name.into(),
            row: 0,
            start: 0.0,
            width,
            weight: 5,
            before: None,
        };
        let rects = vec![rect("<script>alert(1)</script>", 1.0), rect("core::fmt::write", 0.01)];
        let flame = Flame { rects, weight: 5, depth: 1 };
        let mut html = Html::default();
        draw(&mut html, &flame, "a \"graph\"", "samples");
        let text = html.into_string();
        assert!(
            text.contains("&lt;script&gt;alert(1)&lt;/script&gt;") && !text.contains("<script"),
            "{text}"
        );
        assert!(text.contains("a &quot;graph&quot;") && !text.contains("style="), "{text}");
        assert_eq!(shorten("core::fmt::write", 6), "…write");
    }
}
