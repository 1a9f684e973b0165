//! A published benchmark, made again.

use super::markup::Html;
use super::run::{metadata, verdict};
use crate::model::{Chart, Entry, Key, Measure, Suite, Table};
use crate::report::suite::{
    JudgedRatio, MEASURES, MeasuredFigure, chart_svg, duels, expected_differences, judge, list_missing,
    measured_figure, ratio_svg,
};

pub(super) fn write(page: &mut Html, suite: &Suite) {
    let is_valid = suite.verdict.outcome.is_valid();
    verdict(page, &suite.verdict.outcome.to_string(), is_valid, &suite.verdict.reasons, &suite.warnings);
    page.raw("<p>").text(&suite.title).raw(". Document: ").text(&suite.document).raw(".</p>");
    items(page, "What is wrong with the published figures", &suite.defects);
    items(page, "How this measurement differs", &suite.deviations);
    missing_list(page, suite);
    for table in &suite.tables {
        document_table(page, suite, table);
    }
    page.raw("<div class=figures>");
    for chart in &suite.charts {
        draw(page, suite, chart);
    }
    page.raw("</div>");
    duel_figures(page, suite);
    pairs(page, suite);
    noise(page, suite);
    commands(page, suite);
    page.raw("<h3>Conditions</h3><dl class=conditions>");
    page.condition("variant", &suite.variant);
    page.condition("windows", format!("{} s after {} s of warm-up", suite.window_s, suite.warmup_s));
    page.condition("rounds", format!("{}, and {} repeated because of noise", suite.rounds, suite.repeated));
    metadata(page, &suite.metadata);
}

fn items(page: &mut Html, title: &str, texts: &[String]) {
    if texts.is_empty() {
        return;
    }
    page.raw("<h3>").text(title).raw("</h3><ul class=note>");
    for text in texts {
        page.raw("<li>").text(text).raw("</li>");
    }
    page.raw("</ul>");
}

fn missing_list(page: &mut Html, suite: &Suite) {
    let missing = list_missing(suite);
    if missing.is_empty() {
        return;
    }
    page.raw("<h3>Not measured</h3><dl class=conditions>");
    for (name, reason) in missing {
        page.condition(&name, reason);
    }
    page.raw("</dl>");
}

/// A table of the document: each figure as published and as measured here; then its ratios.
fn document_table(page: &mut Html, suite: &Suite, table: &Table) {
    page.raw("<h3>")
        .text(&table.title)
        .raw("</h3><div class=figures><div data-table=\"")
        .text(&table.id)
        .raw("\">");
    let columns: Vec<_> = std::iter::once("row").chain(table.columns.iter().map(String::as_str)).collect();
    page.table(&table.title, &columns);
    for (row, entries) in table.rows.iter().zip(table.entries.chunks(table.columns.len().max(1))) {
        let dash = || "–".to_owned();
        let published: Vec<_> = entries
            .iter()
            .map(|entry| entry.published.map_or_else(dash, |figure| figure.to_string()))
            .collect();
        page.row(format_args!("{row}, published"), &published);
        let results: Vec<_> = entries.iter().map(|entry| measured_figure(suite, &entry.key)).collect();
        let measured: Vec<_> = results
            .iter()
            .map(|result| result.as_ref().map_or_else(|_| dash(), MeasuredFigure::to_string))
            .collect();
        page.row(format_args!("{row}, here"), &measured);
        if results.iter().any(Result::is_ok) {
            let intervals: Vec<_> = results
                .iter()
                .map(|result| result.as_ref().map_or_else(|_| dash(), MeasuredFigure::format_interval))
                .collect();
            page.row(format_args!("{row}, 95 % interval"), &intervals);
        }
        let beside: Vec<_> = entries.iter().map(|entry| comparison_figure(suite, entry)).collect();
        if beside.iter().any(Option::is_some) {
            let cells: Vec<_> =
                beside.iter().map(|here| here.map_or_else(dash, |here| here.to_string())).collect();
            page.row(format_args!("{row}, PolyRPC"), &cells);
        }
        if let Some(reason) = results.iter().find_map(|result| result.as_ref().err()) {
            page.raw("<tr><th scope=row>")
                .text(format_args!("{row}, not measured"))
                .raw("</th><td class=note colspan=");
            page.text(columns.len() - 1).raw(">").text(reason).raw("</td></tr>");
        }
    }
    page.end_table();
    if let Some(note) = &table.note {
        page.raw("<p class=note>").text(note).raw("</p>");
    }
    page.raw("</div>");
    let judged: Vec<_> = table.ratios.iter().map(|row| judge(suite, row)).collect();
    ratios(page, &format!("Ratios: {}", table.title), &judged, true);
    page.raw("</div>");
}

/// What PolyRPC does instead.
fn comparison_figure(suite: &Suite, entry: &Entry) -> Option<MeasuredFigure> {
    let Entry { key, beside, .. } = entry;
    measured_figure(suite, &Key { pair: beside.clone()?, ..key.clone() }).ok()
}

/// Ratios as dots with whiskers, and as a table.
fn ratios(page: &mut Html, title: &str, judged: &[JudgedRatio], has_published: bool) {
    if judged.is_empty() {
        return;
    }
    match ratio_svg(title, judged) {
        Ok(plot) => page.figure(&plot),
        Err(reason) => page.figure_without_plot(title, &reason),
    };
    let columns: &[&str] =
        if has_published { &["ratio", "published", "here", "verdict"] } else { &["load", "here", "verdict"] };
    page.table(title, columns);
    for one in judged {
        page.raw("<tr><th scope=row>").text(&one.name).raw("</th>");
        if has_published {
            page.raw("<td class=n>").text(one.format_published()).raw("</td>");
        }
        page.raw("<td class=n>").text(one.format_measured());
        page.raw(match one.is_good {
            Some(true) => "</td><td class=good>",
            Some(false) => "</td><td class=bad>",
            None => "</td><td>",
        });
        page.text(&one.verdict).raw("</td></tr>");
    }
    page.end_table().end_figure();
}

/// A figure of the document.
fn draw(page: &mut Html, suite: &Suite, chart: &Chart) {
    page.raw("<div data-chart=\"").text(&chart.id).raw("\">");
    match chart_svg(suite, chart) {
        Ok(plot) => page.figure(&plot),
        Err(reason) => page.figure_without_plot(&chart.title, &reason),
    };
    let names: Vec<_> =
        chart.pairs.iter().map(|id| suite.pair(id).map_or(id.as_str(), |pair| &pair.name)).collect();
    let columns: Vec<_> = std::iter::once("load").chain(names.iter().copied()).collect();
    page.table(&chart.title, &columns);
    for case in chart.cases.iter().filter_map(|id| suite.case(id)) {
        let cells = chart.pairs.iter().map(|pair| {
            let measure = chart.measure.unwrap_or(Measure::Rate);
            let key = Key { pair: pair.clone(), case: case.id.clone(), measure };
            measured_figure(suite, &key).map_or_else(|_| "–".to_owned(), |here| here.to_string())
        });
        page.row(&case.name, &cells.collect::<Vec<_>>());
    }
    page.end_table().end_figure().raw("</div>");
}

/// Each pair beside the document's own client and server.
fn duel_figures(page: &mut Html, suite: &Suite) {
    let measures =
        [Measure::Rate, Measure::P99, Measure::ServerCpu].map(|measure| (measure, duels(suite, measure)));
    let count: usize = measures.iter().flat_map(|(_, duels)| duels).map(|(_, _, judged)| judged.len()).sum();
    if count == 0 {
        return;
    }
    page.raw("<h3>Beside the document's own client and server</h3><p class=note>Ratios of figures in the same round. Of ");
    page.text(count).raw(" comparisons, chance alone would show a difference in ");
    page.text(format!("{:.1}", expected_differences(count)));
    page.raw(" if there were none.</p><div class=figures>");
    for (measure, duels) in &measures {
        for (pair, reference, judged) in duels {
            ratios(page, &format!("{measure}: {pair} / {reference}"), judged, false);
        }
    }
    page.raw("</div>");
}

/// Every figure of every pair.
fn pairs(page: &mut Html, suite: &Suite) {
    page.raw("<h3>Every pair of client and server</h3><div class=tables>");
    let names: Vec<_> = MEASURES.iter().map(Measure::to_string).collect();
    for case in suite.cases.iter().filter(|case| case.missing.is_none()) {
        let pairs: Vec<_> =
            suite.pairs.iter().filter(|pair| suite.cell(&pair.id, &case.id).is_some()).collect();
        if pairs.is_empty() {
            continue;
        }
        let columns: Vec<_> = std::iter::once("client → server")
            .chain(names.iter().map(String::as_str))
            .chain(["failed"])
            .collect();
        page.table(&format!("{}: {}", case.name, case.load), &columns);
        for pair in pairs {
            let key = |measure| Key { pair: pair.id.clone(), case: case.id.clone(), measure };
            if let Some(reason) = suite.why_missing(&pair.id, &case.id) {
                page.raw("<tr><th scope=row>").text(&pair.name).raw("</th><td class=note colspan=");
                page.text(columns.len() - 1).raw(">").text(reason).raw("</td></tr>");
                continue;
            }
            let figures = MEASURES.iter().map(|measure| {
                measured_figure(suite, &key(*measure))
                    .map_or_else(|_| "–".to_owned(), |here| here.to_string())
            });
            let failed = suite.cell(&pair.id, &case.id).map_or(0, |cell| cell.failed());
            page.row(&pair.name, &figures.chain([failed.to_string()]).collect::<Vec<_>>());
        }
        page.end_table();
    }
    page.raw("</div>");
}

fn noise(page: &mut Html, suite: &Suite) {
    if suite.noise.is_empty() {
        return;
    }
    page.table("Noise of the machine", &["load, round", "p95 above median", "steal"]);
    for noise in &suite.noise {
        let steal =
            noise.probe.steal.map_or_else(|| "–".to_owned(), |steal| format!("{:.1} %", steal * 100.0));
        let excess = format!("{:.1} %", noise.probe.excess() * 100.0);
        page.row(format!("{}, {}", noise.case, noise.round + 1), &[excess, steal]);
    }
    page.end_table();
}

/// What was started, for those who want to repeat a cell by hand.
fn commands(page: &mut Html, suite: &Suite) {
    page.raw("<h3>Commands</h3>");
    for peer in &suite.peers {
        page.raw("<p class=note>").text(&peer.name).raw(": ").text(&peer.description).raw("</p>");
        if !peer.commands.is_empty() {
            page.raw("<pre tabindex=0>").text(peer.commands.join("\n")).raw("</pre>");
        }
    }
    let of_cells: Vec<_> =
        suite.cells.iter().filter(|cell| !cell.is_control).filter_map(|cell| cell.commands.last()).collect();
    if !of_cells.is_empty() {
        page.raw("<details><summary>Clients of every cell</summary><pre tabindex=0>");
        for command in of_cells {
            page.text(command).raw("\n");
        }
        page.raw("</pre></details>");
    }
}
