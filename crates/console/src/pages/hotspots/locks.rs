use polyrpc::contention;
use serde::Serialize;

use super::super::layout::{Document, render};
use crate::html::Html;
use crate::reply::Reply;
use crate::request::PageRequest;
use crate::stats::micros;
use crate::text::Text;

/// A location in the program where threads have waited for a lock. Durations are in microseconds.
#[derive(Debug, Serialize)]
pub(super) struct LockRow {
    location: String,
    waits: u64,
    total: u64,
    longest: u64,
}

/// How many are listed.
const LISTED: usize = 100;

/// Returns the locations since a console exists, those first that cost most time.
pub(super) fn rows() -> Vec<LockRow> {
    let row = |site: contention::LockSite| LockRow {
        location: if site.file.is_empty() {
            "others".to_owned()
        } else {
            format!("{}:{}", site.file, site.line)
        },
        waits: site.waits,
        total: micros(site.total),
        longest: micros(site.longest),
    };
    contention::sites().into_iter().take(LISTED).map(row).collect()
}

pub(super) fn add_text(text: &mut Text, rows: &[LockRow]) {
    text.raw("     waits   total(us) longest(us)\n");
    for LockRow { location, waits, total, longest } in rows {
        text.value(format_args!("{waits:>10} {total:>11} {longest:>11}  ")).value(location).raw("\n");
    }
}

pub(super) fn add_html(html: &mut Html, rows: &[LockRow]) {
    html.table(
        "Locations where threads have waited for locks, since there is a console",
        &["Location", "Waits", "Waited µs", "Longest µs"],
    );
    for LockRow { location, waits, total, longest } in rows {
        html.raw("<tr><th scope=row>")
            .text(location)
            .raw("</th>")
            .number(waits)
            .number(total)
            .number(longest);
        html.raw("</tr>");
    }
    html.end_table();
}

/// The page where stacks cannot be collected.
#[derive(Serialize)]
struct Locks {
    locks: Vec<LockRow>,
}

/// Answers with the locations.
pub(super) fn answer(request: &PageRequest) -> Reply {
    render(request, &Locks { locks: rows() })
}

impl Document for Locks {
    const NAME: &'static str = "hotspots";
    const TITLE: &'static str = "Locks";

    fn text(&self) -> Text {
        let mut text = Text::default();
        add_text(&mut text, &self.locks);
        text
    }

    fn html(&self) -> Html {
        let mut html = Html::default();
        add_html(&mut html, &self.locks);
        html
    }
}
