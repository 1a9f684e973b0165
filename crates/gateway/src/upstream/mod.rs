//! Upstreams: the servers that calls are forwarded to.

mod formats;
mod per_thread;
mod pushes;

use std::time::Duration;

use polyrpc::client::{Builder, CircuitBreaker, HealthCheck, Limits};
use polyrpc::tls::{self, Identity};
use polyrpc::{Client, Format, MemoryBudget, Protocol};
use polyrpc_console::vars::Counter;

pub(crate) use self::formats::usual_formats;

use self::per_thread::PerThread;
use self::pushes::DroppedPushes;
use crate::call_limit::{CallLimit, CallPermit};
use crate::config::{Breaker, Check, Config, Credential, Health, Span, Upstream as Spec, UpstreamTls};

/// Why a brpc caller's stream cannot carry the requests for an upstream that responds after the last of them.
pub(crate) const ENDS_TOGETHER: &str = "a brpc stream ends in both directions at once, and over HTTP/1.1 responses of \
     gRPC-Web and Connect follow the last request; `http_version=2` in the upstream's URL helps";

/// Maximum of concurrent calls of a thread to an upstream without `calls`. They share a connection, of which a server
/// of PolyRPC takes 4,096 calls before it stops reading: callers with waiting calls must leave room for others.
const CALLS_OF_A_THREAD: usize = 4_000;

/// The servers of one upstream, and the connections to them.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) spec: Spec,
    clients: PerThread<Client>,
    /// Calls in flight: those of all threads if the configuration limits them, else those of each.
    call_limits: PerThread<CallLimit>,
}

impl Upstream {
    /// `limits` apply to data from the servers. Each of `threads` has its own connections, so that no call wakes
    /// another thread. Their buffers count in `memory`; `pushes` counts messages that belong to no call.
    pub(crate) fn new(
        spec: Spec,
        limits: Limits,
        (threads, memory): (usize, &MemoryBudget),
        pushes: Counter,
    ) -> Result<Self, String> {
        let dropped = DroppedPushes::new(&spec.name, pushes);
        Self::build(spec, threads, |builder| {
            let dropped = dropped.clone();
            builder.limits(limits.clone()).memory_budget(memory).on_push(move |push| dropped.count(&push))
        })
    }

    fn build(spec: Spec, threads: usize, with: impl Fn(Builder) -> Builder) -> Result<Self, String> {
        let threads = threads.max(1);
        let clients = (0..threads).map(|_| client(&spec, &with));
        let clients = PerThread::new(clients.collect::<Result<_, _>>()?);
        let call_limits = PerThread::new(match spec.calls {
            Some(calls) => vec![CallLimit::new(Some(calls))],
            None => (0..threads).map(|_| CallLimit::new(Some(CALLS_OF_A_THREAD))).collect(),
        });
        Ok(Self { spec, clients, call_limits })
    }

    /// Admits a call of a caller's connection, unless too many are in flight.
    pub(crate) fn admit(&self, connection: u64) -> Option<CallPermit> {
        self.call_limits.current().admit(connection)
    }

    pub(crate) fn protocol(&self) -> Protocol {
        self.any_client().protocol()
    }

    /// Whether responses begin after the last request.
    pub(crate) fn is_half_duplex(&self) -> bool {
        self.any_client().is_half_duplex()
    }

    /// Returns a client for requests that belong to no caller's call, such as reflection.
    pub(crate) fn any_client(&self) -> &Client {
        self.clients.first()
    }

    /// Returns the client of this thread, for calls.
    pub(crate) fn client(&self) -> &Client {
        self.clients.current()
    }

    /// Returns the clients of all threads.
    pub(crate) fn clients(&self) -> &[Client] {
        self.clients.all()
    }

    /// The same servers for copies of calls: separate connections, no retries, a limit on the bytes of a message.
    pub(crate) fn for_copies(spec: &Spec, timeout: Duration, bytes: usize) -> Result<Self, String> {
        let timeout = Some(Span(timeout));
        let spec = Spec { retries: Some(0), idempotent: false, calls: None, timeout, ..spec.clone() };
        let usual = Limits::default();
        let (message, decompressed) = (usual.message.min(bytes), usual.decompressed.min(bytes));
        let limits = Limits { message, decompressed, ..usual };
        // The bytes of copies have their own limit.
        Self::build(spec, 1, |builder| builder.limits(limits.clone()))
    }

    /// The format of messages for this upstream, if callers send `from`.
    pub(crate) fn format(&self, from: Format) -> Format {
        match self.spec.format {
            Some(wire) => wire.format(self.protocol()),
            None => formats::choose(self.any_client(), from),
        }
    }

    /// Why the configured credential cannot be forwarded or sent, if so.
    pub(crate) fn cannot_send_credentials(&self, config: &Config) -> Option<String> {
        match self.spec.credential {
            Credential::Drop => return None,
            Credential::Replace(_) => {
                let text = || format!("`{}` cannot send a credential: rest_rpc has none", self.spec.name);
                return (self.protocol() == Protocol::RestRpc).then(text);
            }
            Credential::Pass => {}
        }
        let is_metadata = |protocol: Protocol| protocol.descriptor().capabilities.has_fields();
        let to = self.protocol();
        if !is_metadata(to) {
            return Some(format!(
                "`{}` cannot pass credentials: in {} they belong to a connection, which calls share",
                self.spec.name,
                to.as_str()
            ));
        }
        let accepted = |from: &Protocol| config.accepts(*from) && !is_metadata(*from);
        let refused: Vec<_> = Protocol::ALL.into_iter().filter(accepted).map(Protocol::as_str).collect();
        (!refused.is_empty()).then(|| {
            format!(
                "`{}` cannot pass credentials of {} callers; restrict the `protocols` of each listener to grpc and http",
                self.spec.name,
                refused.join(", ")
            )
        })
    }
}

fn client(spec: &Spec, with: &impl Fn(Builder) -> Builder) -> Result<Client, String> {
    let mut builder = with(Client::builder(&spec.url));
    if let Some(timeout) = spec.timeout {
        builder = builder.timeout(timeout.0);
    }
    if let Some(timeout) = spec.connect_timeout {
        builder = builder.connect_timeout(timeout.0);
    }
    if let Some(retries) = spec.retries {
        builder = builder.retries(retries);
    }
    if spec.idempotent {
        builder = builder.idempotent();
    }
    if let Credential::Replace(secret) = &spec.credential {
        builder = builder.credential(secret.read()?);
    }
    if let Some(tls) = &spec.tls {
        builder = builder.tls(client_tls(tls));
    }
    if let Some(breaker) = &spec.breaker {
        builder = builder.circuit_breaker(circuit_breaker(breaker)?);
    }
    if let Some(health) = &spec.health {
        builder = builder.health_check(health_check(health));
    }
    builder.build().map_err(|error| error.to_string())
}

fn circuit_breaker(spec: &Breaker) -> Result<CircuitBreaker, String> {
    match (spec.consecutive, spec.failures) {
        (Some(failures), None) => Ok(CircuitBreaker::consecutive(failures.max(1), spec.window.0)),
        (None, Some(share)) => Ok(CircuitBreaker::failure_ratio(share.0, spec.min_calls, spec.window.0)),
        _ => Err("`breaker` has either `consecutive` or `failures`".to_owned()),
    }
}

fn health_check(spec: &Health) -> HealthCheck {
    let mut check = match &spec.check {
        Check::Connect => HealthCheck::connect(),
        Check::Heartbeat => HealthCheck::heartbeat(),
        Check::Grpc(service) => HealthCheck::grpc(service),
        Check::Http(path) => HealthCheck::http(path),
    };
    if let Some(interval) = spec.interval {
        check = check.interval(interval.0);
    }
    if let Some(timeout) = spec.timeout {
        check = check.timeout(timeout.0);
    }
    check.always()
}

fn client_tls(spec: &UpstreamTls) -> tls::Client {
    let mut tls = tls::Client::new();
    if let Some(ca) = &spec.ca {
        tls = tls.ca(ca.clone());
    }
    if let Some(cert) = &spec.cert {
        tls = tls.identity(Identity::new(cert.clone(), spec.key.as_ref().unwrap_or(cert).clone()));
    }
    if let Some(name) = &spec.server_name {
        tls = tls.server_name(name);
    }
    tls
}
