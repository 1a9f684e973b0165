//! Several runs side by side.

use super::markup::Html;
use crate::figure::{Bar, BarGroup, bars, quantile_curve};
use crate::format::{Count, Nanoseconds};
use crate::model::{Document, Run};

/// A table and plots of all runs; nothing for fewer than two.
pub(super) fn write(page: &mut Html, documents: &[(String, Document)]) {
    let runs: Vec<_> = documents
        .iter()
        .filter_map(|(name, document)| match document {
            Document::Run(run) => Some((name.as_str(), &**run)),
            Document::Versus(_) | Document::Suite(_) => None,
        })
        .collect();
    if runs.len() < 2 {
        return;
    }
    page.raw("<section aria-labelledby=overview><h2 id=overview>Overview</h2>");
    table(page, &runs);
    page.raw("<p class=note>These runs were made one after another. Differences may be those of the machine: compare two ");
    page.raw("servers by <code>polyrpc bench ab</code>, which interleaves them.</p><div class=figures>");
    let groups: Vec<_> = runs
        .iter()
        .map(|(name, run)| BarGroup {
            name: (*name).to_owned(),
            bars: vec![Bar::Value { value: run.calls_per_second, interval: None }],
        })
        .collect();
    if let Some(plot) = bars("Rates", "calls/s", false, &[], &groups) {
        page.figure(&plot).end_figure();
    }
    // More lines than styles cannot be told apart.
    let curves: Vec<_> = runs.iter().map(|(name, run)| (*name, &run.latency.response)).take(4).collect();
    if let Some(plot) = quantile_curve(&curves) {
        page.figure(&plot).end_figure();
    }
    page.raw("</div></section>");
}

fn table(page: &mut Html, runs: &[(&str, &Run)]) {
    page.table("Runs", &["run", "calls/s", "errors", "p50", "p99", "p99.9", "max", "verdict"]);
    for (name, run) in runs {
        let latency = &run.latency.response;
        let quantile = |quantile| {
            let estimate = latency.quantile(quantile);
            estimate.map_or_else(|| "–".to_owned(), |estimate| Nanoseconds(estimate.value as f64).to_string())
        };
        page.row(
            name,
            &[
                Count(run.calls_per_second).to_string(),
                format!("{:.2} %", run.error_share() * 100.0),
                quantile(0.5),
                quantile(0.99),
                quantile(0.999),
                Nanoseconds(latency.histogram().max() as f64).to_string(),
                run.verdict.outcome.to_string(),
            ],
        );
    }
    page.end_table();
}
