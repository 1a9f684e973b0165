//! HTTP/1.1 client for registries: connections are pooled, the next server is tried if one does not answer, and every
//! wait and every length is limited.

mod connection;
mod lines;
mod origin;
mod response;

#[cfg(feature = "tls")]
mod tls;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use polyrpc::{Scope, Status};

pub(crate) use self::lines::Lines;
pub(crate) use self::origin::Origin;
pub(crate) use self::response::HttpResponse;

use self::connection::HttpConnection;

/// Servers of one registry, any of which may be used.
#[derive(Debug)]
pub(crate) struct Http {
    origins: Vec<Origin>,
    /// Index of the server to try first; grows without end.
    first: AtomicUsize,
    idle: Mutex<Vec<HttpConnection>>,
    #[cfg(feature = "tls")]
    tls: polyrpc::tls::Client,
}

impl Http {
    /// Parses `http://host:port`, or several separated by commas.
    pub(crate) fn new(urls: &str, port: u16) -> Result<Self, Status> {
        let origins = Origin::parse_list(urls, port)?;
        Ok(Self {
            origins,
            first: AtomicUsize::new(0),
            idle: Mutex::default(),
            #[cfg(feature = "tls")]
            tls: polyrpc::tls::Client::new(),
        })
    }

    /// The same servers with separate connections.
    pub(crate) fn with_new_connections(&self) -> Self {
        Self {
            origins: self.origins.clone(),
            first: AtomicUsize::new(0),
            idle: Mutex::default(),
            #[cfg(feature = "tls")]
            tls: self.tls.clone(),
        }
    }

    /// Sets the TLS configuration.
    #[cfg(feature = "tls")]
    pub(crate) fn with_tls(&self, tls: polyrpc::tls::Client) -> Self {
        Self { tls, ..self.with_new_connections() }
    }

    /// Sends a request and reads the whole response.
    pub(crate) async fn call(
        &self,
        request: Request<Bytes>,
        within: Duration,
    ) -> Result<HttpResponse, Status> {
        let result = match tokio::time::timeout(within, self.exchange(&request)).await {
            Ok(result) => result,
            Err(_) => {
                Err(Status::deadline_exceeded(format!("{} did not respond within {within:?}", self.name())))
            }
        };
        if result.as_ref().map_or(true, |answer| answer.status.is_server_error()) {
            self.first.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// Sends a request on the connection of the last response; `None` if it is closed, or closes before the response.
    pub(crate) async fn call_on(&self, request: &Request<Bytes>, within: Duration) -> Option<HttpResponse> {
        let index = self.first.load(Ordering::Relaxed) % self.origins.len().max(1);
        let request = address_to(request, self.origins.get(index)?).ok()?;
        let mut connection = self.take_idle(index)?;
        let asking = async {
            let response = connection.send(request).await.ok()?;
            self.read(response, connection).await.ok()
        };
        tokio::time::timeout(within, asking).await.ok().flatten()
    }

    /// Sends a request, and returns the response's lines as they arrive. `within` limits the time to the response head.
    pub(crate) async fn open(
        &self,
        request: Request<Bytes>,
        within: Duration,
    ) -> Result<LinesResponse, Status> {
        let (response, connection) = match tokio::time::timeout(within, self.send(&request)).await {
            Ok(sent) => sent?,
            Err(_) => {
                self.first.fetch_add(1, Ordering::Relaxed);
                let silent = format!("{} did not respond within {within:?}", self.name());
                return Err(Status::deadline_exceeded(silent));
            }
        };
        if response.status().is_success() {
            return Ok(LinesResponse::Lines(Lines::new(response.into_body(), connection)));
        }
        match tokio::time::timeout(within, self.read(response, connection)).await {
            Ok(answer) => Ok(LinesResponse::Refused(answer?)),
            Err(_) => Err(Status::deadline_exceeded(format!(
                "{} did not send the reason of its rejection in time",
                self.name()
            ))),
        }
    }

    async fn exchange(&self, request: &Request<Bytes>) -> Result<HttpResponse, Status> {
        let (response, connection) = self.send(request).await?;
        self.read(response, connection).await
    }

    async fn read(
        &self,
        response: Response<Incoming>,
        connection: HttpConnection,
    ) -> Result<HttpResponse, Status> {
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_BODY_LEN).collect().await.map_err(|error| {
            Status::unavailable(format!("the response of {} was truncated: {error}", self.name()))
                .with_scope(Scope::Connection)
        })?;
        self.keep(connection);
        Ok(HttpResponse { status: head.status, headers: head.headers, body: body.to_bytes() })
    }

    /// Tries one server after another until one answers.
    async fn send(&self, request: &Request<Bytes>) -> Result<(Response<Incoming>, HttpConnection), Status> {
        let first = self.first.load(Ordering::Relaxed);
        let mut failure = None;
        for index in first..first.saturating_add(self.origins.len()) {
            match self.send_to(index % self.origins.len(), request).await {
                Ok(sent) => {
                    self.first.store(index, Ordering::Relaxed);
                    return Ok(sent);
                }
                Err(status) => failure = Some(status),
            }
        }
        Err(failure.unwrap_or_else(|| Status::unavailable("no registry server is configured")))
    }

    async fn send_to(
        &self,
        index: usize,
        request: &Request<Bytes>,
    ) -> Result<(Response<Incoming>, HttpConnection), Status> {
        let Some(origin) = self.origins.get(index) else {
            return Err(Status::internal("there is no such server"));
        };
        let request = address_to(request, origin)?;
        // The server may have closed an idle connection meanwhile; all requests here are idempotent.
        if let Some(mut connection) = self.take_idle(index)
            && let Ok(response) = connection.send(request.clone()).await
        {
            return Ok((response, connection));
        }
        let mut connection = self.connect(index, origin).await?;
        match connection.send(request).await {
            Ok(response) => Ok((response, connection)),
            Err(error) => Err(unreachable(origin, &error)),
        }
    }

    async fn connect(&self, index: usize, origin: &Origin) -> Result<HttpConnection, Status> {
        #[cfg(feature = "tls")]
        let connecting = HttpConnection::connect(index, origin, &self.tls);
        #[cfg(not(feature = "tls"))]
        let connecting = HttpConnection::connect(index, origin);
        match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(connected) => connected.map_err(|error| unreachable(origin, &error)),
            Err(_) => Err(unreachable(origin, &std::io::ErrorKind::TimedOut)),
        }
    }

    fn take_idle(&self, index: usize) -> Option<HttpConnection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(HttpConnection::is_open);
        let at = idle.iter().position(|connection| connection.index == index)?;
        Some(idle.swap_remove(at))
    }

    fn keep(&self, connection: HttpConnection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE_CONNECTIONS {
            idle.push(connection);
        }
    }

    /// Names the servers, for messages.
    fn name(&self) -> String {
        let names: Vec<_> = self.origins.iter().map(|origin| origin.authority.as_str()).collect();
        names.join(",")
    }
}

/// Result of a request for lines.
#[derive(Debug)]
pub(crate) enum LinesResponse {
    /// The response streams lines.
    Lines(Lines),
    /// The server rejected the request.
    Refused(HttpResponse),
}

/// Adapts the request to this server.
fn address_to(request: &Request<Bytes>, origin: &Origin) -> Result<Request<Bytes>, Status> {
    let wrong = |error: http::Error| Status::invalid_argument(format!("invalid request: {error}"));
    let mut request = request.clone();
    if !origin.prefix.is_empty() {
        let uri = http::Uri::try_from(format!("{}{}", origin.prefix, request.uri()));
        *request.uri_mut() = uri.map_err(|error| wrong(error.into()))?;
    }
    let host = HeaderValue::try_from(&origin.authority).map_err(|error| wrong(error.into()))?;
    request.headers_mut().insert(HOST, host);
    Ok(request)
}

#[cold]
fn unreachable(origin: &Origin, why: &impl std::fmt::Display) -> Status {
    Status::unavailable(format!("cannot reach {}: {why}", origin.authority)).with_scope(Scope::Connection)
}

/// Connect timeout, including TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Ten thousand instances with all of Consul's data are some 20 MiB.
const MAX_BODY_LEN: usize = 64 << 20;
/// Number of idle connections: a watch and a registration or two at a time need no more.
const MAX_IDLE_CONNECTIONS: usize = 4;

/// Timeout of an answer that is not a long poll.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
