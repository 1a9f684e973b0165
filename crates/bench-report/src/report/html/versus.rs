//! A comparison of two servers.

use super::markup::Html;
use super::run::{metadata, verdict};
use crate::figure::{DotRow, dots};
use crate::format::{Bytes, Count, Nanoseconds};
use crate::model::{Figure, Versus};
use crate::report::terminal::ratio_interval;
use crate::statistics::{Interval, MIN_DIFFERENCE};

pub(super) fn write(page: &mut Html, versus: &Versus) {
    verdict(
        page,
        &versus.verdict.outcome.to_string(),
        versus.verdict.outcome.is_valid(),
        &versus.verdict.reasons,
        &versus.warnings,
    );
    page.raw("<dl class=conditions>");
    for (name, subject) in [("A", &versus.a), ("B", &versus.b)] {
        page.condition(name, subject.title());
    }
    page.raw("</dl><div class=figures>");
    let rows: Vec<_> = versus.figures.iter().map(row).collect();
    if let Some(plot) =
        dots("Ratio of B to A in each round", "B / A, shaded: within 3 %", &rows, MIN_DIFFERENCE)
    {
        page.figure(&plot);
        findings(page, versus);
        page.end_figure();
    }
    page.raw("</div>");
    page.raw("<p class=note>A round has two windows of each server, in the order ABBA or BAAB, so that a drift of the machine ");
    page.raw("affects both alike. The interval contains the median ratio with the probability given, whatever the distribution. ");
    page.raw("The control compares A with itself in the same rounds. A difference is named only if the interval excludes 1 and ");
    page.raw("the ratio differs from 1 by more than 3 % and by more than the control's resolution.</p>");
    windows(page, versus);
    page.raw("<h3>Conditions</h3><dl class=conditions>");
    page.condition("load", &versus.load.description);
    page.condition(
        "windows",
        format!("{} s each, {} rounds repeated because of noise", versus.window_s, versus.repeated),
    );
    for (number, probe) in versus.probes.iter().enumerate() {
        page.condition(&format!("noise, round {}", number + 1), probe);
    }
    metadata(page, &versus.metadata);
}

fn row(figure: &Figure) -> DotRow {
    let geometric = |windows: [f64; 2]| (windows[0] * windows[1]).sqrt();
    let comparison = figure.comparison.as_ref();
    DotRow {
        name: figure.name.clone(),
        finding: figure.finding(),
        rounds: figure.rounds.iter().map(|round| geometric(round.b) / geometric(round.a)).collect(),
        median: comparison.map(|comparison| comparison.ratio),
        interval: comparison.and_then(|comparison| comparison.interval),
    }
}

fn findings(page: &mut Html, versus: &Versus) {
    page.table("Findings", &["figure", "finding", "B / A", "interval", "control A / A", "resolution"]);
    for figure in &versus.figures {
        let shown = |interval: Option<Interval>| interval.map_or_else(|| "–".to_owned(), ratio_interval);
        let cells = match &figure.comparison {
            Some(comparison) => [
                format!("{:.3}", comparison.ratio),
                match comparison.interval {
                    Some(interval) => {
                        format!("{} ({:.1} %)", ratio_interval(interval), interval.confidence * 100.0)
                    }
                    None => "–".to_owned(),
                },
                shown(comparison.control),
                format!("{:.1} %", comparison.resolution * 100.0),
            ],
            None => ["–"; 4].map(str::to_owned),
        };
        page.raw("<tr><th scope=row>").text(&figure.name).raw("</th>");
        page.raw(match figure.is_b_better() {
            Some(true) => "<td class=\"n good\">",
            Some(false) => "<td class=\"n bad\">",
            None => "<td class=n>",
        });
        page.text(figure.finding()).raw("</td>");
        for cell in cells {
            page.raw("<td class=n>").text(cell).raw("</td>");
        }
        page.raw("</tr>");
    }
    page.end_table();
}

/// The figures of every window.
fn windows(page: &mut Html, versus: &Versus) {
    page.raw("<h3>Rounds</h3><div class=tables>");
    for figure in &versus.figures {
        page.table(&format!("{} by round", figure.name), &["round", "A", "A", "B", "B"]);
        for (number, round) in figure.rounds.iter().enumerate() {
            let values = [round.a[0], round.a[1], round.b[0], round.b[1]];
            let cells = values.map(|value| format_with_unit(&figure.unit, value));
            page.row(number + 1, &cells);
        }
        page.end_table();
    }
    page.raw("</div>");
}

fn format_with_unit(unit: &str, value: f64) -> String {
    match unit {
        "ns" => Nanoseconds(value).to_string(),
        "bytes" => Bytes(value).to_string(),
        _ if value >= 100.0 => Count(value).to_string(),
        _ => format!("{value:.3}"),
    }
}
