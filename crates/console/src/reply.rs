//! Answers to requests for pages.

use serde::Serialize;
use serde_json::json;

use crate::html::Html;
use crate::text::Text;

/// A page, or an error.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
    /// Whether it is sent compressed with gzip.
    pub(crate) is_packed: bool,
    /// Further fields of its head.
    pub(crate) fields: Vec<(&'static str, String)>,
}

pub(crate) const TEXT: &str = "text/plain";
pub(crate) const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";

impl Reply {
    pub(crate) fn new(status: u16, content_type: &'static str, body: impl Into<String>) -> Self {
        Self { status, content_type, body: body.into(), is_packed: false, fields: Vec::new() }
    }

    pub(crate) fn text(text: Text) -> Self {
        Self::new(200, TEXT, text.into_string())
    }

    pub(crate) fn html(status: u16, html: Html) -> Self {
        Self::new(status, HTML, html.into_string())
    }

    /// Wraps the data of a page with the version of its form: fields may be added to it, and are neither renamed nor
    /// removed within a version.
    pub(crate) fn json(page: &str, data: &impl Serialize) -> Self {
        let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let page = json!({ "version": VERSION, "page": page, "time": unix.as_secs_f64(), "data": data });
        Self::new(200, JSON, page.to_string())
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }
}

const VERSION: u32 = 1;
