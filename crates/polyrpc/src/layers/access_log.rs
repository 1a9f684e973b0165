use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use polyrpc_core::Status;
use polyrpc_wire::Protocol;

use super::observe::{Observer, observe};
use super::sampler::Sampler;
use super::{CallEnd, CallStart};
use crate::call::{Outcome, Peer};
use crate::layer::{Call, Layer, Next, Side};
use crate::propagation::{self, TraceParent};

/// Access log: passes a line for each finished call to a function of the program, to print or log it.
///
/// ```
/// use polyrpc::layers::AccessLog;
///
/// // All that fail, all that take long, and a hundredth of the others.
/// let log = AccessLog::new(|line| println!("{line}"))
///     .sample_rate(0.01)
///     .slow(std::time::Duration::from_millis(100));
/// let server = polyrpc::Server::new().layer(log);
/// ```
///
/// A line reads `server rpcx 127.0.0.1:51234 Arith/Mul ok 183.2µs 12 → 5 00-4bf9…-01`: side, protocol, caller, method,
/// result, duration, bytes of request and reply, and the trace if there is one.
#[derive(Clone)]
pub struct AccessLog(Arc<Shared>);

#[derive(Clone)]
struct Shared {
    sink: Arc<dyn Fn(&LogLine<'_>) + Send + Sync>,
    /// Sampling of the calls that are neither slow nor fail.
    sampler: Arc<Sampler>,
    slow: Duration,
}

/// A call as it is logged.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct LogLine<'a> {
    /// The side on which it was observed.
    pub side: Side,
    /// The protocol that carried it.
    pub protocol: Protocol,
    /// The caller; `None` on a client.
    pub peer: Option<&'a Peer>,
    /// The service; empty for a plain function.
    pub service: &'a str,
    /// The method, or the function's name.
    pub method: &'a str,
    /// Why it failed, if it did.
    pub failure: Option<&'a Status>,
    /// Its duration.
    pub duration: Duration,
    /// Size of the request, as far as it was received when the call started.
    pub request_bytes: usize,
    /// Size of the reply, if it is a single message.
    pub reply_bytes: usize,
    /// The trace that it belongs to, and the span within which it was made.
    pub trace: Option<TraceParent>,
}

impl AccessLog {
    /// Logs every call. `sink` runs on the caller's or the connection's task and must not block.
    pub fn new(sink: impl Fn(&LogLine<'_>) + Send + Sync + 'static) -> Self {
        let sampler = Arc::new(Sampler::new(1.0));
        Self(Arc::new(Shared { sink: Arc::new(sink), sampler, slow: Duration::MAX }))
    }

    /// Logs this share of the calls that succeed, and all that fail.
    #[must_use]
    pub fn sample_rate(self, rate: f64) -> Self {
        Self(Arc::new(Shared { sampler: Arc::new(Sampler::new(rate)), ..(*self.0).clone() }))
    }

    /// Logs all calls that take at least this long, regardless of the share.
    #[must_use]
    pub fn slow(self, slow: Duration) -> Self {
        Self(Arc::new(Shared { slow, ..(*self.0).clone() }))
    }
}

impl Layer for AccessLog {
    fn call(self: Arc<Self>, call: Call, next: Next) -> impl Future<Output = Outcome> + Send + 'static {
        observe(self, call, next)
    }
}

impl Observer for AccessLog {
    type Call = LoggedCall;

    fn on_start(&self, call: &CallStart<'_>) -> LoggedCall {
        LoggedCall {
            side: call.side,
            protocol: call.protocol,
            peer: call.peer.cloned(),
            names: [call.service, call.method].concat(),
            split: call.service.len(),
            request_bytes: call.request_bytes,
            trace: propagation::current().trace().and_then(|trace| trace.parent),
        }
    }

    fn on_end(&self, call: LoggedCall, end: &CallEnd<'_>) {
        let chosen = self.0.sampler.selects();
        if !chosen && end.failure.is_none() && end.duration < self.0.slow {
            return;
        }
        let (service, method) = call.names.split_at_checked(call.split).unwrap_or_default();
        (self.0.sink)(&LogLine {
            side: call.side,
            protocol: call.protocol,
            peer: call.peer.as_ref(),
            service,
            method,
            failure: end.failure,
            duration: end.duration,
            request_bytes: call.request_bytes,
            reply_bytes: end.reply_bytes,
            trace: call.trace,
        });
    }
}

/// A call that [`AccessLog`] observes.
#[derive(Debug)]
pub(super) struct LoggedCall {
    side: Side,
    protocol: Protocol,
    peer: Option<Peer>,
    /// Service and method, joined.
    names: String,
    split: usize,
    request_bytes: usize,
    trace: Option<TraceParent>,
}

impl fmt::Display for LogLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.side, self.protocol.as_str())?;
        match self.peer {
            Some(peer) => write!(f, "{peer} ")?,
            None => f.write_str("- ")?,
        }
        // Whatever names and texts contain, it stays one line.
        if !self.service.is_empty() {
            write!(f, "{}/", self.service.escape_debug())?;
        }
        write!(f, "{} ", self.method.escape_debug())?;
        match self.failure {
            None => f.write_str("ok")?,
            Some(status) => write!(f, "{:?}", status.to_string())?,
        }
        write!(f, " {:.1?} {} → {}", self.duration, self.request_bytes, self.reply_bytes)?;
        match self.trace {
            Some(trace) => write!(f, " {trace}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessLog").field("share", &self.0.sampler).field("slow", &self.0.slow).finish()
    }
}
