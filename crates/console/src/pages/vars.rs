//! `/vars`: all variables, and their history.

use serde::Serialize;
use serde_json::json;

use super::chart::{number, plot, sparkline};
use super::layout::{Document, failure, render};
use crate::console::State;
use crate::html::Html;
use crate::reply::{JSON, Reply};
use crate::request::{PageFormat, PageRequest};
use crate::text::{Text, format_count};
use crate::trend::Trend;
use crate::vars::{Reading, Value};
use crate::wildcard::Wildcards;

#[derive(Serialize)]
struct Variables {
    variables: Vec<Variable>,
    /// How many more there are than a page shows. Programs get all.
    #[serde(skip)]
    left_out: usize,
    #[serde(skip)]
    filter: String,
}

#[derive(Serialize)]
struct Variable {
    name: String,
    value: Value,
    /// The values of the last 60 seconds.
    #[serde(skip)]
    trend: Option<Vec<f32>>,
    /// Those of the last 60 minutes, 24 hours and 30 days, if they are shown.
    #[serde(skip)]
    longer: Option<[Vec<f32>; 3]>,
}

/// How many variables a page shows, and how many of them have plots.
const MAX_SHOWN: usize = 1_000;
const PLOTTED: usize = 400;

/// How many variables a list may have for each to have large plots.
const LARGE: usize = 10;

pub(super) fn answer(state: &State, request: &PageRequest) -> Reply {
    let list = request.rest();
    let wanted = match Wildcards::parse(&list) {
        Ok(wanted) => wanted,
        Err((status, why)) => return failure(request, status, why),
    };
    if let (Some(_), Some(name)) = (request.parameter("series"), wanted.single()) {
        return series(state, request, name);
    }
    let filter = request.parameter("filter").unwrap_or_default().to_owned();
    let max =
        if matches!(request.format, PageFormat::Html | PageFormat::Part) { MAX_SHOWN } else { usize::MAX };
    let is_wanted = |reading: &Reading| {
        let name = reading.full_name();
        (wanted.accepts(&reading.name) || wanted.accepts(&name)) && name.contains(&filter)
    };
    let (readings, left_out) = state.readings(is_wanted, max);
    let history = state.history();
    let mut plotted = 0;
    let mut variables = Vec::with_capacity(readings.len());
    for reading in readings {
        let name = reading.full_name().into_owned();
        let trend = history.trend(&name).filter(|_| plotted < PLOTTED);
        let trend = trend.map(|trend| trend.seconds().collect());
        plotted += usize::from(trend.is_some());
        variables.push(Variable { name, value: reading.value, trend, longer: None });
    }
    if !wanted.is_empty() && variables.len() <= LARGE {
        for variable in &mut variables {
            variable.longer = history.trend(&variable.name).map(Trend::longer_series);
        }
    }
    drop(history);
    if variables.is_empty() && !wanted.is_empty() {
        return failure(request, 404, "No variable has such a name.");
    }
    render(request, &Variables { variables, left_out, filter })
}

/// Answers with the history of a variable, as brpc's plots read it (`bvar/detail/series.h`).
fn series(state: &State, request: &PageRequest, name: &str) -> Reply {
    let history = state.history();
    let Some(trend) = history.trend(name) else {
        return failure(request, 404, "The variable has no series.");
    };
    let points: Vec<_> = trend.points().enumerate().collect();
    Reply::new(200, JSON, json!({ "label": "trend", "data": points }).to_string())
}

impl Document for Variables {
    const NAME: &'static str = "vars";
    const TITLE: &'static str = "Variables";

    fn text(&self) -> Text {
        let mut text = Text::default();
        for Variable { name, value, .. } in &self.variables {
            text.value(name).raw(" : ").value(value).raw("\n");
        }
        text
    }

    fn html(&self) -> Html {
        let mut html = Html::default();
        html.raw(
            "<form method=get action=/vars role=search><label>Name contains <input name=filter value=\"",
        )
        .text(&self.filter)
        .raw("\"></label> <button>Search</button></form>");
        if self.left_out > 0 {
            html.raw("<p>There are more than this page shows: search for the others.</p>");
        }
        let caption = match (self.variables.len(), self.variables.len() + self.left_out) {
            (shown, all) if shown == all => format_count(all, "variable"),
            (shown, all) => format!("The first {shown} of {}", format_count(all, "variable")),
        };
        html.table(caption, &["Name", "Value", "Last minute"]);
        for Variable { name, value, trend, .. } in &self.variables {
            html.raw("<tr><th scope=row><a href=\"/vars/")
                .segment(name)
                .raw("\">")
                .text(name)
                .raw("</a></th>");
            html.number(value).raw("<td>");
            if let Some(trend) = trend {
                html.raw("<a href=\"/vars/").segment(name).raw("?series\">");
                sparkline(&mut html, format_args!("{name} in the last minute"), trend.iter().copied());
                html.raw("</a>");
            }
            html.raw("</td></tr>");
        }
        html.end_table();
        for variable in &self.variables {
            variable.plots(&mut html, self.variables.len() == 1);
        }
        html
    }
}

/// What the plots of a variable cover: their names, the time of their first value, and the time between two.
const PLOTS: [(&str, &str, &str); 4] = [
    ("Last 60 seconds", "60 s ago", "s"),
    ("Last 60 minutes", "60 min ago", "min"),
    ("Last 24 hours", "24 h ago", "h"),
    ("Last 30 days", "30 d ago", "d"),
];

impl Variable {
    /// Adds its plots, and on a page of its own the values behind them.
    fn plots(&self, html: &mut Html, has_values: bool) {
        let (Some(seconds), Some(longer)) = (&self.trend, &self.longer) else { return };
        html.raw("<section><h2>").text(&self.name).raw("</h2><div class=plots>");
        let plots = || PLOTS.into_iter().zip([seconds].into_iter().chain(longer));
        for ((name, since, _), values) in plots() {
            html.raw("<figure><figcaption>").raw(name).raw("</figcaption>");
            plot(html, format_args!("{} in the {}", self.name, name.to_lowercase()), since, values);
            html.raw("</figure>");
        }
        html.raw("</div>");
        for ((name, _, unit), values) in plots().filter(|_| has_values) {
            html.raw("<details><summary>Values of the ").text(name.to_lowercase()).raw("</summary>");
            html.table(name, &["Ago", "Value"]);
            for (ago, value) in values.iter().rev().enumerate() {
                html.row(format_args!("{ago} {unit}"), number(f64::from(*value)));
            }
            html.end_table().raw("</details>");
        }
        html.raw("</section>");
    }
}
