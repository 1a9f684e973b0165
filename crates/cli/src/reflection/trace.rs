//! Trace of the reflection queries to a server and of its answers, for `--verbose`.

use polyrpc::Status;
use serde_json::{Value, json};

use crate::failure;
use crate::terminal;

/// Output of reflection queries, if any.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    style: Style,
    /// URL of the server, with the protocol of the query.
    url: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Silent,
    Text,
    Json,
}

impl Trace {
    /// Prints nothing.
    pub(crate) fn silent() -> Self {
        Self { style: Style::Silent, url: String::new() }
    }

    /// Prints the queries to a server on standard error, as text or as lines of JSON.
    pub(crate) fn new(url: &str, verbose: bool, json: bool) -> Self {
        let style = match (verbose, json) {
            (false, _) => Style::Silent,
            (true, false) => Style::Text,
            (true, true) => Style::Json,
        };
        Self { style, url: url.to_owned() }
    }

    /// The same trace for another URL.
    pub(crate) fn with_url(&self, url: &str) -> Self {
        Self { style: self.style, url: url.to_owned() }
    }

    /// Prints a query, and its failure if it failed.
    pub(crate) fn show(&self, method: &str, request: &str, failure: Option<&Status>) {
        match self.style {
            Style::Silent => {}
            Style::Text => {
                terminal::print_error(format_args!("> {}: {method}, {request}", self.url));
                match failure {
                    None => terminal::print_error("< answered"),
                    Some(status) => terminal::print_error(format_args!("< {status}")),
                }
            }
            Style::Json => terminal::print_error(self.to_json(method, request, failure)),
        }
    }

    fn to_json(&self, method: &str, request: &str, failure: Option<&Status>) -> Value {
        let mut query = json!({ "url": self.url, "method": method, "request": request });
        if let Value::Object(query) = &mut query {
            let status = failure.map_or("ok", |status| status.code().as_str());
            query.insert("status".into(), status.into());
            query.insert("code".into(), failure.map_or(0, |status| failure::number(status.code())).into());
            if let Some(status) = failure {
                query.insert("message".into(), status.message().into());
            }
        }
        json!({ "query": query })
    }
}
