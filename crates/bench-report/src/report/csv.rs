//! Comma-separated values (RFC 4180), for spreadsheets and plotters.

use std::fmt::Write;

use crate::model::{Document, Measure, Run, Suite, Versus};

/// The course of a run, one line an interval, or the figures of a comparison or of a suite, one line a window. Times of calls are in
/// nanoseconds.
pub fn csv(document: &Document) -> String {
    match document {
        Document::Run(run) => run_csv(run),
        Document::Versus(versus) => versus_csv(versus),
        Document::Suite(suite) => suite_csv(suite),
    }
}

fn suite_csv(suite: &Suite) -> String {
    let mut csv = String::from("case,pair,control,round,failed,invalid");
    MEASURES.iter().for_each(|(name, _)| {
        let _ = write!(csv, ",{name}");
    });
    csv.push_str("\r\n");
    for (cell, window) in
        suite.cells.iter().flat_map(|cell| cell.windows.iter().map(move |window| (cell, window)))
    {
        let measures = MEASURES
            .iter()
            .map(|(_, measure)| window.get(*measure).map_or_else(String::new, |value| format!("{value:.1}")));
        let first = [
            cell.case.clone(),
            cell.pair.clone(),
            cell.is_control.to_string(),
            window.round.to_string(),
            window.failed.to_string(),
            window.invalid.clone().unwrap_or_default(),
        ];
        line(&mut csv, first.into_iter().chain(measures));
    }
    csv
}

const MEASURES: [(&str, Measure); 10] = [
    ("calls_per_second", Measure::Rate),
    ("mean_ns", Measure::Mean),
    ("p50_ns", Measure::P50),
    ("p90_ns", Measure::P90),
    ("p99_ns", Measure::P99),
    ("max_ns", Measure::Max),
    ("client_cpu_ns", Measure::ClientCpu),
    ("server_cpu_ns", Measure::ServerCpu),
    ("client_rss_bytes", Measure::ClientMemory),
    ("server_rss_bytes", Measure::ServerMemory),
];

fn run_csv(run: &Run) -> String {
    let mut csv = String::from(
        "start_s,length_s,sent,succeeded,failed,in_flight,calls_per_second,p50_ns,p90_ns,p99_ns,p99.9_ns,max_ns,\
         lag_max_ns\r\n",
    );
    for second in &run.series {
        let optional = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
        let quantiles =
            [second.p50_ns, second.p90_ns, second.p99_ns, second.p999_ns, second.max_ns, second.lag_max_ns];
        line(
            &mut csv,
            [
                format!("{:.3}", second.start_s),
                format!("{:.3}", second.length_s),
                optional(second.sent),
                second.succeeded.to_string(),
                second.failed.to_string(),
                optional(second.in_flight),
                format!("{:.1}", second.rate()),
            ]
            .into_iter()
            .chain(quantiles.map(optional)),
        );
    }
    csv
}

fn versus_csv(versus: &Versus) -> String {
    let mut csv = String::from("figure,unit,round,subject,window,value\r\n");
    for figure in &versus.figures {
        for (number, round) in figure.rounds.iter().enumerate() {
            for (subject, windows) in [("A", round.a), ("B", round.b)] {
                for (window, value) in windows.into_iter().enumerate() {
                    let (number, window) = ((number + 1).to_string(), (window + 1).to_string());
                    line(
                        &mut csv,
                        [
                            figure.name.clone(),
                            figure.unit.clone(),
                            number,
                            subject.to_owned(),
                            window,
                            value.to_string(),
                        ],
                    );
                }
            }
        }
    }
    csv
}

fn line(csv: &mut String, fields: impl IntoIterator<Item = String>) {
    for (number, field) in fields.into_iter().enumerate() {
        if number > 0 {
            csv.push(',');
        }
        if field.contains([',', '"', '\r', '\n']) {
            // Writing to a string does not fail.
            let _ = write!(csv, "\"{}\"", field.replace('"', "\"\""));
        } else {
            csv.push_str(&field);
        }
    }
    csv.push_str("\r\n");
}
