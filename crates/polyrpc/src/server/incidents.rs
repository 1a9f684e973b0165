//! Rejections of a server, and reasons for which it closed connections: counted by cause, and logged if an operator
//! would act.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use polyrpc_core::session::Refusals;

use crate::call::Peer;

/// Defines the causes of a kind with their metric labels.
macro_rules! causes {
    ($(#[$doc:meta])* $kind:ident { $($(#[$what:meta])* $cause:ident => $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub(crate) enum $kind { $($(#[$what])* $cause,)* }

        impl $kind {
            const NAMES: &[&str] = &[$($name,)*];

            /// Returns its metric label.
            pub(crate) fn name(self) -> &'static str {
                Self::NAMES.get(self as usize).copied().unwrap_or_default()
            }
        }
    };
}

causes! {
    /// Why a call, or a connection before its first call, was rejected.
    Refusal {
        /// The limit of open connections.
        Connections => "connections",
        /// The limit of open connections of the peer address.
        PeerConnections => "peer_connections",
        /// The limit of pending calls.
        Calls => "calls",
        /// The limit of pending calls of the peer address.
        PeerCalls => "peer_calls",
        /// The limit of pending calls of the connection.
        ConnectionCalls => "connection_calls",
        /// The limit of open streams.
        Streams => "streams",
        /// The limit of open streams of the peer address.
        PeerStreams => "peer_streams",
        /// The limit of open streams of the connection.
        ConnectionStreams => "connection_streams",
        /// The server's memory budget is used up.
        Memory => "memory",
        /// The server's concurrency limit.
        Concurrency => "concurrency",
        /// The method's concurrency limit.
        MethodConcurrency => "method_concurrency",
        /// The credential was not accepted.
        Credential => "credential",
        /// The authenticator did not answer in time.
        AuthenticationTimeout => "authentication_timeout",
        /// A stream was idle for too long.
        StreamIdle => "stream_idle",
        /// Pushed messages are not read.
        Pushes => "pushes",
        /// A message, a body or a head exceeds its limit.
        TooLarge => "too_large",
        /// The service, method or path does not exist.
        UnknownMethod => "unknown_method",
        /// Its content type, its coding or its HTTP verb is not supported.
        Unsupported => "unsupported",
        /// Its TLS handshake failed.
        TlsHandshake => "tls_handshake",
        /// It used clear text where only TLS is accepted.
        ClearText => "clear_text",
    }
}

causes! {
    /// Why the server closed a connection before its peer did.
    Closing {
        /// It sent nothing.
        FirstByte => "first_byte_timeout",
        /// Its protocol could not be detected, or its handshake or head was not complete in time.
        Head => "header_timeout",
        /// It did not send the rest of a message.
        Message => "message_timeout",
        /// It did not read, or its system did not answer.
        Write => "write_timeout",
        /// It had closed its half while calls were in flight, and they did not end in time.
        HalfClosed => "half_close_timeout",
        /// It was idle.
        Idle => "idle_timeout",
        /// It did not answer a keepalive.
        Keepalive => "keepalive_timeout",
        /// It reached its maximum age.
        Age => "connection_age",
        /// It held more memory than allowed.
        Memory => "memory_per_connection",
        /// It held more than all others when the memory budget was used up.
        LargestHolder => "largest_holder",
        /// It was evicted to make room for another connection.
        MadeRoom => "made_room",
        /// It violated its protocol.
        Malformed => "malformed",
        /// It sent a message, or a head, above its limit.
        TooLarge => "too_large",
        /// It caused more work than a well-behaved peer does.
        Flood => "flood",
        /// It sent too many invalid credentials.
        Credentials => "credentials",
        /// Its protocol is unknown, or not allowed here.
        UnknownProtocol => "unknown_protocol",
    }
}

/// Counters of incidents.
#[derive(Debug)]
pub(crate) struct IncidentCounters {
    refusals: [AtomicU64; Refusal::NAMES.len()],
    closings: [AtomicU64; Closing::NAMES.len()],
    /// Values of requests that were ignored, since their messages have no field for them.
    pub(crate) unknown_fields: Arc<AtomicU64>,
}

impl Default for IncidentCounters {
    fn default() -> Self {
        Self {
            refusals: [const { AtomicU64::new(0) }; Refusal::NAMES.len()],
            closings: [const { AtomicU64::new(0) }; Closing::NAMES.len()],
            unknown_fields: Arc::default(),
        }
    }
}

impl IncidentCounters {
    /// Counts a rejection.
    #[cold]
    pub(crate) fn record_refusal(&self, cause: Refusal, peer: &Peer) {
        self.refusals[cause as usize].fetch_add(1, Ordering::Relaxed);
        trace::refusal(cause, peer);
    }

    /// Counts a call to an unknown service or method, and logs its name.
    #[cold]
    pub(crate) fn record_unknown_method(&self, service: &str, method: &str, peer: &Peer) {
        self.count(Refusal::UnknownMethod);
        trace::unknown_method(service, method, peer);
    }

    /// Counts the rejections of a session.
    #[cold]
    pub(crate) fn record_session_refusals(&self, refusals: Refusals, peer: &Peer) {
        let Refusals { too_large, unknown, unsupported } = refusals;
        for (cause, times) in [
            (Refusal::TooLarge, too_large),
            (Refusal::UnknownMethod, unknown),
            (Refusal::Unsupported, unsupported),
        ] {
            (0..times).for_each(|_| self.record_refusal(cause, peer));
        }
    }

    /// Counts a failed TLS handshake.
    #[cold]
    pub(crate) fn record_handshake_failure(&self, error: &std::io::Error, peer: &Peer) {
        self.count(Refusal::TlsHandshake);
        trace::handshake(error, peer);
    }

    /// Counts a failed or unfinished QUIC handshake, like one of TLS over TCP.
    #[cfg(feature = "quic")]
    #[cold]
    pub(crate) fn record_quic_handshake_failure(&self, error: &std::io::Error, peer: &Peer) {
        match error.kind() {
            std::io::ErrorKind::TimedOut => self.record_closing(Closing::Head, peer),
            _ => self.record_handshake_failure(error, peer),
        }
    }

    /// Counts a connection whose first bytes match no protocol allowed here.
    #[cold]
    pub(crate) fn record_unknown_protocol(&self, start: &[u8], peer: &Peer) {
        self.closings[Closing::UnknownProtocol as usize].fetch_add(1, Ordering::Relaxed);
        trace::unknown_protocol(start, peer);
    }

    /// Counts a rejection that is routine, and so not logged.
    #[cold]
    pub(crate) fn count(&self, cause: Refusal) {
        self.refusals[cause as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that the server closed.
    #[cold]
    pub(crate) fn record_closing(&self, cause: Closing, peer: &Peer) {
        self.closings[cause as usize].fetch_add(1, Ordering::Relaxed);
        trace::closing(cause, peer);
    }

    /// Returns the number of rejected calls and connections, by cause.
    pub(crate) fn rejections(&self) -> Vec<(&'static str, u64)> {
        read(Refusal::NAMES, &self.refusals)
    }

    /// Returns the number of values of requests that were ignored, since their messages have no field for them.
    pub(crate) fn unknown_fields(&self) -> u64 {
        self.unknown_fields.load(Ordering::Relaxed)
    }

    /// Returns the number of connections that the server closed, by cause.
    pub(crate) fn closed_connections(&self) -> Vec<(&'static str, u64)> {
        read(Closing::NAMES, &self.closings)
    }
}

fn read(names: &[&'static str], counts: &[AtomicU64]) -> Vec<(&'static str, u64)> {
    names.iter().zip(counts).map(|(name, count)| (*name, count.load(Ordering::Relaxed))).collect()
}

mod trace {
    use std::time::Duration;

    use super::{Closing, Refusal};
    use crate::call::Peer;
    use crate::rate_limited::EventLimiter;

    static REFUSALS: EventLimiter = EventLimiter::new(10, Duration::from_secs(10));
    static CLOSINGS: EventLimiter = EventLimiter::new(10, Duration::from_secs(10));
    static HANDSHAKES: EventLimiter = EventLimiter::new(10, Duration::from_secs(10));
    /// For mistaken requests of clients. A separate limit, so that they do not suppress other events.
    static CLIENT_ERRORS: EventLimiter = EventLimiter::new(10, Duration::from_secs(10));

    pub(super) fn unknown_method(service: &str, method: &str, peer: &Peer) {
        if let Some(suppressed) = CLIENT_ERRORS.allow() {
            let cause = Refusal::UnknownMethod.name();
            // By Debug, since the peer chooses the names.
            let (service, method) = (truncate_name(service), truncate_name(method));
            tracing::warn!(cause, ?service, ?method, %peer, suppressed, "refused");
        }
    }

    pub(super) fn handshake(error: &std::io::Error, peer: &Peer) {
        let cause = Refusal::TlsHandshake.name();
        // Handshakes that scanners and disconnecting clients abort are no warning.
        if error.kind() != std::io::ErrorKind::InvalidData {
            tracing::debug!(cause, %peer, %error, "TLS handshake failed");
        } else if let Some(suppressed) = HANDSHAKES.allow() {
            tracing::warn!(cause, %peer, %error, suppressed, "TLS handshake failed");
        }
    }

    pub(super) fn unknown_protocol(start: &[u8], peer: &Peer) {
        let Some(suppressed) = CLOSINGS.allow() else { return };
        let cause = Closing::UnknownProtocol.name();
        match is_client_hello(start) {
            true => {
                let came = "a TLS ClientHello on a port without TLS";
                tracing::warn!(cause, %peer, came, suppressed, "connection closed");
            }
            false => tracing::warn!(cause, %peer, suppressed, "connection closed"),
        }
    }

    /// Returns whether it is a TLS handshake record (RFC 8446, section 5.1).
    pub(super) fn is_client_hello(start: &[u8]) -> bool {
        matches!(start, [22, 3, ..])
    }

    /// A name may be as long as a head.
    fn truncate_name(name: &str) -> &str {
        name.get(..name.floor_char_boundary(MAX_NAME_BYTES)).unwrap_or_default()
    }

    /// Maximum size of a logged name, in bytes.
    const MAX_NAME_BYTES: usize = 200;

    pub(super) fn refusal(cause: Refusal, peer: &Peer) {
        let limiter = match cause {
            Refusal::TooLarge | Refusal::UnknownMethod | Refusal::Unsupported => &CLIENT_ERRORS,
            _ => &REFUSALS,
        };
        if let Some(suppressed) = limiter.allow() {
            tracing::warn!(cause = cause.name(), %peer, suppressed, "refused");
        }
    }

    pub(super) fn closing(cause: Closing, peer: &Peer) {
        // Routine incidents are no warning.
        match cause {
            Closing::Idle | Closing::FirstByte | Closing::Age => {
                tracing::debug!(cause = cause.name(), %peer, "connection closed");
            }
            _ => {
                if let Some(suppressed) = CLOSINGS.allow() {
                    tracing::warn!(cause = cause.name(), %peer, suppressed, "connection closed");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_client_hello_is_detected() {
        assert!(trace::is_client_hello(&[22, 3, 1, 2, 0, 1]));
        for other in [&b""[..], b"\x16", b"GET / HTTP/1.1", &[22, 4]] {
            assert!(!trace::is_client_hello(other), "{other:?}");
        }
    }

    #[test]
    fn every_cause_is_counted_under_its_name() {
        let incidents = IncidentCounters::default();
        incidents.record_refusal(Refusal::Credential, &Peer::Unix);
        incidents.record_closing(Closing::UnknownProtocol, &Peer::Unix);
        let counted = |counts: Vec<(&'static str, u64)>| -> Vec<_> {
            counts.into_iter().filter(|(_, count)| *count > 0).collect()
        };
        assert_eq!(counted(incidents.rejections()), [("credential", 1)]);
        assert_eq!(counted(incidents.closed_connections()), [("unknown_protocol", 1)]);
        let by_session = Refusals { too_large: 2, unknown: 0, unsupported: 1 };
        incidents.record_session_refusals(by_session, &Peer::Unix);
        incidents.record_unknown_method(&"s".repeat(10_000), "\u{e4}", &Peer::Unix);
        assert_eq!(
            counted(incidents.rejections()),
            [("credential", 1), ("too_large", 2), ("unknown_method", 1), ("unsupported", 1)]
        );
    }
}
