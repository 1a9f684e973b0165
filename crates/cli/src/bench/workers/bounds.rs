//! What a worker agrees to do: which servers it calls, and how much.

use std::str::FromStr;
use std::time::Duration;

use polyrpc::Status;
use polyrpc::client::ConnectionMode;
use polyrpc_load::{CallKind, Method, Pacing, Plan, PlanPart, Rate};

use super::message::PlanMessage;
use crate::url::Url;

/// Bounds of each load.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    pub(super) allowed: Vec<AllowedTarget>,
    /// Messages sent per second: one for each call, except of client streams.
    pub(super) rate: Rate,
    /// Time from the start of the warm-up to the end of the wait for the last replies.
    pub(super) duration: Duration,
    pub(super) connections: usize,
    /// Bytes of messages, histograms, calls in flight and connections.
    pub(super) memory: usize,
}

/// A server that may be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AllowedTarget {
    host: String,
    /// `None`: every port.
    port: Option<u16>,
}

impl FromStr for AllowedTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = match text.strip_suffix(":*") {
            Some(host) => (host, None),
            None => {
                let (host, port) = split_host_port(text).ok_or_else(|| wrong(text))?;
                (host, Some(port))
            }
        };
        match is_host(host) {
            true => Ok(Self { host: host.to_ascii_lowercase(), port }),
            false => Err(wrong(text)),
        }
    }
}

fn wrong(text: &str) -> String {
    format!("`{text}` is not HOST:PORT or HOST:*")
}

/// Host and port.
fn split_host_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    port.parse().ok().filter(|_| is_number).map(|port| (host, port))
}

/// A name, an IPv4 address, or an IPv6 address in brackets. Nothing that a client could read in another way.
fn is_host(host: &str) -> bool {
    let is_plain = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => is_plain(host),
    }
}

impl Bounds {
    /// Checks a plan, and returns it with the part that this worker makes.
    ///
    /// # Errors
    ///
    /// `permission_denied` for a server that is not allowed, `invalid_argument` for a plan that contradicts itself or exceeds
    /// a bound, which is named.
    pub(super) fn accept(&self, message: PlanMessage) -> Result<(Plan, PlanPart), Status> {
        self.check_target(&message.url).map_err(Status::permission_denied)?;
        let (plan, part) = message.into_plan().map_err(Status::invalid_argument)?;
        self.check_load(&plan, part).map_err(Status::invalid_argument)?;
        Ok((plan, part))
    }

    fn check_target(&self, url: &str) -> Result<(), String> {
        let parsed = Url::parse(url).ok_or_else(|| format!("`{url}` is not a URL"))?;
        if let Some(registry) = &parsed.registry {
            return Err(format!(
                "a worker calls the server that a URL names, and finds none by `{registry}`"
            ));
        }
        if parsed.parameter("transport") == Some("unix") || parsed.socket().is_some() {
            return Err("a worker calls no Unix sockets".to_owned());
        }
        let server = parsed.server();
        let target = split_host_port(server).filter(|(host, _)| is_host(host));
        let (host, port) = target.ok_or_else(|| format!("`{server}` is not HOST:PORT"))?;
        let is_allowed = |allowed: &AllowedTarget| {
            allowed.host.eq_ignore_ascii_case(host) && allowed.port.is_none_or(|allowed| allowed == port)
        };
        match self.allowed.iter().any(is_allowed) {
            true => Ok(()),
            false => Err(format!("{server} is not among the servers that this worker may call (--allow)")),
        }
    }

    fn check_load(&self, plan: &Plan, part: PlanPart) -> Result<(), String> {
        if part.of == 0 || part.of > MAX_WORKERS || plan.threads == 0 || plan.threads > MAX_THREADS {
            return Err(format!("expected 1 to {MAX_WORKERS} workers with 1 to {MAX_THREADS} threads each"));
        }
        let Pacing::Open { profile, .. } = &plan.pacing else {
            return Err("a worker makes calls at planned times only".to_owned());
        };
        let thousandths = |rate: f64| (rate * 1e3).round() / 1e3;
        let messages = plan.methods.iter().map(messages_of_call).max().unwrap_or(1);
        let rate = thousandths(profile.highest_rate() / part.of as f64 * messages as f64);
        let most = thousandths(self.rate.calls_per_second());
        if rate > most {
            let unit = if messages == 1 { "" } else { " messages" };
            return Err(format!("{rate}{unit}/s is above this worker's --max-rate of {most}/s"));
        }
        let length = plan.measured_time().ok_or("the load has no end")?;
        let whole = [plan.warmup, length, plan.drain_timeout]
            .into_iter()
            .fold(Duration::ZERO, Duration::saturating_add);
        if whole > self.duration {
            return Err(format!(
                "with warm-up and the wait for the last replies it takes {whole:.0?}, more than this worker's \
                 --max-duration of {:.0?}",
                self.duration
            ));
        }
        let connections = plan.connections.div_ceil(part.of).saturating_add(plan.threads);
        let in_flight = plan.max_in_flight.div_ceil(part.of).saturating_add(plan.threads);
        let connections = match plan.connection_mode {
            ConnectionMode::Shared => connections,
            _ => connections.max(in_flight),
        };
        if connections > self.connections {
            return Err(format!(
                "up to {connections} connections are more than this worker's --max-connections of {}",
                self.connections
            ));
        }
        let memory = estimate_memory(plan, connections, in_flight);
        if memory > self.memory {
            return Err(format!(
                "it may take {} MiB, more than this worker's --max-memory of {} MiB",
                memory >> 20,
                self.memory >> 20
            ));
        }
        Ok(())
    }
}

/// Messages that a call of a method sends.
fn messages_of_call(method: &Method) -> usize {
    match method.kind {
        CallKind::ClientStream { messages } => messages,
        _ => 1,
    }
}

/// An estimate, from above, of what a load takes in bytes.
fn estimate_memory(plan: &Plan, connections: usize, in_flight: usize) -> usize {
    let messages = |method: &Method| method.messages.iter().map(|body| body.bytes.len() + PER_MESSAGE).sum();
    let messages: usize = plan.methods.iter().map(messages).fold(0, usize::saturating_add);
    let histograms = HISTOGRAM.saturating_mul(4 + 2 * plan.methods.len());
    let threads = histograms.saturating_mul(plan.threads + 1);
    let parts =
        [messages, threads, PER_CONNECTION.saturating_mul(connections), PER_CALL.saturating_mul(in_flight)];
    parts.into_iter().fold(0, usize::saturating_add)
}

const MAX_WORKERS: usize = 1_000;
const MAX_THREADS: usize = 256;
/// Bytes of a histogram of three digits.
const HISTOGRAM: usize = 264 << 10;
const PER_MESSAGE: usize = 64;
/// A connection with its buffers.
const PER_CONNECTION: usize = 64 << 10;
/// A call in flight.
const PER_CALL: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::super::message::tests::plan_of;
    use super::*;
    use polyrpc::Code;

    fn bounds(allowed: &[&str]) -> Bounds {
        Bounds {
            allowed: allowed.iter().map(|text| text.parse().unwrap()).collect(),
            rate: Rate::per_second(1_000).unwrap(),
            duration: Duration::from_secs(60),
            connections: 100,
            memory: 64 << 20,
        }
    }

    #[test]
    fn only_allowed_servers_are_called() {
        let bounds = bounds(&["127.0.0.1:8000", "Bench.example:*", "[::1]:8000"]);
        for url in [
            "rpcx://127.0.0.1:8000",
            "grpcs://bench.example:1",
            "http://BENCH.example:80/path",
            "grpc://[::1]:8000",
            "rpcx://127.0.0.1:8000?transport=ws",
        ] {
            assert_eq!(
                bounds.accept(plan_of(url)).map(drop).map_err(|status| status.to_string()),
                Ok(()),
                "{url}"
            );
        }
        for url in [
            "rpcx://127.0.0.1:8001",
            "rpcx://127.0.0.1:80000",
            "rpcx://127.0.0.1",
            "rpcx://localhost:8000",
            "rpcx://evil.example:1#@bench.example:1",
            "rpcx://bench.example:1@evil.example:1",
            "rpcx://bench.example:1,evil.example:1",
            "rpcx://127.0.0.1:+8000",
            "rpcx:///run/docker.sock",
            "rpcx://127.0.0.1:8000?transport=unix",
            "rpcx+list://127.0.0.1:8000",
            "rpcx+etcd://127.0.0.1:8000/base/S",
            "127.0.0.1:8000",
        ] {
            let refused = bounds.accept(plan_of(url)).map(drop).unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied, "{url}: {refused}");
        }
        for wrong in ["*:*", "127.0.0.1", "127.0.0.1:", "a b:1", ":1", "[x]:1", "h:99999"] {
            assert!(wrong.parse::<AllowedTarget>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn load_beyond_a_bound_is_rejected_by_its_name() {
        let plan = || plan_of("rpcx://127.0.0.1:8000");
        let refused = |bounds: Bounds| {
            let status = bounds.accept(plan()).map(drop).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument);
            status.message().to_owned()
        };
        let bounds = bounds(&["127.0.0.1:8000"]);
        assert!(bounds.accept(plan()).is_ok());
        let slow = Rate::per_second(100).unwrap();
        assert_eq!(
            refused(Bounds { rate: slow, ..bounds.clone() }),
            "777.778 messages/s is above this worker's --max-rate of 100/s"
        );
        let short = Bounds { duration: Duration::from_secs(21), ..bounds.clone() };
        assert!(refused(short).contains("it takes 22s, more than this worker's --max-duration of 21s"));
        assert!(refused(Bounds { connections: 34, ..bounds.clone() }).contains("--max-connections of 34"));
        assert!(refused(Bounds { memory: 1 << 20, ..bounds }).contains("--max-memory of 1 MiB"));
    }
}
