//! `/vlog`: what is logged. brpc lists its places of verbose logging; here logs are those of `tracing`, which the program's
//! subscriber filters.

use serde::Serialize;

use super::layout::{Document, written};
use crate::console::State;
use crate::html::Html;
use crate::reply::Reply;
use crate::request::PageRequest;
use crate::text::Text;

#[derive(Serialize)]
struct Log {
    /// The most verbose level that a subscriber wants.
    max_level: String,
}

pub(super) fn answer(_: &State, request: &PageRequest) -> Reply {
    written(request, &Log { max_level: tracing::level_filters::LevelFilter::current().to_string() })
}

impl Document for Log {
    const NAME: &'static str = "vlog";
    const TITLE: &'static str = "Log";

    fn text(&self) -> Text {
        let mut text = Text::default();
        text.line("max_level", &self.max_level);
        text
    }

    fn html(&self) -> Html {
        let mut html = Html::default();
        html.table("Events of tracing", &["Name", "Value"]);
        html.row("Most verbose level that is logged", &self.max_level).end_table();
        html
    }
}
