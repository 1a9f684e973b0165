//! The pages of [`Metrics`]: functions like any other, so that every listener has them, by every protocol that carries text,
//! for whom its authenticator lets in.

use std::future::ready;
use std::sync::Arc;

use polyrpc_wire::{Format, Protocol, Status};

use super::Metrics;
use crate::Context;
use crate::codec::{Body, Codec, Serde};
use crate::service::{Handling, Method};

/// The pages with the names that lead to them: `GET /metrics`, and brpc's `GET /brpc_metrics`.
pub(crate) fn pages(metrics: &Metrics) -> [(&'static str, Arc<dyn Method>); 2] {
    let page = |write| -> Arc<dyn Method> { Arc::new(Page { metrics: metrics.clone(), write }) };
    [
        ("metrics", page(|metrics, _| metrics.text())),
        ("brpc_metrics", page(|metrics, cx| metrics.brpc_text(&name(cx)))),
    ]
}

/// brpc names a server after its port.
fn name(cx: &Context) -> String {
    cx.local().map_or_else(|| "unix".to_owned(), |address| address.port().to_string())
}

struct Page {
    metrics: Metrics,
    write: fn(&Metrics, &Context) -> String,
}

impl Method for Page {
    fn start(&self, mut cx: Context, _: Body) -> Result<Handling, Status> {
        let text = (self.write)(&self.metrics, &cx);
        let (format, body) = match cx.protocol() {
            // HTTP/2 is gRPC's connection, whatever is carried there.
            Protocol::Http | Protocol::Grpc => {
                cx.reply().metadata.insert("content-type", "text/plain; version=0.0.4");
                (Format::Raw, Ok(text.into()))
            }
            _ => (cx.format(), Serde::encode(&text, cx.format(), None)),
        };
        Ok(Box::pin(ready(cx.end(format, body))))
    }
}
