//! Finds the pods of a service: lists its endpoint slices, watches them, and applies each change to the list.

use std::collections::BTreeMap;
use std::time::Duration;

use ::http::StatusCode;
use polyrpc::Status;
use polyrpc::discovery::{Attributes, Discover, Instance, InstanceStream};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::PodDiscovery;
use super::slices::{Metadata, Slice, instances};
use crate::http::{HttpResponse, Lines, LinesResponse};
use crate::lenient_list::{self, LenientList};
use crate::url_parts::segment;
use crate::watch::{self, WatchSource};

impl Discover for PodDiscovery {
    fn watch(&self) -> InstanceStream {
        watch::sets(SliceWatch::new(self.clone()))
    }
}

impl PodDiscovery {
    fn path(&self) -> String {
        format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", segment(&self.namespace))
    }

    fn query(&self) -> Attributes {
        Attributes::new().with("labelSelector", format!("kubernetes.io/service-name={}", self.service))
    }

    /// Lists the slices; in pages if there are many.
    async fn list(&self, continue_token: &str) -> Result<HttpResponse, Status> {
        let mut query = self.query().with("limit", "500");
        if !continue_token.is_empty() {
            query.set("continue", continue_token);
        }
        let request = self.kubernetes.request(format!("{}?{query}", self.path())).await?;
        self.kubernetes.http.call(request, LIST_TIMEOUT).await
    }

    /// Watches changes from this version on.
    async fn watch_from(&self, version: &str) -> Result<LinesResponse, Status> {
        let query = self
            .query()
            .with("watch", "true")
            .with("allowWatchBookmarks", "true")
            .with("resourceVersion", version)
            .with("timeoutSeconds", WATCH_DURATION.as_secs().to_string());
        let request = self.kubernetes.request(format!("{}?{query}", self.path())).await?;
        self.kubernetes.http.open(request, LIST_TIMEOUT).await
    }
}

/// Slices of a service: listed once, then watched.
///
/// ```text
/// Unknown ──list──▶ Known ──watch──▶ Watching ──the watch ends or breaks──▶ Known
///    ▲                 │                 │
///    └─ 410 Gone, or ──┴─────────────────┘
///       refused
/// ```
struct SliceWatch {
    discovery: PodDiscovery,
    slices: BTreeMap<String, Slice>,
    state: State,
}

enum State {
    Unknown,
    Known {
        version: String,
        /// Whether nothing was received since the list.
        fresh: bool,
    },
    Watching {
        version: String,
        fresh: bool,
        lines: Lines,
        since: Instant,
    },
}

/// Result of following the watch.
#[derive(Debug, PartialEq, Eq)]
enum WatchOutcome {
    /// The slices have changed.
    Changed,
    /// The known version is too old to continue from.
    Gone,
}

impl SliceWatch {
    fn new(discovery: PodDiscovery) -> Self {
        Self { discovery, slices: BTreeMap::new(), state: State::Unknown }
    }

    /// Lists all slices, page by page.
    async fn list(&mut self) -> Result<(), Status> {
        let action = format!("cannot list the endpoint slices of {}", self.discovery);
        self.slices.clear();
        let mut continue_token = String::new();
        let version = loop {
            let part: List = self.discovery.list(&continue_token).await?.json(&action)?;
            if part.items.is_unusable() {
                return Err(Status::data_loss(format!(
                    "no endpoint slice of {} can be read",
                    self.discovery
                )));
            }
            let items = part.items.items.into_iter();
            self.slices.extend(items.map(|slice| (slice.metadata.name.clone(), slice)));
            self.check_size()?;
            if part.metadata.continue_token.is_empty() || part.metadata.continue_token == continue_token {
                break part.metadata.resource_version;
            }
            continue_token = part.metadata.continue_token;
        };
        self.state = State::Known { version, fresh: true };
        Ok(())
    }

    fn check_size(&self) -> Result<(), Status> {
        match self.slices.len() > MAX_SLICES {
            true => Err(Status::resource_exhausted(format!(
                "{} has more than {MAX_SLICES} slices",
                self.discovery
            ))),
            false => Ok(()),
        }
    }

    /// Waits until the slices change.
    async fn wait_for_change(&mut self) -> Result<WatchOutcome, Status> {
        loop {
            match std::mem::replace(&mut self.state, State::Unknown) {
                State::Unknown => return Ok(WatchOutcome::Gone),
                State::Known { version, fresh } => match self.discovery.watch_from(&version).await {
                    Ok(LinesResponse::Lines(lines)) => {
                        self.state = State::Watching { version, fresh, lines, since: Instant::now() };
                    }
                    Ok(LinesResponse::Refused(answer)) if answer.status == StatusCode::GONE => {
                        return version_expired(fresh);
                    }
                    // The known version may be unknown to this server: the slices are listed again.
                    Ok(LinesResponse::Refused(answer)) => {
                        return Err(answer
                            .refusal(&format!("cannot watch the endpoint slices of {}", self.discovery)));
                    }
                    Err(status) => {
                        self.state = State::Known { version, fresh };
                        return Err(status);
                    }
                },
                State::Watching { version, fresh, lines, since } => {
                    if let Some(followed) = self.handle(version, fresh, lines, since).await? {
                        return Ok(followed);
                    }
                }
            }
        }
    }

    /// Processes the next event of the watch and those available after it; `None` if they change nothing.
    async fn handle(
        &mut self,
        mut version: String,
        mut fresh: bool,
        mut lines: Lines,
        since: Instant,
    ) -> Result<Option<WatchOutcome>, Status> {
        let mut changed = false;
        // A watch that is silent for longer than its lifetime is dead.
        let mut until = Instant::now() + WATCH_DURATION + WATCH_GRACE;
        loop {
            match timeout_at(until, lines.next()).await {
                Ok(Ok(Some(line))) => match self.take(&line)? {
                    Event::Gone => return version_expired(fresh).map(Some),
                    Event::Changed { version: update, change } => {
                        version = update.unwrap_or(version);
                        fresh = false;
                        if change && !changed {
                            changed = true;
                            until = Instant::now() + CHANGE_DEBOUNCE;
                        }
                    }
                },
                Err(_) if changed => {
                    self.state = State::Watching { version, fresh, lines, since };
                    return Ok(Some(WatchOutcome::Changed));
                }
                Ok(Ok(None)) | Err(_) => {
                    self.state = State::Known { version, fresh };
                    return match (changed, since.elapsed() < MIN_WATCH_DURATION) {
                        (true, _) => Ok(Some(WatchOutcome::Changed)),
                        (false, false) => Ok(None),
                        (false, true) => Err(self.ended_early()),
                    };
                }
                Ok(Err(status)) => {
                    self.state = State::Known { version, fresh };
                    return if changed { Ok(Some(WatchOutcome::Changed)) } else { Err(status) };
                }
            }
        }
    }

    #[cold]
    fn ended_early(&self) -> Status {
        Status::unavailable(format!("Kubernetes ended the watch of {} at once", self.discovery))
    }

    fn take(&mut self, line: &[u8]) -> Result<Event, Status> {
        let update: WatchMessage = serde_json::from_slice(line).map_err(|error| {
            Status::unavailable(format!("the event of Kubernetes cannot be decoded: {error}"))
        })?;
        if update.kind == "ERROR" {
            let failure: Failure = serde_json::from_value(update.object).unwrap_or_default();
            if failure.code == 410 {
                return Ok(Event::Gone);
            }
            let Failure { code, message } = failure;
            return Err(Status::unavailable(format!(
                "the watch of {} failed: {code} {message}",
                self.discovery
            )));
        }
        // A malformed slice counts as missing; its version may be readable all the same.
        let metadata = update.object.get("metadata").cloned();
        let metadata: Metadata =
            metadata.and_then(|metadata| serde_json::from_value(metadata).ok()).unwrap_or_default();
        let change = match &*update.kind {
            "ADDED" | "MODIFIED" => match serde_json::from_value::<Slice>(update.object) {
                Ok(slice) => {
                    self.slices.insert(metadata.name, slice);
                    self.check_size()?;
                    true
                }
                Err(_) => self.slices.remove(&metadata.name).is_some(),
            },
            "DELETED" => self.slices.remove(&metadata.name).is_some(),
            // `BOOKMARK`, and future event types.
            _ => false,
        };
        let version = Some(metadata.resource_version).filter(|version| !version.is_empty());
        Ok(Event::Changed { version, change })
    }
}

impl WatchSource for SliceWatch {
    async fn next(&mut self) -> Result<Vec<Instance>, Status> {
        if !matches!(self.state, State::Unknown) && self.wait_for_change().await? == WatchOutcome::Changed {
            return instances(&self.slices, &self.discovery);
        }
        self.list().await?;
        instances(&self.slices, &self.discovery)
    }

    fn warning(&mut self) -> Option<Status> {
        let counts = self.slices.values().map(Slice::endpoints);
        let (all, read) = counts.fold((0, 0), |(all, read), (more, also)| (all + more, read + also));
        lenient_list::warning(all, read, format_args!("endpoints of {} in Kubernetes", self.discovery))
    }
}

/// Handles an expired version. If the slices were just listed, listing again would lead to the same result.
fn version_expired(fresh: bool) -> Result<WatchOutcome, Status> {
    match fresh {
        false => Ok(WatchOutcome::Gone),
        true => Err(Status::unavailable("the resource version just listed has already expired")),
    }
}

enum Event {
    Gone,
    Changed {
        /// Current version of the watch.
        version: Option<String>,
        change: bool,
    },
}

#[derive(Debug, Deserialize)]
struct List {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    items: LenientList<Slice>,
}

#[derive(Debug, Deserialize)]
struct WatchMessage {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

#[derive(Debug, Default, Deserialize)]
struct Failure {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
}

/// Timeout of a list, and of the start of a watch.
const LIST_TIMEOUT: Duration = Duration::from_secs(15);
/// Duration after which the server ends a watch, so that a dead one is noticed soon.
const WATCH_DURATION: Duration = Duration::from_secs(60);
/// A service with more slices would have more than a million pods.
const MAX_SLICES: usize = 10_000;
/// Delay of a change: it seldom comes alone.
const CHANGE_DEBOUNCE: Duration = Duration::from_millis(20);
/// Extra time beyond a watch's lifetime.
const WATCH_GRACE: Duration = Duration::from_secs(10);
/// A watch that ends sooner, without an event, will do so again.
const MIN_WATCH_DURATION: Duration = Duration::from_secs(1);
