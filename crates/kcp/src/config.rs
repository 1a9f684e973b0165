use std::time::Duration;

use super::crypt::Cipher;

/// Settings of conversations. Both sides must agree on cipher and shards; the other settings are local.
#[derive(Debug, Clone)]
pub struct Config {
    /// Encryption of datagrams. `None`: no encryption and no checksum, like `kcp-go` without a cipher;
    /// [`Algorithm::None`](super::Algorithm::None) keeps the checksum. rpcx requires a cipher.
    pub cipher: Option<Cipher>,
    /// Forward error correction. rpcx uses 10 and 3.
    pub shards: Option<Shards>,
    /// Windows and timers.
    pub tuning: Tuning,
    /// Maximum length of a datagram in bytes, between 128 and 1500. 1400.
    pub mtu: usize,
    /// How long a peer may be silent. It is probed in between, so that only an unreachable peer is given up. A listener
    /// allows ten times that for a validated client of `kcp-go`, unless it needs the slot. 60 s.
    pub idle: Duration,
    /// How long a server may leave what a client has sent unacknowledged while nothing else arrives from it either; then
    /// the conversation ends, and with it the calls in flight (TCP's `TCP_USER_TIMEOUT`). A listener waits for
    /// [`idle`](Self::idle) instead. At least 1 s. 5 s.
    pub unanswered: Duration,
    /// Maximum number of conversations of a listening socket. 4096.
    pub conversations: usize,
    /// Maximum number of these whose peer has an unvalidated address: it has not acknowledged anything yet, so that its
    /// address may be forged. One more evicts the oldest of them. 1024.
    pub unvalidated: usize,
}

/// Size of an error correction group: as many datagrams may be lost as parity datagrams were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shards {
    /// Data datagrams.
    pub data: u8,
    /// Parity datagrams.
    pub parity: u8,
}

/// Windows and timers of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Retransmissions start after 30 ms rather than 100 at the earliest, and their delay grows by half.
    pub nodelay: bool,
    /// Milliseconds that acknowledgements may be delayed, between 10 and 5000. 40.
    pub interval: u32,
    /// Number of later acknowledged segments after which one is retransmitted at once; 0 waits for the timeout. 2.
    pub fast_resend: u32,
    /// Whether to send less when many segments are lost. Without it the window is always used fully.
    pub congestion_control: bool,
    /// Maximum number of segments in flight. 128.
    pub send_window: u16,
    /// Maximum number of segments buffered for the reader. 128.
    pub receive_window: u16,
    /// Whether small writes share a segment while they wait; otherwise each write is one segment.
    pub stream: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cipher: None,
            shards: None,
            tuning: Tuning::default(),
            mtu: 1400,
            idle: Duration::from_secs(60),
            unanswered: Duration::from_secs(5),
            conversations: 4096,
            unvalidated: 1024,
        }
    }
}

impl Config {
    /// Returns rpcx's settings: this cipher, and 3 parity datagrams for every 10.
    pub fn rpcx(cipher: Cipher) -> Self {
        Self { cipher: Some(cipher), shards: Some(Shards { data: 10, parity: 3 }), ..Self::default() }
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            nodelay: false,
            interval: 40,
            fast_resend: 2,
            congestion_control: true,
            send_window: 128,
            receive_window: 128,
            stream: true,
        }
    }
}

impl Tuning {
    /// Returns KCP's fastest mode, `nodelay(1, 10, 2, 1)`: it trades bandwidth for latency.
    pub fn fast() -> Self {
        Self { nodelay: true, interval: 10, fast_resend: 2, congestion_control: false, ..Self::default() }
    }

    /// `kcp.go: IKCP_RTO_NDL`, `IKCP_RTO_MIN`
    pub(super) fn least_timeout(&self) -> u32 {
        if self.nodelay { 30 } else { 100 }
    }

    /// Returns the same settings clamped to working ranges.
    pub(super) fn bounded(self) -> Self {
        Self {
            interval: self.interval.clamp(10, 5000),
            send_window: self.send_window.clamp(1, WINDOW),
            receive_window: self.receive_window.clamp(1, WINDOW),
            ..self
        }
    }
}

/// Maximum window: 12 MB that one peer can make us buffer, twice.
const WINDOW: u16 = 8192;
