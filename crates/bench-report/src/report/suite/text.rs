//! A suite as text.

use std::fmt::Write;

use super::{MEASURES, duels, judge, list_missing, measured_figure};
use crate::format::to_printable;
use crate::model::{Key, Measure, Suite, Table};

/// The suite as lines, without colours.
pub(crate) fn write(text: &mut String, suite: &Suite) {
    let mut line = |content: String| {
        for part in content.split('\n') {
            let _ = writeln!(text, "{}", to_printable(part));
        }
    };
    line(format!("{}: {} ({})", suite.name, suite.title, suite.variant));
    line(format!("document  {}", suite.document));
    line(format!(
        "windows   {} rounds of {} s after {} s of warm-up; {} rounds of a case repeated because of noise",
        suite.rounds, suite.window_s, suite.warmup_s, suite.repeated
    ));
    line(format!("verdict   {}", suite.verdict.outcome));
    for reason in suite.verdict.reasons.iter().chain(&suite.warnings) {
        line(format!("          {reason}"));
    }
    for (name, reason) in list_missing(suite) {
        line(format!("missing   {name}: {reason}"));
    }
    for table in &suite.tables {
        line(format!("\n{}", table.title));
        for content in table_lines(suite, table) {
            line(content);
        }
    }
    line(format!("\nEvery pair of client and server, {}", Measure::Rate));
    for content in pairs(suite, MEASURES[0]) {
        line(content);
    }
    for (pair, reference, judged) in duels(suite, Measure::Rate) {
        line(format!("\n{pair}, beside {reference}: {}", Measure::Rate));
        for judged in judged {
            line(format!("  {:<24} {:<24} {}", judged.name, judged.format_measured(), judged.verdict));
        }
    }
}

fn table_lines(suite: &Suite, table: &Table) -> Vec<String> {
    let mut lines = Vec::new();
    for (row, entries) in table.rows.iter().zip(table.entries.chunks(table.columns.len().max(1))) {
        for (column, entry) in table.columns.iter().zip(entries) {
            let published = entry.published.map_or_else(|| "–".to_owned(), |figure| figure.to_string());
            let measured = match measured_figure(suite, &entry.key) {
                Ok(here) => format!("{here} [{}]", here.format_interval()),
                Err(reason) => format!("– ({reason})"),
            };
            let beside = entry.beside.as_ref().and_then(|pair| {
                let here = measured_figure(suite, &Key { pair: pair.clone(), ..entry.key.clone() }).ok()?;
                Some(format!("  PolyRPC {here}"))
            });
            let beside = beside.unwrap_or_default();
            lines.push(format!("  {row:<14} {column:<16} published {published:<16} here {measured}{beside}"));
        }
    }
    for row in &table.ratios {
        let judged = judge(suite, row);
        lines.push(format!(
            "  {:<31} published {:<16} here {:<24} {}",
            judged.name,
            judged.format_published(),
            judged.format_measured(),
            judged.verdict
        ));
    }
    lines
}

fn pairs(suite: &Suite, measure: Measure) -> Vec<String> {
    let mut lines = Vec::new();
    for case in suite.cases.iter().filter(|case| case.missing.is_none()) {
        for pair in suite.pairs.iter().filter(|pair| suite.cell(&pair.id, &case.id).is_some()) {
            let key = Key { pair: pair.id.clone(), case: case.id.clone(), measure };
            let shown =
                measured_figure(suite, &key).map_or_else(|why| format!("– ({why})"), |here| here.to_string());
            lines.push(format!("  {:<24} {:<36} {shown}", case.name, pair.name));
        }
    }
    lines
}
