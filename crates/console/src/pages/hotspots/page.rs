use std::sync::Arc;

use serde::Serialize;

use super::super::layout::{Document, written};
use super::graph;
use super::query::ProfileQuery;
use crate::html::Html;
use crate::profiler::{Flame, FunctionShare, MOST_SECONDS, Profile, SECONDS, flame, functions, profiler};
use crate::reply::Reply;
use crate::request::PageRequest;
use crate::text::Text;
use crate::time::Date;

/// A profile, and the others that are kept.
#[derive(Serialize)]
struct Hotspots {
    profile: Option<Shown>,
    kept: Vec<Kept>,
}

#[derive(Serialize)]
struct Shown {
    id: u64,
    base: Option<u64>,
    began: String,
    seconds: f64,
    frequency: u32,
    samples: u64,
    missed: u64,
    /// The functions with most samples.
    functions: Vec<Row>,
    /// The methods whose handlers were being run, and how much of the time.
    methods: Vec<MethodRow>,
    #[serde(skip)]
    flame: Flame,
    #[serde(skip)]
    focus: Option<String>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    file: String,
    own: u64,
    total: u64,
    /// How much its own share is larger than in the profile that this one is compared with, in percent of all samples.
    grown: Option<f64>,
}

#[derive(Serialize)]
struct MethodRow {
    name: String,
    /// Share of the time, summed over threads.
    share: f64,
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
pub(crate) fn shown(request: &PageRequest, query: &ProfileQuery, profile: Option<&Arc<Profile>>) -> Reply {
    let kept = profiler().kept().into_iter().map(|profile| Kept {
        id: profile.id,
        began: Date(profile.began).to_string(),
        seconds: profile.took.as_secs_f64(),
        samples: profile.samples(),
    });
    let profile = profile.map(|profile| Shown::of(profile, query));
    written(request, &Hotspots { profile, kept: kept.collect() })
}

impl Shown {
    fn of(profile: &Profile, query: &ProfileQuery) -> Self {
        let base = query.base.as_deref();
        let (samples, before) = (profile.samples(), base.map(|base| (functions(base), base.samples())));
        let row = |share: FunctionShare| {
            let grown = before.as_ref().map(|(functions, all)| {
                let known =
                    functions.iter().find(|known| known.name == share.name && known.file == share.file);
                percent(share.own, samples) - percent(known.map_or(0, |known| known.own), *all)
            });
            Row { name: share.name, file: share.file, own: share.own, total: share.total, grown }
        };
        let mut methods: Vec<_> = profile
            .methods
            .iter()
            .map(|(name, count)| MethodRow {
                name: name.clone(),
                share: percent(*count, profile.looks) / 100.0,
            })
            .collect();
        methods.sort_by(|one, other| other.share.total_cmp(&one.share));
        Self {
            id: profile.id,
            base: base.map(|base| base.id),
            began: Date(profile.began).to_string(),
            seconds: profile.took.as_secs_f64(),
            frequency: profile.frequency,
            samples,
            missed: profile.missed,
            functions: functions(profile).into_iter().take(LISTED).map(row).collect(),
            methods,
            flame: flame(profile, base, query.focus.as_deref()),
            focus: query.focus.clone(),
        }
    }

    fn html(&self, html: &mut Html) {
        html.raw("<p>Profile ").text(self.id).raw(" of ").text(&self.began).raw(", ");
        html.text(format_args!("{:.1}", self.seconds)).raw(" s at ").text(self.frequency).raw(" Hz: ");
        html.text(self.samples).raw(" samples, ").text(self.missed).raw(" missed. ");
        for (label, display) in [("pprof", "pprof"), ("collapsed stacks", "collapsed")] {
            html.raw("<a href=\"/hotspots/cpu?view=").text(self.id).raw("&amp;display_type=").raw(display);
            html.raw("\">").raw(label).raw("</a> ");
        }
        html.raw("</p>");
        if let Some(base) = self.base {
            html.raw("<p>Compared with profile ").text(base);
            html.raw(": what has grown is red, what has shrunk is blue.</p>");
        }
        if let Some(focus) = &self.focus {
            html.raw("<p>What <code>").text(focus).raw("</code> calls. <a href=\"/hotspots/cpu?view=");
            html.text(self.id).raw("\">Show everything</a></p>");
        }
        graph::draw(html, &self.flame, &format!("Flame graph of {} samples", self.flame.samples));
        html.table(
            "Methods whose handlers were being run, by the time of all threads",
            &["Method", "Share of one thread"],
        );
        for method in &self.methods {
            html.raw("<tr><th scope=row>").text(&method.name).raw("</th>");
            html.number(format_args!("{:.1} %", method.share * 100.0)).raw("</tr>");
        }
        html.end_table().table(
            "Functions with most samples",
            &["Function", "Own", "Own %", "With callees", "Grown %", "File"],
        );
        for row in &self.functions {
            html.raw("<tr><th scope=row><a href=\"/hotspots/cpu?view=").text(self.id).raw("&amp;focus=");
            html.segment(&row.name).raw("\">").text(&row.name).raw("</a></th>");
            html.number(row.own).number(format_args!("{:.1}", percent(row.own, self.samples)));
            html.number(row.total).number(row.grown.map_or_else(String::new, |grown| format!("{grown:+.1}")));
            html.cell(&row.file).raw("</tr>");
        }
        html.end_table();
    }
}

fn percent(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 * 100.0 / all as f64 }
}

impl Document for Hotspots {
    const NAME: &'static str = "hotspots";
    const TITLE: &'static str = "CPU profile";

    /// As `pprof -text` writes it.
    fn text(&self) -> Text {
        let mut text = Text::default();
        let Some(profile) = &self.profile else { return text };
        text.line("profile", profile.id).line("samples", profile.samples).line("missed", profile.missed);
        text.line("seconds", format_args!("{:.1}", profile.seconds));
        for method in &profile.methods {
            text.raw("method: ").value(format_args!("{:5.1}% ", method.share * 100.0));
            text.value(&method.name).raw("\n");
        }
        text.raw("      flat  flat%       cum   cum%\n");
        for row in &profile.functions {
            let share = |count| percent(count, profile.samples);
            text.value(format_args!("{:>10} {:>5.1}%", row.own, share(row.own))).raw(" ");
            text.value(format_args!("{:>9} {:>5.1}%", row.total, share(row.total))).raw("  ");
            text.value(&row.name).raw("\n");
        }
        text
    }

    fn html(&self) -> Html {
        let mut html = Html::default();
        html.raw("<form method=get action=\"/hotspots/cpu\"><label>Seconds <input name=seconds type=number min=1 max=");
        html.text(MOST_SECONDS).raw(" value=").text(SECONDS);
        html.raw("></label> <button>Profile</button></form>");
        match &self.profile {
            Some(profile) => profile.html(&mut html),
            None => {
                html.raw("<p>The page comes when the profile is done.</p>");
            }
        }
        html.table("Profiles that are kept", &["Profile", "Began", "Seconds", "Samples", "Compare"]);
        for kept in &self.kept {
            html.raw("<tr><th scope=row><a href=\"/hotspots/cpu?view=").text(kept.id).raw("\">");
            html.text(kept.id).raw("</a></th>").cell(&kept.began);
            html.number(format_args!("{:.1}", kept.seconds)).number(kept.samples).raw("<td>");
            if let Some(profile) = self.profile.as_ref().filter(|profile| profile.id != kept.id) {
                html.raw("<a href=\"/hotspots/cpu?view=").text(profile.id).raw("&amp;base=").text(kept.id);
                html.raw("\">with profile ").text(profile.id).raw("</a>");
            }
            html.raw("</td></tr>");
        }
        html.end_table();
        html
    }
}
