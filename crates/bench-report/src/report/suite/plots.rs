//! Plots of a suite.

use super::{JudgedRatio, judge, measured_figure};
use crate::figure::{Bar, BarGroup, DotRow, Svg, bars, dots};
use crate::model::{Chart, Key, Measure, Suite};
use crate::statistics::MIN_DIFFERENCE;

/// A plot of the suite by its name, `chart ID` or `ratios ID`, for documents. `None` if there is no such plot, or nothing in it
/// was measured.
pub fn suite_plot(suite: &Suite, name: &str) -> Option<Svg> {
    match name.split_once(' ')? {
        ("chart", id) => chart_svg(suite, suite.charts.iter().find(|chart| chart.id == id)?).ok(),
        ("ratios", id) => {
            let table = suite.tables.iter().find(|table| table.id == id)?;
            let judged: Vec<_> = table.ratios.iter().map(|row| judge(suite, row)).collect();
            ratio_svg(&format!("Ratios: {}", table.title), &judged).ok()
        }
        _ => None,
    }
}

/// A figure of the document as bars, or why nothing in it was measured.
pub(in crate::report) fn chart_svg(suite: &Suite, chart: &Chart) -> Result<Svg, String> {
    let measure = chart.measure.unwrap_or(Measure::Rate);
    let names: Vec<_> =
        chart.pairs.iter().map(|id| suite.pair(id).map_or(id.as_str(), |pair| &pair.name)).collect();
    let bar = |case: &str, pair: &String| match measured_figure(
        suite,
        &Key { pair: pair.clone(), case: case.to_owned(), measure },
    ) {
        Ok(here) => Bar::Value { value: here.median, interval: here.interval },
        Err(reason) => Bar::Missing(reason),
    };
    let groups: Vec<_> = chart
        .cases
        .iter()
        .filter_map(|id| suite.case(id))
        .map(|case| BarGroup {
            name: case.name.clone(),
            bars: chart.pairs.iter().map(|pair| bar(&case.id, pair)).collect(),
        })
        .collect();
    let all = || groups.iter().flat_map(|group| &group.bars);
    let missing =
        all().find_map(|bar| if let Bar::Missing(reason) = bar { Some(reason.clone()) } else { None });
    let has_any = all().any(|bar| matches!(bar, Bar::Value { .. }));
    let plot = if has_any {
        bars(&chart.title, &measure.to_string(), measure.is_time(), &names, &groups)
    } else {
        None
    };
    plot.ok_or_else(|| missing.unwrap_or_else(|| "it has no cases".to_owned()))
}

/// Ratios as dots with whiskers, or why none was measured.
pub(in crate::report) fn ratio_svg(title: &str, judged: &[JudgedRatio]) -> Result<Svg, String> {
    let missing = judged.iter().find_map(|one| one.here.as_ref().err().cloned());
    let rows: Vec<_> = judged.iter().map(dot_row).collect();
    let has_any = judged.iter().any(|one| one.here.is_ok());
    let plot =
        if has_any { dots(title, "ratio here, shaded: within 3 %", &rows, MIN_DIFFERENCE) } else { None };
    plot.ok_or_else(|| missing.unwrap_or_else(|| "there is no ratio".to_owned()))
}

fn dot_row(judged: &JudgedRatio) -> DotRow {
    let here = judged.here.as_ref().ok();
    DotRow {
        name: judged.name.clone(),
        finding: judged.verdict.clone(),
        rounds: here.map(|here| here.rounds.clone()).unwrap_or_default(),
        median: here.map(|here| here.comparison.ratio),
        interval: here.and_then(|here| here.comparison.interval),
    }
}
