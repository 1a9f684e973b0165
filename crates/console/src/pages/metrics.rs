//! `/metrics` and `/brpc_metrics`, for Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;

use polyrpc::layers::Metrics;

use crate::console::State;
use crate::reply::Reply;
use crate::request::PageRequest;
use crate::vars::{self, Kind, Reading};

const TYPE: &str = "text/plain; version=0.0.4";

pub(super) fn answer(state: &State, _: &PageRequest) -> Reply {
    let mut all = state.metrics();
    if all.is_empty() {
        // The process has metrics too.
        all.push(Metrics::with_max_series(0));
    }
    let mut page = Metrics::text_of(&all);
    write_variables(&mut page);
    Reply::new(200, TYPE, page)
}

pub(super) fn answer_brpc(state: &State, _: &PageRequest) -> Reply {
    let servers = state.servers();
    let texts = servers
        .iter()
        .filter_map(|server| server.monitor.metrics().map(|metrics| metrics.brpc_text(&server.port())));
    let mut page = merge_pages(texts);
    write_variables(&mut page);
    Reply::new(200, TYPE, page)
}

/// Joins pages, so that each metric is described once. Of a series that several pages have, the first counts.
fn merge_pages(pages: impl Iterator<Item = String>) -> String {
    #[derive(Default)]
    struct Family {
        head: String,
        series: Vec<String>,
        known: std::collections::HashSet<String>,
    }
    let mut families = BTreeMap::<String, Family>::new();
    for page in pages {
        let mut current = String::new();
        for line in page.lines() {
            let described = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE "));
            match described {
                Some(rest) => {
                    current = rest.split(' ').next().unwrap_or_default().to_owned();
                    let family = families.entry(current.clone()).or_default();
                    if !family.head.lines().any(|known| known == line) {
                        family.head += line;
                        family.head += "\n";
                    }
                }
                None => {
                    let family = families.entry(current.clone()).or_default();
                    let series = line.rsplit_once(' ').map_or(line, |(series, _)| series);
                    if family.known.insert(series.to_owned()) {
                        family.series.push(line.to_owned());
                    }
                }
            }
        }
    }
    let mut page = String::new();
    for Family { head, series, .. } in families.into_values() {
        page += &head;
        for line in series {
            page += &line;
            page += "\n";
        }
    }
    page
}

/// Adds the program's variables.
fn write_variables(page: &mut String) {
    let mut families = BTreeMap::<String, Vec<Reading>>::new();
    for reading in vars::read_all().into_iter().filter(|reading| reading.value.number().is_some()) {
        families.entry(reading.name.clone()).or_default().push(reading);
    }
    for (name, readings) in families {
        // A digit may not come first, and names of the library are its own.
        let reserved = ["polyrpc_", "process_", "rpc_server_"].iter().any(|prefix| name.starts_with(prefix));
        if reserved || name.starts_with(|letter: char| letter.is_ascii_digit()) {
            continue;
        }
        let kind = match readings.first().map(|reading| reading.kind) {
            Some(Kind::Counter) => "counter",
            _ => "gauge",
        };
        // Writing to a string does not fail.
        let _ = writeln!(page, "# HELP {name}\n# TYPE {name} {kind}");
        for reading in readings {
            let value = reading.value.number().unwrap_or_default();
            let _ = writeln!(page, "{} {value}", reading.full_name());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_joined_by_metric() {
        let one = "# HELP a A.\n# TYPE a counter\na{x=\"1\"} 1\n# TYPE p gauge\np 7\n";
        let other = "# HELP a A.\n# TYPE a counter\na{x=\"2\"} 2\n# TYPE p gauge\np 8\n";
        let page = merge_pages([one.to_owned(), other.to_owned()].into_iter());
        assert_eq!(page, "# HELP a A.\n# TYPE a counter\na{x=\"1\"} 1\na{x=\"2\"} 2\n# TYPE p gauge\np 7\n");
    }
}
