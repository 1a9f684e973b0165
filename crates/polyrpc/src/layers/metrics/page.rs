//! The pages of [`Metrics`]: plain functions, so that every listener serves them, by every protocol that carries text,
//! subject to its authenticator.

use std::future::ready;
use std::sync::Arc;

use bytes::Bytes;
use polyrpc_core::{Format, Status};

use super::{Metrics, protobuf};
use crate::call::{Context, ResponseFuture};
use crate::codec::{Body, Codec, Serde};
use crate::service::Method;

/// Returns the pages with their names: `GET /metrics`, and brpc's `GET /brpc_metrics`.
pub(crate) fn pages(metrics: &Metrics) -> [(&'static str, Arc<dyn Method>); 2] {
    let page = |write| -> Arc<dyn Method> { Arc::new(Page { metrics: metrics.clone(), write }) };
    [
        (
            "metrics",
            page(|metrics, cx| match cx.metadata().get("accept") {
                Some(accept) if protobuf::is_accepted(accept) => (protobuf::TYPE, metrics.protobuf().into()),
                _ => (TEXT, metrics.text().into()),
            }),
        ),
        ("brpc_metrics", page(|metrics, cx| (TEXT, metrics.brpc_text(&name(cx)).into()))),
    ]
}

const TEXT: &str = "text/plain; version=0.0.4";

/// brpc names a server after its port.
fn name(cx: &Context) -> String {
    cx.local().map_or_else(|| "unix".to_owned(), |address| address.port().to_string())
}

struct Page {
    metrics: Metrics,
    /// Formats the page; returns it with its content type.
    write: fn(&Metrics, &Context) -> (&'static str, Bytes),
}

impl Method for Page {
    fn start(&self, mut cx: Context, _: Body) -> Result<ResponseFuture, Status> {
        let (kind, page) = (self.write)(&self.metrics, &cx);
        let (format, body) = match cx.protocol().descriptor().capabilities.has_fields() {
            // In gRPC the body is a message of its own type too.
            true => {
                cx.reply_options().metadata.insert("content-type", kind);
                (Format::Raw, Ok(page))
            }
            false => {
                let text = String::from_utf8_lossy(&page).into_owned();
                (cx.format(), Serde::encode(&text, cx.format(), None))
            }
        };
        Ok(Box::pin(ready(cx.end(format, body))))
    }
}
