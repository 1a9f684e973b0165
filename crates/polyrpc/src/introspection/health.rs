use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Arc;

use polyrpc_core::Status;
use polyrpc_grpc_messages::health::v1::health_check_response::ServingStatus as GrpcStatus;
use polyrpc_grpc_messages::health::v1::{
    FILE_DESCRIPTOR_SET, HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse,
};
use polyrpc_wire::http;
use tokio::sync::watch;

use crate::call::Context;
use crate::codec::Protobuf;
use crate::service::ServiceBuilder;
use crate::{Result, Streaming};

/// Health of a server and its services, for callers of `grpc.health.v1.Health`: load balancers, Kubernetes,
/// gRPC's own clients.
///
/// Clones share their state. Each server needs its own `Health`, since all services of a `Health` are reported as
/// not serving when the server stops.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use polyrpc::Server;
/// use polyrpc::introspection::{Health, ServingStatus};
///
/// let health = Health::new();
/// let server = Server::new()
///     .function("Arith/Add", |a: i64, b: i64| async move { a + b })
///     .health(&health)
///     .bind("127.0.0.1:0")
///     .await?
///     .start();
/// assert_eq!(health.get("Arith"), Some(ServingStatus::Serving));
///
/// // The database is gone.
/// health.set("Arith", ServingStatus::NotServing);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<watch::Sender<State>>);

/// Whether a service accepts calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServingStatus {
    /// The service accepts calls.
    Serving,
    /// The service temporarily accepts no calls.
    NotServing,
}

#[derive(Debug, Default)]
struct State {
    /// By name; the empty name is the server as a whole.
    services: BTreeMap<String, ServingStatus>,
    stopped: bool,
    /// The same, until it is undone.
    paused: bool,
    /// All watches end.
    ended: bool,
}

impl Health {
    /// Creates a health state without any service.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether a service, by its full name, accepts calls; for the empty name, whether the server as a whole
    /// does. Neither implies the other. It need not be a service of the server.
    pub fn set(&self, service: impl Into<String>, serving: ServingStatus) {
        self.0.send_if_modified(|state| state.services.insert(service.into(), serving) != Some(serving));
    }

    /// Removes a service: it is then reported as unknown.
    pub fn remove(&self, service: &str) {
        self.0.send_if_modified(|state| state.services.remove(service).is_some());
    }

    /// The reported state of a service; `None` if it is unknown.
    pub fn get(&self, service: &str) -> Option<ServingStatus> {
        self.0.borrow().get(service)
    }

    /// Reports all services as not serving from now on, regardless of their state. A server does this when it starts to
    /// shut down, and continues to accept calls for [`Server::lame_duck`](crate::Server::lame_duck).
    pub fn shutdown(&self) {
        self.0.send_if_modified(|state| !std::mem::replace(&mut state.stopped, true));
    }

    /// Reports all services as not serving, or no longer. Returns `false` once the server shuts down.
    pub(crate) fn pause(&self, paused: bool) -> bool {
        self.0.send_if_modified(|state| std::mem::replace(&mut state.paused, paused) != paused);
        !self.0.borrow().stopped
    }

    /// Ends all watches, which would otherwise delay the shutdown.
    pub(crate) fn close(&self) {
        self.0.send_modify(|state| (state.stopped, state.ended) = (true, true));
    }

    /// Marks the services and the server as serving, unless they were set otherwise.
    pub(super) fn offer(&self, services: impl IntoIterator<Item = String>) {
        self.0.send_modify(|state| {
            for service in services.into_iter().chain([String::new()]) {
                state.services.entry(service).or_insert(ServingStatus::Serving);
            }
        });
    }
}

/// The health of a server without an explicit `Health`: serving until the shutdown starts.
#[derive(Debug)]
pub(crate) struct DefaultHealth(pub(crate) Health);

impl http::Health for DefaultHealth {
    fn is_serving(&self, service: &str) -> Option<bool> {
        service.is_empty().then(|| !self.0.0.borrow().is_away())
    }

    fn knows_services(&self) -> bool {
        false
    }
}

impl http::Health for Health {
    fn is_serving(&self, service: &str) -> Option<bool> {
        self.get(service).map(|serving| serving == ServingStatus::Serving)
    }
}

impl State {
    fn get(&self, service: &str) -> Option<ServingStatus> {
        let serving = *self.services.get(service)?;
        Some(if self.is_away() { ServingStatus::NotServing } else { serving })
    }

    fn is_away(&self) -> bool {
        self.stopped || self.paused
    }
}

/// The service `grpc.health.v1.Health`.
impl Health {
    pub(super) fn service(&self) -> ServiceBuilder {
        let (checked, listed, watched) = (self.clone(), self.clone(), self.clone());
        ServiceBuilder::new("grpc.health.v1.Health")
            .schema(FILE_DESCRIPTOR_SET)
            .method::<Protobuf, HealthCheckRequest, HealthCheckResponse, _, _>(
                "Check",
                move |cx: Context, request| ready((cx, checked.check(&request))),
            )
            .method::<Protobuf, HealthListRequest, HealthListResponse, _, _>("List", move |cx: Context, _| {
                ready((cx, Ok(listed.list())))
            })
            .server_streaming::<Protobuf, HealthCheckRequest, HealthCheckResponse, _, _>(
                "Watch",
                move |cx: Context, request| ready((cx, Ok(watched.watch(request)))),
            )
    }

    fn check(&self, request: &HealthCheckRequest) -> Result<HealthCheckResponse> {
        match self.get(&request.service) {
            Some(serving) => Ok(response(serving.status())),
            None => Err(Status::not_found(format!("there is no service `{}`", request.service)).into()),
        }
    }

    fn list(&self) -> HealthListResponse {
        let state = self.0.borrow();
        let statuses = state.services.keys().filter_map(|service| {
            let serving = state.get(service)?;
            Some((service.clone(), response(serving.status())))
        });
        HealthListResponse { statuses: statuses.collect(), ..HealthListResponse::default() }
    }

    fn watch(&self, request: HealthCheckRequest) -> Streaming<HealthCheckResponse> {
        let mut states = self.0.subscribe();
        Streaming::produce(move |sender| async move {
            let mut sent_status = None;
            loop {
                let (status, ended) = {
                    let state = states.borrow_and_update();
                    let status = state
                        .get(&request.service)
                        .map_or(GrpcStatus::SERVICE_UNKNOWN, ServingStatus::status);
                    (status, state.ended)
                };
                if sent_status != Some(status) {
                    sender.send(response(status)).await?;
                    sent_status = Some(status);
                }
                if ended {
                    return Err(Status::unavailable("the server is stopping").into());
                }
                states.changed().await?;
            }
        })
    }
}

impl ServingStatus {
    fn status(self) -> GrpcStatus {
        match self {
            Self::Serving => GrpcStatus::SERVING,
            Self::NotServing => GrpcStatus::NOT_SERVING,
        }
    }
}

fn response(status: GrpcStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into(), ..HealthCheckResponse::default() }
}
