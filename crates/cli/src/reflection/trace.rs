//! What a server is asked about itself and how it answers, for `--verbose`.

use polyrpc::Status;
use serde_json::{Value, json};

use crate::failure;
use crate::terminal;

/// Where questions to a server are shown, if anywhere.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    style: Style,
    /// The server, by the protocol that it is asked by.
    url: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Silent,
    Words,
    Json,
}

impl Trace {
    /// Shows nothing.
    pub(crate) fn silent() -> Self {
        Self { style: Style::Silent, url: String::new() }
    }

    /// Shows the questions to a server on standard error, in words or as lines of JSON.
    pub(crate) fn of(url: &str, verbose: bool, json: bool) -> Self {
        let style = match (verbose, json) {
            (false, _) => Style::Silent,
            (true, false) => Style::Words,
            (true, true) => Style::Json,
        };
        Self { style, url: url.to_owned() }
    }

    /// The same for another URL.
    pub(crate) fn by(&self, url: &str) -> Self {
        Self { style: self.style, url: url.to_owned() }
    }

    /// Shows a question, and why it was not answered, if it was not.
    pub(crate) fn show(&self, method: &str, question: &str, failure: Option<&Status>) {
        match self.style {
            Style::Silent => {}
            Style::Words => {
                terminal::tell(format_args!("> {}: {method}, {question}", self.url));
                match failure {
                    None => terminal::tell("< answered"),
                    Some(status) => terminal::tell(format_args!("< {status}")),
                }
            }
            Style::Json => terminal::tell(self.to_json(method, question, failure)),
        }
    }

    fn to_json(&self, method: &str, question: &str, failure: Option<&Status>) -> Value {
        let mut asked = json!({ "url": self.url, "method": method, "question": question });
        if let Value::Object(asked) = &mut asked {
            let status = failure.map_or("ok", |status| status.code().as_str());
            asked.insert("status".into(), status.into());
            asked.insert("code".into(), failure.map_or(0, |status| failure::number(status.code())).into());
            if let Some(status) = failure {
                asked.insert("message".into(), status.message().into());
            }
        }
        json!({ "asked": asked })
    }
}
