//! Client of Nacos' HTTP API.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::http::header::CONTENT_TYPE;
use ::http::{Method, Request, StatusCode};
use bytes::Bytes;
use polyrpc::Status;
use polyrpc::discovery::Attributes;
use serde::Deserialize;

use super::Scope;
use super::host::Host;
use crate::http::{Http, HttpResponse, RESPONSE_TIMEOUT};
use crate::lenient_list::LenientList;

/// Nacos' HTTP API in its two versions. Nacos 3.2 has the older one only as a plugin; rpcx's and brpc's users have
/// servers that do not know the newer one.
pub(super) struct Api {
    http: Http,
    /// Whether the newer API answered last.
    newer: AtomicBool,
    login: Option<Login>,
    token: Mutex<Option<Token>>,
}

/// Request of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    List,
    Register,
    Beat,
    Deregister,
}

#[derive(Clone)]
struct Login {
    username: String,
    password: String,
}

struct Token {
    text: String,
    until: Instant,
}

impl Api {
    pub(super) fn new(urls: &str) -> Result<Self, Status> {
        Ok(Self::with_http(Http::new(urls, PORT)?, None))
    }

    pub(super) fn with_login(&self, username: String, password: String) -> Self {
        Self::with_http(self.http.with_new_connections(), Some(Login { username, password }))
    }

    #[cfg(feature = "tls")]
    pub(super) fn with_tls(&self, tls: polyrpc::tls::Client) -> Self {
        Self::with_http(self.http.with_tls(tls), self.login.clone())
    }

    fn with_http(http: Http, login: Option<Login>) -> Self {
        Self { http, newer: AtomicBool::new(false), login, token: Mutex::default() }
    }

    /// Uses the API that answered last, and the other one if that is no longer available.
    pub(super) async fn call(&self, verb: Verb, fields: &Attributes) -> Result<Reply, Status> {
        let newer = self.newer.load(Ordering::Relaxed);
        let first = self.query_with_token(verb, newer, fields).await?;
        if !first.is_missing() {
            return Ok(first);
        }
        let second = self.query_with_token(verb, !newer, fields).await?;
        if second.is_missing() {
            return Ok(first);
        }
        self.newer.store(!newer, Ordering::Relaxed);
        Ok(second)
    }

    /// Sends a request with a token, and with a new one if that is rejected.
    async fn query_with_token(&self, verb: Verb, newer: bool, fields: &Attributes) -> Result<Reply, Status> {
        let reply = self.query(verb, newer, fields).await?;
        let refused = matches!(reply.answer.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if self.login.is_none() || !refused {
            return Ok(reply);
        }
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.query(verb, newer, fields).await
    }

    async fn query(&self, verb: Verb, newer: bool, fields: &Attributes) -> Result<Reply, Status> {
        let (method, path) = verb.endpoint_of(newer);
        let mut fields = fields.clone();
        if newer && verb == Verb::Beat {
            fields.remove("beat");
            fields.set("heartBeat", "true");
        }
        if let Some(login) = &self.login {
            fields.set("accessToken", self.token(login, newer).await?);
        }
        let request = Request::builder().method(method).uri(format!("{path}?{fields}"));
        let answer = self
            .http
            .call(request.body(Bytes::new()).map_err(|error| wrong(&error))?, RESPONSE_TIMEOUT)
            .await?;
        Ok(Reply { answer, newer })
    }

    async fn token(&self, login: &Login, newer: bool) -> Result<String, Status> {
        if let Some(token) = &*self.token.lock().unwrap_or_else(PoisonError::into_inner)
            && Instant::now() < token.until
        {
            return Ok(token.text.clone());
        }
        let mut answer = self.log_in(login, newer).await?;
        if is_missing(&answer) {
            answer = self.log_in(login, !newer).await?;
        }
        let given: ServiceList = answer.json("cannot log in to Nacos")?;
        let ttl = Duration::from_secs(given.token_ttl);
        // A tenth is reserved for clock differences and latency.
        let until = Instant::now().checked_add(ttl - ttl / 10).unwrap_or_else(Instant::now);
        let token = Token { text: given.access_token.clone(), until };
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token);
        Ok(given.access_token)
    }

    async fn log_in(&self, login: &Login, newer: bool) -> Result<HttpResponse, Status> {
        let path = if newer { "/nacos/v3/auth/user/login" } else { "/nacos/v1/auth/login" };
        let form = Attributes::new().with("username", &login.username).with("password", &login.password);
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Bytes::from(form.to_string()))
            .map_err(|error| wrong(&error))?;
        self.http.call(request, RESPONSE_TIMEOUT).await
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.login.as_ref().map(|login| &login.username);
        f.debug_struct("Api").field("http", &self.http).field("user", &user).finish_non_exhaustive()
    }
}

impl Verb {
    fn endpoint_of(self, newer: bool) -> (Method, &'static str) {
        match (self, newer) {
            (Self::List, false) => (Method::GET, "/nacos/v1/ns/instance/list"),
            (Self::Register, false) => (Method::POST, "/nacos/v1/ns/instance"),
            (Self::Beat, false) => (Method::PUT, "/nacos/v1/ns/instance/beat"),
            (Self::Deregister, false) => (Method::DELETE, "/nacos/v1/ns/instance"),
            (Self::List, true) => (Method::GET, "/nacos/v3/client/ns/instance/list"),
            (Self::Register | Self::Beat, true) => (Method::POST, "/nacos/v3/client/ns/instance"),
            (Self::Deregister, true) => (Method::DELETE, "/nacos/v3/client/ns/instance"),
        }
    }
}

/// Reply of Nacos.
#[derive(Debug)]
pub(super) struct Reply {
    answer: HttpResponse,
    newer: bool,
}

impl Reply {
    fn is_missing(&self) -> bool {
        is_missing(&self.answer)
    }

    pub(super) fn check_success(&self, endpoint_of: &str) -> Result<(), Status> {
        self.answer.check_success(endpoint_of)?;
        match self.code() {
            Some(code) if self.newer && code != 0 => Err(self.answer.refusal(endpoint_of)),
            _ => Ok(()),
        }
    }

    /// Whether the named server is registered; an older Nacos may just reply `ok`.
    pub(super) fn knows(&self, endpoint_of: &str) -> Result<bool, Status> {
        if self.code().is_some_and(|code| UNKNOWN.contains(&code)) {
            return Ok(false);
        }
        self.answer.check_success(endpoint_of).map(|()| true)
    }

    pub(super) fn list(&self, endpoint_of: &str) -> Result<List, Status> {
        if !self.newer {
            return self.answer.json(endpoint_of);
        }
        self.check_success(endpoint_of)?;
        let DataEnvelope { data } = self.answer.json(endpoint_of)?;
        Ok(List { hosts: data, cache_millis: None })
    }

    /// Result code of the reply.
    fn code(&self) -> Option<i64> {
        code(&self.answer)
    }
}

/// Lists all instances of a service.
pub(super) async fn list(api: &Api, scope: &Scope, name: &str) -> Result<Reply, Status> {
    let mut fields = scope.fields(name).with("healthyOnly", "false");
    if let Some(clusters) = &scope.cluster {
        // Nacos 1 and 2 read the former, Nacos 3 the latter.
        fields.set("clusters", clusters);
        fields.set("clusterName", clusters);
    }
    api.call(Verb::List, &fields).await
}

/// Whether the API endpoint is missing: replies of Nacos itself about an instance have a code.
fn is_missing(answer: &HttpResponse) -> bool {
    let gone = [StatusCode::NOT_FOUND, StatusCode::GONE, StatusCode::NOT_IMPLEMENTED];
    gone.contains(&answer.status) && code(answer).is_none()
}

fn code(answer: &HttpResponse) -> Option<i64> {
    serde_json::from_slice::<CodedReply>(&answer.body).ok().map(|coded| coded.code)
}

#[cold]
fn wrong(error: &::http::Error) -> Status {
    Status::invalid_argument(format!("cannot query Nacos: {error}"))
}

#[derive(Debug, Deserialize)]
struct CodedReply {
    code: i64,
}

#[derive(Debug, Deserialize)]
struct DataEnvelope {
    #[serde(default)]
    data: LenientList<Host>,
}

/// Instances of a service.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct List {
    pub(super) hosts: LenientList<Host>,
    cache_millis: Option<u64>,
}

impl List {
    /// Returns how long the answer is valid.
    pub(super) fn pause(&self) -> Duration {
        let millis = self.cache_millis.filter(|millis| *millis > 0);
        millis
            .map_or(MAX_POLL_INTERVAL, Duration::from_millis)
            .clamp(Duration::from_millis(100), MAX_POLL_INTERVAL)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServiceList {
    access_token: String,
    #[serde(default)]
    token_ttl: u64,
}

const PORT: u16 = 8848;
/// RESOURCE_NOT_FOUND of Nacos 1 and 2 (`NamingResponseCode`), INSTANCE_NOT_FOUND of 3 (`ErrorCode`).
const UNKNOWN: [i64; 2] = [20404, 21003];
/// Nacos' default for clients without push (`SwitchDomain`, `defaultCacheMillis`), and the maximum: Nacos returns ten
/// seconds to others, since it has other ways to notify its own clients.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(3);
