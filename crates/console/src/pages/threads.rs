//! `/threads`: the threads of the process. brpc runs `pstack`; no page here starts a process.

use serde::Serialize;

use super::layout::{Document, render};
use crate::console::State;
use crate::html::Html;
use crate::process::{self, Thread};
use crate::reply::Reply;
use crate::request::PageRequest;
use crate::text::Text;

#[derive(Serialize)]
struct Threads {
    threads: Vec<Thread>,
}

pub(super) fn answer(_: &State, request: &PageRequest) -> Reply {
    render(request, &Threads { threads: process::threads() })
}

impl Document for Threads {
    const NAME: &'static str = "threads";
    const TITLE: &'static str = "Threads";

    fn text(&self) -> Text {
        let mut text = Text::default();
        text.line("thread_count", self.threads.len());
        text.raw("Id       |State|Cpu(s)   |Name\n");
        for Thread { id, name, state, cpu } in &self.threads {
            text.column(id, 9).raw("|").column(state, 5).raw("|").column(format_args!("{cpu:.2}"), 9);
            text.raw("|").value(name).raw("\n");
        }
        text
    }

    fn html(&self) -> Html {
        let mut html = Html::default();
        html.table(format_args!("{} threads", self.threads.len()), &["Name", "Id", "State", "CPU s"]);
        for Thread { id, name, state, cpu } in &self.threads {
            html.raw("<tr><th scope=row>").text(name).raw("</th>").number(id).cell(state);
            html.number(format_args!("{cpu:.2}")).raw("</tr>");
        }
        html.end_table();
        html
    }
}
