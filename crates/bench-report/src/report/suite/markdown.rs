//! Parts of a suite as Markdown, for documents that are generated from a stored result.

use super::{MEASURES, duels, judge, list_missing, measured_figure};
use crate::format::{to_printable, utc};
use crate::model::{Case, Key, Measure, Suite, Table};

/// A part of the suite by its name: `summary`, `defects`, `missing`, `pairs`, `cost`, `beside`, `table ID` or `ratios ID`.
/// `None` if there is no such part.
pub fn markdown_block(suite: &Suite, part: &str) -> Option<String> {
    let words: Vec<_> = part.split_whitespace().collect();
    match words.as_slice() {
        ["summary"] => Some(summary(suite)),
        ["defects"] => Some(list(suite.defects.iter().cloned())),
        ["deviations"] => Some(list(suite.deviations.iter().cloned())),
        ["missing"] => {
            Some(list(list_missing(suite).into_iter().map(|(name, reason)| format!("{name}: {reason}"))))
        }
        ["pairs"] => Some(pairs(suite, &[Measure::Rate, Measure::P99])),
        ["cost"] => Some(pairs(suite, &MEASURES[3..])),
        ["beside"] => Some(duel_table(suite)),
        ["table", id] => suite.tables.iter().find(|table| table.id == *id).map(|table| grid(suite, table)),
        ["ratios", id] => suite.tables.iter().find(|table| table.id == *id).map(|table| ratios(suite, table)),
        _ => None,
    }
}

fn summary(suite: &Suite) -> String {
    let metadata = &suite.metadata;
    let machine = &metadata.machine;
    format!(
        "`{}`, {}, on {} with {} cores, {}; {} rounds of {} s for each pair of client and server.\n",
        // A backtick would end the code.
        to_plain_line(&metadata.command).replace('`', "'"),
        utc(metadata.started_s),
        escape(machine.cpu.as_deref().unwrap_or("an unknown CPU")),
        machine.cores,
        escape(machine.system.as_deref().unwrap_or("an unknown system")),
        suite.rounds,
        suite.window_s,
    )
}

fn list(items: impl Iterator<Item = String>) -> String {
    items.map(|item| format!("- {}\n", escape(&item))).collect()
}

fn grid(suite: &Suite, table: &Table) -> String {
    let mut text = header(std::iter::once(String::new()).chain(table.columns.iter().cloned()));
    for (row, entries) in table.rows.iter().zip(table.entries.chunks(table.columns.len().max(1))) {
        let cells = entries.iter().map(|entry| {
            let published = entry.published.map_or_else(|| "–".to_owned(), |figure| figure.to_string());
            let shown = |pair: &str| {
                let key = Key { pair: pair.to_owned(), ..entry.key.clone() };
                measured_figure(suite, &key).map_or_else(|_| "–".to_owned(), |here| here.to_string())
            };
            let beside =
                entry.beside.as_deref().map_or_else(String::new, |pair| format!(" · {}", shown(pair)));
            format!("{published} · {}{beside}", shown(&entry.key.pair))
        });
        text += &line(std::iter::once(row.clone()).chain(cells));
    }
    text
}

fn ratios(suite: &Suite, table: &Table) -> String {
    let mut text = header(["ratio", "published", "here", "verdict"].map(str::to_owned).into_iter());
    for row in &table.ratios {
        let judged = judge(suite, row);
        let (published, here) = (judged.format_published(), judged.format_measured());
        text += &line([judged.name, published, here, judged.verdict].into_iter());
    }
    text
}

/// Rows of a case and a pair, columns of figures.
fn pairs(suite: &Suite, measures: &[Measure]) -> String {
    let names = ["load", "client → server"].map(str::to_owned).into_iter();
    let mut text = header(names.chain(measures.iter().map(Measure::to_string)));
    for (case, pair, name) in measured_pairs(suite) {
        let cells = measures.iter().map(|measure| {
            let key = Key { pair: pair.to_owned(), case: case.id.clone(), measure: *measure };
            measured_figure(suite, &key).map_or_else(|_| "–".to_owned(), |here| here.to_string())
        });
        text += &line([case.name.clone(), name.to_owned()].into_iter().chain(cells));
    }
    text
}

fn measured_pairs(suite: &Suite) -> impl Iterator<Item = (&Case, &str, &str)> {
    suite.cases.iter().flat_map(move |case| {
        let pairs = suite.pairs.iter().filter(|pair| suite.why_missing(&pair.id, &case.id).is_none());
        pairs.map(move |pair| (case, pair.id.as_str(), pair.name.as_str()))
    })
}

fn duel_table(suite: &Suite) -> String {
    let names = ["load", "client → server", "beside", "calls/s", "p99", "server CPU per call"];
    let mut text = header(names.map(str::to_owned).into_iter());
    let measures = [Measure::Rate, Measure::P99, Measure::ServerCpu].map(|measure| duels(suite, measure));
    let [rates, p99s, cpus] = &measures;
    for ((rates, p99s), cpus) in rates.iter().zip(p99s).zip(cpus) {
        for ((rate, p99), cpu) in rates.2.iter().zip(&p99s.2).zip(&cpus.2) {
            if rate.here.is_err() {
                continue;
            }
            let cells =
                [rate, p99, cpu].map(|judged| format!("{} {}", judged.format_measured(), judged.verdict));
            text += &line([rate.name.clone(), rates.0.clone(), rates.1.clone()].into_iter().chain(cells));
        }
    }
    text
}

fn header(columns: impl Iterator<Item = String>) -> String {
    let columns: Vec<_> = columns.collect();
    format!("{}|{}\n", line(columns.iter().cloned()), "---|".repeat(columns.len()))
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<_> = cells.map(|cell| format!(" {} |", escape(&cell))).collect();
    format!("|{}\n", cells.concat())
}

/// Text that is one cell of a table.
fn escape(text: &str) -> String {
    to_plain_line(text).replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;")
}

/// One line, without characters that change how others are shown.
fn to_plain_line(text: &str) -> String {
    let shown = |c| match c {
        '\n' => ' ',
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c => c,
    };
    to_printable(&text.chars().map(shown).collect::<String>())
}
