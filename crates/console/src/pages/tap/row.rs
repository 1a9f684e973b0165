use serde::Serialize;

use super::letter;
use crate::html::Html;
use crate::request::PageFormat;
use crate::stats::micros;
use crate::tap::TapCall;
use crate::text::Text;
use crate::time::Date;

/// A call. Times are in microseconds.
#[derive(Serialize)]
pub(super) struct Row {
    ended: String,
    side: &'static str,
    protocol: &'static str,
    name: String,
    peer: String,
    took: u64,
    request: usize,
    reply: usize,
    status: &'static str,
    number: Option<i32>,
    /// `***` unless values are wanted.
    message: Option<String>,
    #[serde(skip)]
    letter: &'static str,
}

impl Row {
    pub(super) fn new(call: &TapCall, values: bool) -> Self {
        let facts = &call.facts;
        let message = || if values { call.message.to_string() } else { "***".to_owned() };
        Self {
            ended: format!("{:#}", Date(call.ended)),
            side: facts.side.as_str(),
            protocol: facts.protocol,
            name: call.name.to_string(),
            peer: call.peer.to_string(),
            took: micros(facts.took),
            request: facts.sizes.0,
            reply: facts.sizes.1,
            status: call.status(),
            number: facts.failure.and_then(|(_, number)| number),
            message: facts.failure.map(|_| message()),
            letter: letter(facts.side),
        }
    }

    /// Writes a line, in the manner of `/rpcz`.
    pub(super) fn write(&self, text: &mut Text) {
        text.value(&self.ended).raw("    .").value(format_args!("{:>6}", self.took)).raw(" ");
        text.raw(self.letter).raw(" ").value(self.protocol).raw(" ").value(self.peer()).raw(" ");
        text.value(self.name.replace('/', ".")).raw("(").value(self.request).raw(")=").value(self.reply);
        text.raw(" [").value(self.result()).raw("]\n");
    }

    pub(super) fn write_html(&self, html: &mut Html) {
        html.raw("<tr><td>").text(&self.ended).raw("</td><th scope=row>").text(&self.name).raw("</th>");
        html.cell(self.side).cell(self.protocol).cell(self.peer()).number(self.took);
        html.number(self.request).number(self.reply).cell(self.result()).raw("</tr>");
    }

    fn peer(&self) -> &str {
        if self.peer.is_empty() { "-" } else { &self.peer }
    }

    fn result(&self) -> String {
        match (&self.message, self.number) {
            (None, _) => "OK".to_owned(),
            (Some(message), None) => format!("{}: {message}", self.status),
            (Some(message), Some(number)) => format!("{} {number}: {message}", self.status),
        }
    }
}

/// Returns a call as a line: of JSON, or of text.
pub(crate) fn line(call: &TapCall, values: bool, format: PageFormat) -> String {
    let row = Row::new(call, values);
    match format {
        PageFormat::Json => serde_json::to_string(&row).unwrap_or_default() + "\n",
        _ => {
            let mut text = Text::default();
            row.write(&mut text);
            text.into_string()
        }
    }
}
