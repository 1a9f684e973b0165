//! Reports: complete, escaped, and readable by the tools that they are for.

mod common;

use common::{NASTY, documents, run, suite, versus};
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use polyrpc_bench_report::model::{Document, LoopKind, Run};
use polyrpc_bench_report::report::{csv, hdr_log, html, markdown_block, suite_plot, terminal};

#[test]
fn terminal_shows_verdict_quantiles_thresholds_and_cost() {
    let text = terminal(&Document::Run(Box::new(run())), false);
    for wanted in [
        "open loop, 2,000 calls/s, Poisson arrivals, 4 connections · 60.0 s after 3.00 s of warm-up",
        "verdict   valid: the server is saturated",
        "rate      2,000 calls/s of 2,000 planned  (120,000 calls)",
        "2 unanswered, 0.010 % of all",
        "  NOT MET  p99 < 5.00 ms: 1.71 s",
        "  met      p50 < 1.00 ms: 231 µs",
        "  NOT MET  p99.999 < 1.00 s: fewer than 10 calls lie beyond it",
        "2.58 µs CPU/call, 23.0 MiB memory, process 41",
        "the server is on another machine",
        "     99 % within ",
    ] {
        assert!(text.contains(wanted), "{wanted:?} is missing:\n{text}");
    }
    assert!(!text.contains('\u{1b}') && !text.ends_with('\n'));
    assert!(terminal(&Document::Run(Box::new(run())), true).contains("\u{1b}[1m2,000 calls/s\u{1b}[0m"));
    let mut single = run();
    single.counts.succeeded = 1;
    assert!(terminal(&Document::Run(Box::new(single)), false).contains("  (1 call)"));
}

#[test]
fn terminal_shows_ratios_with_intervals_and_findings() {
    let text = terminal(&Document::Versus(Box::new(versus())), false);
    assert!(text.contains("10 rounds of 2 × 5 s each, 1 repeated"), "{text}");
    let line = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap().to_owned();
    assert!(line("rate ").ends_with("B is better") && line("rate ").contains(" – "), "{text}");
    assert!(line("p50 ").ends_with("the same within 3 %"), "{text}");
    assert!(line("p99 ").ends_with("no difference shown"), "{text}");
    assert!(line("server CPU").ends_with("B is worse"), "{text}");
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let mut hostile = run();
    hostile.target.method = "a\u{1b}[2Jb\nc".to_owned();
    hostile.errors[0].error = "\u{7}\u{9b}31m".to_owned();
    let text = terminal(&Document::Run(Box::new(hostile)), false);
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
}

#[test]
fn csv_has_a_line_for_each_interval_or_window() {
    let [run, versus, suite] = documents();
    // A head, and six windows of three pairs and of the control.
    assert_eq!(csv(&suite).lines().count(), 1 + 4 * 6);
    let text = csv(&run);
    let lines: Vec<_> = text.split("\r\n").collect();
    assert_eq!(lines.len(), 62);
    assert!(lines.iter().take(61).all(|line| line.matches(',').count() == 12), "{text}");
    assert_eq!(lines[1], "0.000,1.000,2000,2000,0,3,2000.0,220000,350000,800000,1600000,2100000,90000");
    let text = csv(&versus);
    assert_eq!(text.split("\r\n").count(), 4 * 10 * 4 + 2);
    // Quotes are doubled.
    let mut quoted = common::versus();
    quoted.figures[0].name = "a \"b\", c".to_owned();
    let text = csv(&Document::Versus(Box::new(quoted)));
    assert!(text.contains("\r\n\"a \"\"b\"\", c\",calls/s,1,A,1,"), "{text:.300}");
}

#[test]
fn hdr_log_is_read_by_the_reference_implementation() {
    let log = hdr_log(&run());
    let tags: Vec<_> = IntervalLogIterator::new(log.as_bytes())
        .filter_map(|entry| match entry.unwrap() {
            LogEntry::Interval(interval) => Some(interval.tag().unwrap().as_str().to_owned()),
            _ => None,
        })
        .collect();
    assert_eq!(tags[..4], ["response", "all", "service", "lag"]);
    assert!(tags[4].starts_with("method:") && tags[5] == "phase:queue", "{tags:?}");
}

#[test]
fn page_is_one_file_without_scripts_and_escapes_texts() {
    let [run, versus, suite] = documents();
    let documents = [(NASTY.to_owned(), run), ("A and B".to_owned(), versus), ("suite".to_owned(), suite)];
    let page = html(NASTY, &documents);
    assert!(!page.contains("<script") && !page.contains("<img") && !page.contains('\u{202e}'), "{page:.500}");
    for reference in ["src=\"", "url(", "@import", "<link", "<iframe", "<object"] {
        assert!(!page.contains(reference), "{reference}");
    }
    // Plots of a run, of a comparison, and of a suite.
    assert_eq!(page.matches("<svg").count(), 5 + 8);
    assert_eq!(page.matches("<figure>").count(), page.matches("</figure>").count());
    assert!(page.matches("<table>").count() >= 5);
    assert!(page.len() < 200_000, "{}", page.len());
}

#[test]
fn page_of_several_runs_has_an_overview_and_names_no_winner() {
    let [run, ..] = documents();
    let page = html("Runs", &[("first".to_owned(), run.clone()), ("second".to_owned(), run)]);
    assert!(page.contains("id=overview") && page.contains("<nav aria-label=Results>"));
    assert!(page.contains("Differences may be those of the machine"));
    assert_eq!(page.matches("<svg").count(), 2 + 2 * 4);
}

#[test]
fn run_without_calls_is_reported() {
    let empty = || hdrhistogram::Histogram::new(3).unwrap();
    let mut without = run();
    without.latency.response = polyrpc_bench_report::model::Latency::new(empty());
    (without.latency.all, without.latency.service, without.latency.lag) = (None, None, None);
    without.series.clear();
    without.steps.clear();
    without.counts.succeeded = 0;
    without.load.kind = LoopKind::Closed;
    let document = Document::Run(Box::new(Run { calls_per_second: 0.0, ..without }));
    assert!(terminal(&document, false).contains("latency   no samples"));
    assert_eq!(html("Empty", &[("empty".to_owned(), document.clone())]).matches("<svg").count(), 0);
    assert_eq!(csv(&document).matches("\r\n").count(), 1);
    assert_eq!(Document::read(&document.to_json()).unwrap(), document);
}

#[test]
fn suite_shows_each_figure_as_published_and_here_with_its_verdict() {
    let document = Document::Suite(Box::new(suite()));
    let text = terminal(&document, false);
    for part in [
        "1 caller       A                published 50,000 – 52,631  here 100,000 [99,000 – 101,000]",
        "published 1.13 – 1.26      here 1.20 [1.20, 1.20]        higher, as published",
        "missing   absent",
        "2 callers, two machines: it needs a second machine",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let page = html("Suite", &[("small".to_owned(), document)]);
    assert_eq!(page.matches("data-table=").count(), 1);
    assert_eq!(page.matches("data-chart=").count(), 2);
    assert!(
        page.contains("contrary to the document") && page.contains("not measured: it needs a second machine")
    );
}

#[test]
fn parts_of_a_suite_are_markdown() {
    let suite = suite();
    let table = markdown_block(&suite, "table rates").unwrap();
    assert!(
        table.starts_with(
            "|  | A | B | C |\n|---|---|---|---|\n| 1 caller | 50,000 – 52,631 · 100,000 · 83,333 |"
        ),
        "{table}"
    );
    assert!(markdown_block(&suite, "ratios rates").unwrap().contains("| 1.13 – 1.26 | 1.20 [1.20, 1.20] |"));
    for part in ["summary", "defects", "deviations", "missing", "pairs", "cost", "beside"] {
        let block = markdown_block(&suite, part).unwrap();
        // Within backticks, markup is text.
        let has_markup = block.split('`').step_by(2).any(|text| text.contains("<img"));
        assert!(!block.is_empty() && !has_markup && !block.contains('\u{202e}'), "{part}: {block}");
    }
    assert!(suite_plot(&suite, "chart rates").unwrap().standalone().starts_with("<svg"));
    assert!(suite_plot(&suite, "ratios rates").is_some() && suite_plot(&suite, "chart far").is_none());
    assert_eq!(markdown_block(&suite, "table none"), None);
    assert_eq!(markdown_block(&suite, "poem"), None);
}
