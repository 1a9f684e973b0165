//! A suite as it is written in TOML, and what is measured of it.

use std::collections::BTreeMap;

use polyrpc_bench_report::model::{self, Chart, Entry, Key, Measure, Published, RatioRow};
use serde::Deserialize;

use super::contract::Contract;
use crate::failure::Failure;

/// A suite.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Definition {
    /// Not in the file: its name.
    #[serde(skip)]
    pub(super) name: String,
    pub(super) suite: About,
    settings: Settings,
    /// Changes of the settings for `--quick`.
    #[serde(default)]
    quick: Changes,
    /// Changes of the settings for `--variant fair`.
    #[serde(default)]
    fair: Changes,
    pub(super) pair: Vec<PairDefinition>,
    case: Vec<CaseDefinition>,
    #[serde(default)]
    table: Vec<TableDefinition>,
    #[serde(default)]
    chart: Vec<Chart>,
    /// Peers of this file; the others come with this program.
    #[serde(default)]
    pub(super) peer: BTreeMap<String, super::peers::PeerDefinition>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct About {
    pub(super) title: String,
    document: String,
    #[serde(default)]
    defects: Vec<String>,
    #[serde(default)]
    deviations: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    contract: Contract,
    rounds: u64,
    window_s: f64,
    warmup_s: f64,
}

/// What a variant changes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Changes {
    rounds: Option<u64>,
    window_s: Option<f64>,
    warmup_s: Option<f64>,
    connections: Option<usize>,
    /// Whether each caller has a connection, also in pairs that share some.
    connection_per_caller: bool,
    interval_s: Option<f64>,
    deviations: Vec<String>,
}

/// A pair of client and server.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PairDefinition {
    pub(super) id: String,
    name: String,
    pub(super) client: String,
    pub(super) server: String,
    /// Scheme of the URL, and its parameters, where the server has several protocols: `rpcx`, `rest-rpc?version=0.11`.
    pub(super) protocol: Option<String>,
    /// Format of the messages, where the protocol has several.
    pub(super) format: Option<String>,
    reference: Option<String>,
    /// Connections that the callers share, instead of those of the case.
    connections: Option<usize>,
    /// The contract, instead of that of the suite.
    contract: Option<Contract>,
    /// Cases that this pair takes part in; all without it.
    cases: Option<Vec<String>>,
}

/// A load.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseDefinition {
    id: String,
    name: String,
    #[serde(default = "default_callers")]
    callers: usize,
    /// Connections; one for each caller without it.
    connections: Option<usize>,
    /// Length of a string in the message.
    #[serde(default)]
    size: usize,
    /// Additions that the server makes for each call.
    #[serde(default)]
    heavy: u64,
    /// Seconds between the starts of two calls of a caller.
    interval_s: Option<f64>,
    window_s: Option<f64>,
    quick_window_s: Option<f64>,
    missing: Option<String>,
}

fn default_callers() -> usize {
    1
}

/// A table: each figure has a row and a column, which together give its pair, its case and its measure.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TableDefinition {
    id: String,
    title: String,
    note: Option<String>,
    pair: Option<String>,
    case: Option<String>,
    measure: Option<Measure>,
    columns: Vec<PartialKey>,
    rows: Vec<Row>,
    /// For pairs of the document, the pairs of PolyRPC whose figures are shown beside them.
    #[serde(default)]
    beside: BTreeMap<String, String>,
    #[serde(default)]
    ratio: Vec<RatioDefinition>,
}

/// Parts of a key; an omitted part stands for any value.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PartialKey {
    name: String,
    pair: Option<String>,
    case: Option<String>,
    measure: Option<Measure>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    pair: Option<String>,
    case: Option<String>,
    measure: Option<Measure>,
    /// A figure for each column: a number, an interval [low, high], or "" if the document has none.
    published: Vec<Figure>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Figure {
    Published(Published),
    Absent(Absent),
}

#[derive(Debug, Clone, Copy, Deserialize)]
enum Absent {
    #[serde(rename = "")]
    Absent,
}

/// For each figure of the table with this pair, case and measure: its ratio to the figure in which `to` differs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RatioDefinition {
    /// `{case}` and `{measure}` are replaced.
    name: String,
    #[serde(default)]
    of: PartialKey,
    to: PartialKey,
    /// Other operands of the same ratio, which are shown too, since the document's may be missing.
    #[serde(default)]
    also: Vec<RatioOperands>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RatioOperands {
    of: String,
    to: String,
}

/// What the command line chooses.
pub(super) struct Choice<'a> {
    pub(super) is_quick: bool,
    pub(super) variant: &'a str,
    pub(super) rounds: Option<u64>,
    pub(super) cases: &'a [String],
    pub(super) peers: &'a [String],
    pub(super) command: String,
}

/// What is measured, without its results.
pub(super) struct Plan<'a> {
    pub(super) definition: &'a Definition,
    pub(super) suite: model::Suite,
    pub(super) cells: Vec<CellPlan>,
}

/// A pair under a case.
#[derive(Debug, Clone)]
pub(super) struct CellPlan {
    pub(super) pair: PairDefinition,
    pub(super) case: String,
    pub(super) contract: Contract,
    pub(super) callers: usize,
    pub(super) connections: usize,
    pub(super) size: usize,
    pub(super) heavy: u64,
    pub(super) interval_s: Option<f64>,
    pub(super) window_s: f64,
    pub(super) warmup_s: f64,
}

impl CellPlan {
    /// Variants and pairs change settings of the suite and its cases: only what comes of all of them can be checked.
    fn check(&self) -> Result<(), String> {
        let is_time = |seconds: f64| seconds > 0.0 && seconds <= MAX_SECONDS;
        if !is_time(self.window_s) {
            return Err(format!(
                "a window has more than 0 and at most {MAX_SECONDS} seconds, not {}",
                self.window_s
            ));
        }
        if !(0.0..=MAX_SECONDS).contains(&self.warmup_s) {
            return Err(format!("a warm-up has 0 to {MAX_SECONDS} seconds, not {}", self.warmup_s));
        }
        if let Some(interval) = self.interval_s.filter(|interval| !is_time(*interval)) {
            return Err(format!(
                "an interval has more than 0 and at most {MAX_SECONDS} seconds, not {interval}"
            ));
        }
        if self.connections == 0 || self.connections > self.callers {
            return Err(format!("{} callers cannot use {} connections", self.callers, self.connections));
        }
        Ok(())
    }
}

/// Longest time in a suite, in seconds.
const MAX_SECONDS: f64 = 3600.0;

impl Definition {
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, Failure> {
        let mut definition: Self = toml::from_str(text)
            .map_err(|error| Failure::new(format!("{name}: {}", error.to_string().trim())))?;
        name.clone_into(&mut definition.name);
        definition.check().map_err(|text| Failure::new(format!("{name}: {text}")))?;
        Ok(definition)
    }

    /// Names that lead nowhere are mistakes of the author.
    fn check(&self) -> Result<(), String> {
        let pairs: Vec<_> = self.pair.iter().map(|pair| pair.id.as_str()).collect();
        let cases: Vec<_> = self.case.iter().map(|case| case.id.as_str()).collect();
        let known = |what: &str, id: &str, all: &[&str]| match all.contains(&id) {
            true => Ok(()),
            false => Err(format!("there is no {what} {id:?}")),
        };
        for pair in &self.pair {
            pair.reference.as_deref().map_or(Ok(()), |id| known("pair", id, &pairs))?;
            pair.cases.iter().flatten().try_for_each(|id| known("case", id, &cases))?;
        }
        for (number, case) in self.case.iter().enumerate() {
            let connections = case.connections.unwrap_or(case.callers);
            if case.callers == 0 || connections == 0 || connections > case.callers {
                return Err(format!("{} callers cannot use {connections} connections", case.callers));
            }
            if cases[..number].contains(&case.id.as_str()) {
                return Err(format!("there are two cases {:?}", case.id));
            }
        }
        for table in &self.table {
            for entry in &table.entries()? {
                known("pair", &entry.key.pair, &pairs)?;
                known("case", &entry.key.case, &cases)?;
                entry.beside.as_deref().map_or(Ok(()), |id| known("pair", id, &pairs))?;
            }
            for operands in table.ratio.iter().flat_map(|ratio| &ratio.also) {
                [&operands.of, &operands.to].into_iter().try_for_each(|id| known("pair", id, &pairs))?;
            }
        }
        for chart in &self.chart {
            chart.pairs.iter().try_for_each(|id| known("pair", id, &pairs))?;
            chart.cases.iter().try_for_each(|id| known("case", id, &cases))?;
        }
        Ok(())
    }

    /// Every published figure by its key. A figure that the document has twice, such as that of two runs, is between both.
    fn published_figures(&self) -> BTreeMap<Key, Published> {
        let mut all = BTreeMap::new();
        for entry in self.table.iter().filter_map(|table| table.entries().ok()).flatten() {
            let Some(published) = entry.published else { continue };
            all.entry(entry.key)
                .and_modify(|other: &mut Published| *other = other.hull(published))
                .or_insert(published);
        }
        all
    }
}

impl TableDefinition {
    /// Its figures, row by row.
    fn entries(&self) -> Result<Vec<Entry>, String> {
        let mut entries = Vec::new();
        for row in &self.rows {
            if row.published.len() != self.columns.len() {
                return Err(format!(
                    "table {}, row {}: {} figures for {} columns",
                    self.id,
                    row.name,
                    row.published.len(),
                    self.columns.len()
                ));
            }
            for (column, figure) in self.columns.iter().zip(&row.published) {
                let first = |row: &Option<String>, column: &Option<String>, table: &Option<String>| {
                    row.clone().or_else(|| column.clone()).or_else(|| table.clone())
                };
                let pair = first(&row.pair, &column.pair, &self.pair);
                let case = first(&row.case, &column.case, &self.case);
                let measure = row.measure.or(column.measure).or(self.measure);
                let published = match figure {
                    Figure::Published(published) => Some(*published),
                    Figure::Absent(Absent::Absent) => None,
                };
                entries.push(match (pair, case, measure) {
                    (Some(pair), Some(case), Some(measure)) => {
                        let beside = self.beside.get(&pair).cloned();
                        Entry { key: Key { pair, case, measure }, published, beside }
                    }
                    _ => {
                        return Err(format!(
                            "table {}, row {}, column {}: a figure needs a pair, a case and a measure",
                            self.id, row.name, column.name
                        ));
                    }
                });
            }
        }
        Ok(entries)
    }

    fn ratios(&self, entries: &[Entry], all: &BTreeMap<Key, Published>) -> Vec<RatioRow> {
        let mut rows: Vec<RatioRow> = Vec::new();
        for ratio in &self.ratio {
            for entry in entries.iter().filter(|entry| ratio.of.matches(&entry.key)) {
                rows.extend(ratio.rows(entry, all));
            }
        }
        rows
    }

    fn build(&self, all: &BTreeMap<Key, Published>) -> model::Table {
        // They were checked when the definition was read.
        let entries = self.entries().unwrap_or_default();
        model::Table {
            id: self.id.clone(),
            title: self.title.clone(),
            columns: self.columns.iter().map(|column| column.name.clone()).collect(),
            rows: self.rows.iter().map(|row| row.name.clone()).collect(),
            ratios: self.ratios(&entries, all),
            entries,
            note: self.note.clone(),
        }
    }
}

impl RatioDefinition {
    /// The ratio of an entry, and the same of other pairs.
    fn rows(&self, entry: &Entry, all: &BTreeMap<Key, Published>) -> Vec<RatioRow> {
        let to = self.to.apply(&entry.key);
        if to == entry.key {
            return Vec::new();
        }
        let name = self.name.replace("{case}", &entry.key.case);
        let name = name.replace("{measure}", &entry.key.measure.to_string());
        let published = all.get(&entry.key).zip(all.get(&to)).and_then(|(of, to)| of.ratio(*to));
        let others = self.also.iter().map(|operands| RatioRow {
            name: if operands.of == operands.to {
                format!("{name}: {}", operands.of)
            } else {
                format!("{name}: {} / {}", operands.of, operands.to)
            },
            published,
            of: Key { pair: operands.of.clone(), ..entry.key.clone() },
            to: Key { pair: operands.to.clone(), ..to.clone() },
        });
        let own = RatioRow { name: name.clone(), published, of: entry.key.clone(), to: to.clone() };
        std::iter::once(own).chain(others).collect()
    }
}

impl PartialKey {
    fn matches(&self, key: &Key) -> bool {
        self.pair.as_ref().is_none_or(|pair| *pair == key.pair)
            && self.case.as_ref().is_none_or(|case| *case == key.case)
            && self.measure.is_none_or(|measure| measure == key.measure)
    }

    fn apply(&self, key: &Key) -> Key {
        Key {
            pair: self.pair.clone().unwrap_or_else(|| key.pair.clone()),
            case: self.case.clone().unwrap_or_else(|| key.case.clone()),
            measure: self.measure.unwrap_or(key.measure),
        }
    }
}

impl<'a> Plan<'a> {
    pub(super) fn new(definition: &'a Definition, choice: &Choice<'_>) -> Result<Self, Failure> {
        let mut settings = definition.settings.clone();
        let is_fair = choice.variant == "fair";
        let changes: Vec<_> = [(is_fair, &definition.fair), (choice.is_quick, &definition.quick)]
            .into_iter()
            .filter_map(|(applies, changes)| applies.then_some(changes))
            .collect();
        for changes in &changes {
            settings.rounds = changes.rounds.unwrap_or(settings.rounds);
            settings.window_s = changes.window_s.unwrap_or(settings.window_s);
            settings.warmup_s = changes.warmup_s.unwrap_or(settings.warmup_s);
        }
        settings.rounds = choice.rounds.unwrap_or(settings.rounds);
        if settings.rounds == 0 {
            return Err(Failure::new(format!("{}: expected at least one round", definition.name)));
        }
        let cases = choose_cases(definition, choice)?;
        let mut cells = Vec::new();
        for case in cases.iter().filter(|case| case.missing.is_none()) {
            for pair in definition.pair.iter().filter(|pair| takes_part(pair, case, choice)) {
                let cell = cell(&settings, &changes, choice.is_quick, pair, case);
                let at = |text: String| format!("{}: case {}, {}: {text}", definition.name, case.id, pair.id);
                cell.check().map_err(|text| Failure::new(at(text)))?;
                cells.push(cell);
            }
        }
        if cells.is_empty() && cases.iter().any(|case| case.missing.is_none()) {
            return Err(Failure::new(format!("{} has no pair with the peers of --peer", definition.name)));
        }
        let suite = suite(definition, &settings, &changes, choice, &cases);
        Ok(Self { definition, suite, cells })
    }
}

fn choose_cases<'d>(
    definition: &'d Definition,
    choice: &Choice<'_>,
) -> Result<Vec<&'d CaseDefinition>, Failure> {
    let is_chosen = |case: &&CaseDefinition| choice.cases.is_empty() || choice.cases.contains(&case.id);
    let chosen: Vec<_> = definition.case.iter().filter(is_chosen).collect();
    let known: Vec<_> = definition.case.iter().map(|case| case.id.as_str()).collect();
    match choice.cases.iter().find(|id| !known.contains(&id.as_str())) {
        Some(id) => Err(Failure::new(format!("{} has no case {id}", definition.name))
            .with_hint(format!("its cases are {}", known.join(", ")))),
        None => Ok(chosen),
    }
}

fn takes_part(pair: &PairDefinition, case: &CaseDefinition, choice: &Choice<'_>) -> bool {
    let is_chosen =
        choice.peers.is_empty() || choice.peers.contains(&pair.client) && choice.peers.contains(&pair.server);
    is_chosen && pair.cases.as_ref().is_none_or(|cases| cases.contains(&case.id))
}

fn cell(
    settings: &Settings,
    changes: &[&Changes],
    is_quick: bool,
    pair: &PairDefinition,
    case: &CaseDefinition,
) -> CellPlan {
    let per_caller = changes.iter().any(|changes| changes.connection_per_caller);
    let shared = changes.iter().rev().find_map(|changes| changes.connections);
    let connections = match per_caller {
        true => case.callers,
        false => shared.or(pair.connections).or(case.connections).unwrap_or(case.callers).min(case.callers),
    };
    let interval = changes.iter().rev().find_map(|changes| changes.interval_s);
    let own_window = if is_quick { case.quick_window_s } else { case.window_s };
    CellPlan {
        pair: pair.clone(),
        case: case.id.clone(),
        contract: pair.contract.unwrap_or(settings.contract),
        callers: case.callers,
        connections,
        size: case.size,
        heavy: case.heavy,
        interval_s: case.interval_s.map(|own| interval.unwrap_or(own)),
        window_s: own_window.unwrap_or(settings.window_s),
        // A call a second has no throughput to warm up; one call is made before the measurement anyway.
        warmup_s: if case.interval_s.is_some() { 0.0 } else { settings.warmup_s },
    }
}

fn suite(
    definition: &Definition,
    settings: &Settings,
    changes: &[&Changes],
    choice: &Choice<'_>,
    cases: &[&CaseDefinition],
) -> model::Suite {
    let about = &definition.suite;
    let all = definition.published_figures();
    let deviations = about.deviations.iter().chain(changes.iter().flat_map(|changes| &changes.deviations));
    let not_chosen = definition.case.iter().filter(|case| !cases.iter().any(|chosen| chosen.id == case.id));
    let not_chosen = not_chosen.map(|case| model::Case {
        missing: Some("not among the cases of --case".to_owned()),
        ..report_case(case)
    });
    model::Suite {
        name: definition.name.clone(),
        title: about.title.clone(),
        document: about.document.clone(),
        variant: format!("{}{}", choice.variant, if choice.is_quick { ", quick" } else { "" }),
        rounds: settings.rounds,
        window_s: settings.window_s,
        warmup_s: settings.warmup_s,
        defects: about.defects.clone(),
        deviations: deviations.cloned().collect(),
        pairs: definition.pair.iter().map(report_pair).collect(),
        cases: cases.iter().map(|case| report_case(case)).chain(not_chosen).collect(),
        tables: definition.table.iter().map(|table| table.build(&all)).collect(),
        charts: definition.chart.clone(),
        metadata: model::Metadata { command: choice.command.clone(), ..model::Metadata::default() },
        ..model::Suite::default()
    }
}

fn report_pair(pair: &PairDefinition) -> model::Pair {
    model::Pair {
        id: pair.id.clone(),
        name: pair.name.clone(),
        client: pair.client.clone(),
        server: pair.server.clone(),
        reference: pair.reference.clone(),
    }
}

fn report_case(case: &CaseDefinition) -> model::Case {
    let connections = match case.connections {
        Some(connections) => format!("{connections} connections"),
        None => "a connection each".to_owned(),
    };
    let mut load = format!("{} callers, {connections}", case.callers);
    if case.size > 0 {
        load += &format!(", {} B", case.size);
    }
    if case.heavy > 0 {
        load += &format!(", {} additions a call", case.heavy);
    }
    if let Some(interval) = case.interval_s {
        load += &format!(", a call each {interval} s");
    }
    model::Case { id: case.id.clone(), name: case.name.clone(), load, missing: case.missing.clone() }
}

#[cfg(test)]
mod tests {
    use super::super::shipped::SUITES;
    use super::*;

    fn parse_shipped(name: &str) -> Definition {
        let (name, text) = SUITES.iter().find(|(shipped, _)| *shipped == name).unwrap();
        Definition::parse(name, text).unwrap()
    }

    fn choice(is_quick: bool, variant: &str) -> Choice<'_> {
        Choice { is_quick, variant, rounds: None, cases: &[], peers: &[], command: String::new() }
    }

    #[test]
    fn suites_have_every_table_figure_and_number_of_their_documents() {
        // Tables, figures, published numbers.
        let documents = [
            // 4 + 3 + 3 rows of two systems.
            ("rest_rpc-brpc", 3, 4, 20),
            // Two summaries of 11 numbers, four logs of fastest, mean and slowest call.
            ("brpc-grpc", 6, 2, 2 * 11 + 4 * 3),
            // Three placements of two systems with five rows of five numbers, eight codecs with three.
            ("rpcx-grpc", 7, 5, 6 * 25 + 8 * 3),
            // Two tables of three rows; the fourth is a ratio.
            ("flatbuffers", 2, 0, 2 * 3 * 10),
            ("grpc-connections", 1, 2, 5 * 4),
        ];
        for (name, tables, figures, numbers) in documents {
            let definition = parse_shipped(name);
            assert_eq!((definition.table.len(), definition.chart.len()), (tables, figures), "{name}");
            let entries = definition.table.iter().flat_map(|table| table.entries().unwrap());
            let published = entries.filter(|entry| entry.published.is_some()).count();
            assert_eq!(published, numbers, "{name}");
            assert!(!definition.suite.defects.is_empty(), "{name}");
        }
    }

    #[test]
    fn page_has_every_table_row_and_figure_of_a_document_even_if_nothing_was_measured() {
        for (name, text) in SUITES {
            let definition = Definition::parse(name, text).unwrap();
            let suite = Plan::new(&definition, &choice(true, "published")).unwrap().suite;
            let rows: usize = suite.tables.iter().map(|table| table.rows.len()).sum();
            let (tables, figures) = (suite.tables.len(), suite.charts.len());
            let document = model::Document::Suite(Box::new(suite));
            let page = polyrpc_bench_report::report::html(name, &[(name.to_owned(), document)]);
            let count = |text: &str| page.matches(text).count();
            assert_eq!((count("data-table="), count("data-chart=")), (tables, figures), "{name}");
            assert_eq!((count(", published</th>"), count(", here</th>")), (rows, rows), "{name}");
        }
    }

    #[test]
    fn published_ratios_are_those_of_the_documents() {
        let ratios = |name: &str, table: &str| {
            let definition = parse_shipped(name);
            let plan = Plan::new(&definition, &choice(true, "published")).unwrap();
            let table = plan.suite.tables.iter().find(|other| other.id == table).unwrap();
            table.ratios.iter().filter_map(|row| row.published).collect::<Vec<_>>()
        };
        // rpcx answered 2.7 to 3 times as many calls as gRPC on one machine.
        let rates: Vec<_> = ratios("rpcx-grpc", "rpcx-1").iter().map(|ratio| ratio.low()).take(10).collect();
        assert!(rates.iter().all(|ratio| (2.7..3.0).contains(ratio)), "{rates:?}");
        // FlatBuffers gain 20 to 30 % with rounding.
        for table in ["threads-1", "threads-64"] {
            let gains = ratios("flatbuffers", table);
            assert!(gains.iter().all(|gain| gain.low() > 1.19 && gain.high() < 1.34), "{gains:?}");
            assert_eq!(gains.len(), 20);
        }
        // Two runs of the same: the ratio lies between those of the runs.
        let [heavy, ..] = ratios("brpc-grpc", "client-heavy-1")[..] else { panic!() };
        assert_eq!(heavy, Published::Between(23283.0 / 562.0, 23807.0 / 560.0));
    }

    #[test]
    fn variants_change_windows_and_connections_and_say_so() {
        let definition = parse_shipped("rest_rpc-brpc");
        let published = Plan::new(&definition, &choice(false, "published")).unwrap();
        let fair = Plan::new(&definition, &choice(false, "fair")).unwrap();
        let quick = Plan::new(&definition, &choice(true, "published")).unwrap();
        let load = |plan: &Plan<'_>, pair: &str| {
            let cell = plan.cells.iter().find(|cell| cell.pair.id == pair && cell.case == "20-1k").unwrap();
            (cell.callers, cell.connections)
        };
        // brpc's threads share a connection in the document, rest_rpc's do not.
        assert_eq!((load(&published, "brpc"), load(&published, "rest")), ((20, 1), (20, 20)));
        assert_eq!((load(&fair, "brpc"), load(&fair, "rest")), ((20, 20), (20, 20)));
        assert!(quick.cells.iter().all(|cell| cell.window_s < 0.5));
        assert_eq!((published.suite.rounds, quick.suite.rounds), (6, 6));
        let says = |plan: &Plan<'_>, what: &str| plan.suite.deviations.iter().any(|text| text.contains(what));
        assert!(says(&fair, "--variant fair") && !says(&published, "--variant fair"));
        assert!(says(&quick, "--quick"));
    }

    /// Returns the error of a suite with one case, `--quick` and `--variant fair`.
    fn plan_error(settings: &str, pair: &str, case: &str, changes: &str) -> String {
        let text = format!(
            "suite = {{ title = \"t\", document = \"d\" }}\n[settings]\ncontract = \"hello\"\n{settings}\n\
             [[pair]]\nid = \"pair\"\nname = \"p\"\nclient = \"polyrpc\"\nserver = \"polyrpc\"\n{pair}\n\
             [[case]]\nid = \"few\"\nname = \"f\"\n{case}\n{changes}"
        );
        let definition = Definition::parse("own", &text).unwrap();
        match Plan::new(&definition, &choice(true, "fair")) {
            Ok(_) => String::new(),
            Err(failure) => failure.text().to_owned(),
        }
    }

    #[test]
    fn impossible_times_and_connections_are_errors_with_the_name_of_the_case() {
        let good = "rounds = 1\nwindow_s = 1.0\nwarmup_s = 0.0";
        assert_eq!(plan_error(good, "", "", ""), "");
        for wrong in ["-1.0", "0.0", "inf", "nan", "3601.0"] {
            for (case, changes) in [
                (format!("quick_window_s = {wrong}"), String::new()),
                (format!("interval_s = {wrong}"), String::new()),
                (String::new(), format!("[quick]\nwindow_s = {wrong}")),
                ("interval_s = 1.0".to_owned(), format!("[fair]\ninterval_s = {wrong}")),
            ] {
                let text = plan_error(good, "", &case, &changes);
                assert!(text.starts_with("own: case few, pair: a"), "{case}{changes}: {text}");
            }
            let text = plan_error(&good.replace("1.0", wrong), "", "", "");
            assert!(text.contains("a window has more than 0"), "{wrong}: {text}");
        }
        let text = plan_error(good, "", "", "[fair]\nwarmup_s = -1.0");
        assert!(text.contains("a warm-up has 0 to 3600 seconds, not -1"), "{text}");
        for (pair, changes) in [("connections = 0", ""), ("", "[fair]\nconnections = 0")] {
            let text = plan_error(good, pair, "", changes);
            assert_eq!(text, "own: case few, pair: 1 callers cannot use 0 connections");
        }
        assert_eq!(
            plan_error(&good.replace("= 1\n", "= 0\n"), "", "", ""),
            "own: expected at least one round"
        );
    }
}
