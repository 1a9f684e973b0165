use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;

use super::super::layout::{Document, render};
use super::graph;
use super::locks::{self, LockRow};
use super::query::ProfileQuery;
use crate::html::Html;
use crate::profiler::{
    Flame, FunctionShare, MAX_SECONDS, Profile, ProfileKind, SECONDS, Scope, flame, functions, profiler,
};
use crate::reply::Reply;
use crate::request::PageRequest;
use crate::text::Text;
use crate::time::Date;

/// A profile, and the others of its kind that are kept.
#[derive(Serialize)]
struct Hotspots {
    kind: &'static str,
    profile: Option<ShownProfile>,
    kept: Vec<Kept>,
    /// Where threads have waited for locks, if that is what profiles of this kind are about.
    locks: Option<Vec<LockRow>>,
}

#[derive(Serialize)]
struct ShownProfile {
    #[serde(skip)]
    kind: ProfileKind,
    id: u64,
    base: Option<u64>,
    began: String,
    seconds: f64,
    frequency: u32,
    /// How many samples or waits there are, and how many are not among them.
    samples: u64,
    missed: u64,
    /// What they weigh, and the unit of that.
    weight: u64,
    unit: &'static str,
    #[serde(skip)]
    counted: &'static str,
    /// The heaviest functions.
    functions: Vec<Row>,
    /// The methods whose handlers were being run, and how much of the time.
    methods: Vec<MethodRow>,
    #[serde(skip)]
    flame: Flame,
    #[serde(skip)]
    focus: Option<String>,
    /// The method whose handlers the graph shows.
    #[serde(skip)]
    method: Option<String>,
    #[serde(skip)]
    by_method: bool,
}

#[derive(Serialize)]
struct Row {
    name: String,
    file: String,
    own: u64,
    total: u64,
    /// How much it has grown since the profile that this one is compared with, in percent: its own share, or, in profiles of
    /// the heap, its bytes with callees, of all bytes of this profile.
    grown: Option<f64>,
}

#[derive(Serialize)]
struct MethodRow {
    name: String,
    /// Share of the time in which its handlers were being run, summed over threads; also while they blocked.
    share: f64,
    /// What its handlers weigh: while they used the CPU, or waited for locks.
    weight: u64,
}

#[derive(Serialize)]
struct Kept {
    id: u64,
    began: String,
    seconds: f64,
    samples: u64,
}

/// How many functions are listed.
const LISTED: usize = 200;

/// Answers with a profile, or with the form if there is none.
pub(crate) fn answer_profile(
    request: &PageRequest,
    query: &ProfileQuery,
    profile: Option<&Arc<Profile>>,
) -> Reply {
    let kept = profiler().profiles().into_iter().filter(|profile| profile.kind == query.kind);
    let kept = kept.map(|profile| Kept {
        id: profile.id,
        began: Date(profile.began).to_string(),
        seconds: profile.took.as_secs_f64(),
        samples: profile.count(),
    });
    let profile = profile.map(|profile| ShownProfile::new(profile, query));
    let locks = (query.kind == ProfileKind::Contention).then(locks::rows);
    render(request, &Hotspots { kind: query.kind.name(), profile, kept: kept.collect(), locks })
}

impl ShownProfile {
    fn new(profile: &Profile, query: &ProfileQuery) -> Self {
        let base = query.base.as_deref();
        let (weight, before) = (profile.weight(), base.map(|base| (functions(base), base.weight())));
        let row = |share: FunctionShare| {
            let grown = before.as_ref().map(|(functions, all)| {
                let known =
                    functions.iter().find(|known| known.name == share.name && known.file == share.file);
                match query.kind.compares_weights() {
                    // The innermost functions are those of the allocator.
                    true => {
                        percent(share.total, weight) - percent(known.map_or(0, |known| known.total), weight)
                    }
                    false => percent(share.own, weight) - percent(known.map_or(0, |known| known.own), *all),
                }
            });
            Row { name: share.name, file: share.file, own: share.own, total: share.total, grown }
        };
        let scope = Scope {
            focus: query.focus.as_deref(),
            method: query.method.as_deref(),
            by_method: query.by_method,
        };
        Self {
            kind: query.kind,
            id: profile.id,
            base: base.map(|base| base.id),
            began: Date(profile.began).to_string(),
            seconds: profile.took.as_secs_f64(),
            frequency: profile.frequency,
            samples: profile.count(),
            missed: profile.missed,
            weight,
            unit: query.kind.units().1,
            counted: query.kind.units().0,
            functions: functions(profile).into_iter().take(LISTED).map(row).collect(),
            methods: MethodRow::all(profile),
            flame: flame(profile, base, scope),
            focus: query.focus.clone(),
            method: query.method.clone(),
            by_method: query.by_method,
        }
    }

    fn html(&self, html: &mut Html, kind: &'static str) {
        html.raw("<p>Profile ").text(self.id).raw(" of ").text(&self.began).raw(", ");
        html.text(format_args!("{:.1}", self.seconds)).raw(" s");
        if self.frequency > 0 {
            html.raw(" at ").text(self.frequency).raw(" Hz");
        }
        html.raw(": ").text(self.samples).raw(" ").raw(self.counted).raw(", ");
        html.text(self.missed).raw(" missed. ");
        for (label, display) in [("pprof", "pprof"), ("collapsed stacks", "collapsed")] {
            view(html, kind, self.id)
                .raw("&amp;display_type=")
                .raw(display)
                .raw("\">")
                .raw(label)
                .raw("</a> ");
        }
        if !self.by_method && self.kind.has_methods() {
            view(html, kind, self.id).raw("&amp;by=method\">by method</a>");
        }
        html.raw("</p>");
        if let Some(base) = self.base {
            html.raw("<p>Compared with profile ").text(base);
            html.raw(": what has grown is red, what has shrunk is blue. Growth is that of ");
            html.raw(match self.kind.compares_weights() {
                true => "bytes, with those of callees, in percent of all bytes of this profile.</p>",
                false => "shares.</p>",
            });
        }
        if let Some(focus) = &self.focus {
            html.raw("<p>What <code>").text(focus).raw("</code> calls. ");
            view(html, kind, self.id).raw("\">Show everything</a></p>");
        }
        if let Some(method) = &self.method {
            html.raw("<p>Handlers of <code>").text(method).raw("</code>. ");
            view(html, kind, self.id).raw("\">Show everything</a></p>");
        }
        let label = format!("Flame graph of {} {}", self.flame.weight, self.unit);
        graph::draw(html, &self.flame, &label, self.unit);
        if self.kind.has_methods() {
            self.method_table(html, kind);
        }
        self.function_table(html, kind);
    }

    fn method_table(&self, html: &mut Html, kind: &'static str) {
        let caption = format_args!(
            "Methods whose handlers were being run: their {}, and the time of all threads, also while they blocked",
            self.unit
        );
        html.table(caption, &["Method", "Own", "Own %", "Share of one thread"]);
        for method in &self.methods {
            html.raw("<tr><th scope=row>");
            view(html, kind, self.id).raw("&amp;method=").segment(&method.name).raw("\">");
            html.text(&method.name).raw("</a></th>").number(method.weight);
            html.number(format_args!("{:.1}", percent(method.weight, self.weight)));
            html.number(format_args!("{:.1} %", method.share * 100.0)).raw("</tr>");
        }
        html.end_table();
    }

    fn function_table(&self, html: &mut Html, kind: &'static str) {
        let columns = ["Function", "Own", "Own %", "With callees", "Grown %", "File"];
        html.table(format_args!("Functions with most {}", self.unit), &columns);
        for row in &self.functions {
            html.raw("<tr><th scope=row>");
            view(html, kind, self.id).raw("&amp;focus=").segment(&row.name).raw("\">");
            html.text(&row.name).raw("</a></th>").number(row.own);
            html.number(format_args!("{:.1}", percent(row.own, self.weight))).number(row.total);
            html.number(row.grown.map_or_else(String::new, |grown| format!("{grown:+.1}")));
            html.cell(&row.file).raw("</tr>");
        }
        html.end_table();
    }
}

/// Begins a link to a profile, within the quotes of its address.
fn view<'h>(html: &'h mut Html, kind: &'static str, id: u64) -> &'h mut Html {
    html.raw("<a href=\"/hotspots/").raw(kind).raw("?view=").text(id)
}

impl MethodRow {
    /// Returns the methods of a profile, the heaviest first.
    fn all(profile: &Profile) -> Vec<Self> {
        let weights = profile.weight_by_method();
        let names: BTreeSet<&str> =
            profile.methods.keys().map(String::as_str).chain(weights.keys().copied()).collect();
        let row = |name: &str| Self {
            name: name.to_owned(),
            share: percent(profile.methods.get(name).copied().unwrap_or(0), profile.sampling_rounds) / 100.0,
            weight: weights.get(name).copied().unwrap_or(0),
        };
        let mut rows: Vec<_> = names.into_iter().map(row).collect();
        rows.sort_by(|one, other| other.weight.cmp(&one.weight).then(other.share.total_cmp(&one.share)));
        rows
    }
}

fn percent(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 * 100.0 / all as f64 }
}

impl Document for Hotspots {
    const NAME: &'static str = "hotspots";
    const TITLE: &'static str = "Profile";

    /// As `pprof -text` writes it.
    fn text(&self) -> Text {
        let mut text = Text::default();
        if let Some(profile) = &self.profile {
            profile.text(&mut text);
        }
        if let Some(locks) = &self.locks {
            locks::add_text(&mut text, locks);
        }
        text
    }

    fn html(&self) -> Html {
        let mut html = Html::default();
        html.raw("<p>");
        for (kind, label) in KINDS {
            html.raw("<a href=\"/hotspots/").raw(kind).raw("\"");
            html.raw(if kind == self.kind { " aria-current=page>" } else { ">" }).raw(label).raw("</a> ");
        }
        html.raw("</p><form method=get action=\"/hotspots/").raw(self.kind);
        match self.kind {
            "heap" => html.raw("\"><input type=hidden name=take value=1>"),
            _ => {
                html.raw("\"><label>Seconds <input name=seconds type=number min=1 max=");
                html.text(MAX_SECONDS).raw(" value=").text(SECONDS).raw("></label>")
            }
        };
        html.raw(" <button>Profile</button></form>");
        match &self.profile {
            Some(profile) => profile.html(&mut html, self.kind),
            None => {
                html.raw("<p>The page appears when the profile is finished.</p>");
            }
        }
        if let Some(locks) = &self.locks {
            locks::add_html(&mut html, locks);
        }
        html.table("Profiles that are kept", &["Profile", "Began", "Seconds", "Count", "Compare"]);
        for kept in &self.kept {
            html.raw("<tr><th scope=row>");
            view(&mut html, self.kind, kept.id).raw("\">").text(kept.id).raw("</a></th>").cell(&kept.began);
            html.number(format_args!("{:.1}", kept.seconds)).number(kept.samples).raw("<td>");
            if let Some(profile) = self.profile.as_ref().filter(|profile| profile.id != kept.id) {
                view(&mut html, self.kind, profile.id).raw("&amp;base=").text(kept.id);
                html.raw("\">with profile ").text(profile.id).raw("</a>");
            }
            html.raw("</td></tr>");
        }
        html.end_table();
        html
    }
}

/// The kinds of profiles, and how they are called.
const KINDS: [(&str, &str); 3] = [("cpu", "CPU"), ("contention", "Contention"), ("heap", "Heap")];

impl ShownProfile {
    fn text(&self, text: &mut Text) {
        text.line("profile", self.id).line(self.counted, self.samples).line("missed", self.missed);
        text.line("seconds", format_args!("{:.1}", self.seconds)).line("unit", self.unit);
        for method in &self.methods {
            text.raw("method: ").value(format_args!("{:>6} {:5.1}% ", method.weight, method.share * 100.0));
            text.value(&method.name).raw("\n");
        }
        text.raw("      flat  flat%       cum   cum%\n");
        for row in &self.functions {
            let share = |weight| percent(weight, self.weight);
            text.value(format_args!("{:>10} {:>5.1}%", row.own, share(row.own))).raw(" ");
            text.value(format_args!("{:>9} {:>5.1}%", row.total, share(row.total))).raw("  ");
            text.value(&row.name).raw("\n");
        }
    }
}
