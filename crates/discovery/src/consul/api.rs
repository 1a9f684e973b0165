//! Requests to Consul's HTTP API, among them blocking queries, which wait for changes.

use std::time::Duration;

use ::http::header::HeaderName;
use ::http::{Method, Request};
use bytes::Bytes;
use polyrpc::Status;
use polyrpc::discovery::Attributes;

use super::Consul;
use crate::http::{HttpResponse, RESPONSE_TIMEOUT};

impl Consul {
    pub(super) async fn get(
        &self,
        path: &str,
        query: Attributes,
        within: Duration,
    ) -> Result<HttpResponse, Status> {
        self.call(Method::GET, path, query, Bytes::new(), within).await
    }

    /// Waits for changes since the index, or returns everything if Consul no longer knows the index.
    ///
    /// An index is valid only on its connection: another one may lead to an agent that has lost its data and waits for
    /// that index.
    pub(super) async fn watch(
        &self,
        path: &str,
        query: Attributes,
        index: &mut Index,
        wait: Duration,
    ) -> Result<HttpResponse, Status> {
        if index.0 != 0 {
            let query =
                query.clone().with("index", index.0.to_string()).with("wait", format!("{}s", wait.as_secs()));
            let request = self.request(Method::GET, path, query, Bytes::new())?;
            // Consul adds up to a sixteenth to the wait.
            if let Some(answer) = self.http.call_on(&request, wait + wait / 16 + RESPONSE_TIMEOUT).await {
                return Ok(answer);
            }
            *index = Index::default();
        }
        self.get(path, query, RESPONSE_TIMEOUT).await
    }

    pub(super) async fn put(
        &self,
        path: &str,
        query: Attributes,
        body: impl Into<Bytes>,
    ) -> Result<HttpResponse, Status> {
        self.call(Method::PUT, path, query, body.into(), RESPONSE_TIMEOUT).await
    }

    pub(super) async fn delete(&self, path: &str) -> Result<HttpResponse, Status> {
        self.call(Method::DELETE, path, Attributes::new(), Bytes::new(), RESPONSE_TIMEOUT).await
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        query: Attributes,
        body: Bytes,
        within: Duration,
    ) -> Result<HttpResponse, Status> {
        self.http.call(self.request(method, path, query, body)?, within).await
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        mut query: Attributes,
        body: Bytes,
    ) -> Result<Request<Bytes>, Status> {
        if let Some(datacenter) = &self.datacenter {
            query.set("dc", datacenter);
        }
        let mut request = Request::builder().method(method).uri(format!("/v1{path}?{query}"));
        if let Some(token) = &self.token {
            request = request.header(TOKEN, token);
        }
        request
            .body(body)
            .map_err(|error| Status::invalid_argument(format!("cannot query Consul for {path}: {error}")))
    }
}

/// Position of a watch: Consul's index of a blocking query.
#[derive(Debug, Default)]
pub(super) struct Index(u64);

impl Index {
    /// Advances to the index of the answer. An index that went backwards is reset, as required of clients
    /// (developer.hashicorp.com/consul/api-docs/features/blocking).
    pub(super) fn advance(&mut self, answer: &HttpResponse) -> Result<(), Status> {
        let index = answer.headers.get(INDEX).and_then(|value| value.to_str().ok());
        let Some(index) = index.and_then(|index| index.parse::<u64>().ok()) else {
            return Err(Status::unavailable("a response has no X-Consul-Index: is this Consul?"));
        };
        self.0 = if index < self.0 { 0 } else { index.max(1) };
        Ok(())
    }
}

const INDEX: HeaderName = HeaderName::from_static("x-consul-index");
const TOKEN: HeaderName = HeaderName::from_static("x-consul-token");
