//! `/vlog`: the log filter. brpc lists its call sites of verbose logging; here logs are those of `tracing`, which the
//! program's subscriber filters. Callers of the role `Write` change the filter, if the program has given it to the
//! console.

use serde::Serialize;

use super::flags;
use super::layout::{Document, failure, render};
use crate::console::State;
use crate::html::Html;
use crate::log_filter::LOG_FILTER;
use crate::reply::{Reply, TEXT};
use crate::request::{PageFormat, PageRequest, Verb};
use crate::settings;
use crate::text::Text;

#[derive(Serialize)]
struct Log {
    /// The most verbose level that a subscriber wants.
    max_level: String,
    /// The filter, if it can be changed.
    filter: Option<String>,
    #[serde(skip)]
    form_token: Option<String>,
}

pub(super) fn answer(state: &State, request: &PageRequest) -> Reply {
    match request.parameter("setvalue") {
        Some(value) => change(request, value),
        None if request.verb == Verb::Post => failure(request, 400, "setvalue is the new filter."),
        None => {
            let max_level = tracing::level_filters::LevelFilter::current().to_string();
            let filter = settings::flags().into_iter().find(|flag| flag.name == LOG_FILTER);
            let filter = filter.map(|flag| flag.value);
            render(request, &Log { max_level, filter, form_token: super::change_token(state, request) })
        }
    }
}

/// Changes the filter. The caller's role was checked.
fn change(request: &PageRequest, value: &str) -> Reply {
    let reply = flags::change(request, LOG_FILTER, value);
    match request.format == PageFormat::Html && reply.status == 303 {
        true => Reply::new(303, TEXT, "done\n").with("location", "/vlog"),
        false => reply,
    }
}

impl Document for Log {
    const NAME: &'static str = "vlog";
    const TITLE: &'static str = "Log";

    fn text(&self) -> Text {
        let mut text = Text::default();
        text.line("max_level", &self.max_level);
        if let Some(filter) = &self.filter {
            text.line("filter", filter);
        }
        text
    }

    fn html(&self) -> Html {
        let mut html = Html::default();
        html.table("Events of tracing", &["Name", "Value"]);
        html.row("Most verbose level that is logged", &self.max_level);
        html.row("Filter", self.filter.as_deref().unwrap_or("cannot be changed while the program runs"));
        html.end_table();
        if let (Some(filter), Some(token)) = (&self.filter, &self.form_token) {
            html.raw("<form method=post action=/vlog><input type=hidden name=token value=\"").text(token);
            html.raw("\"><label>New filter <input name=setvalue size=40 value=\"").text(filter);
            html.raw("\"></label> <label>For <input name=for size=4 placeholder=10m></label> ")
                .raw("<button>Set</button></form>");
        }
        html
    }
}
