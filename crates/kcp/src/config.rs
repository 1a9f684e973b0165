use std::time::Duration;

use super::crypt::Cipher;

/// Settings of conversations. Both sides must agree on cipher and shards; the other settings are local.
#[derive(Debug, Clone)]
pub struct Config {
    /// Encryption of datagrams. `None`, the default: no encryption and no checksum, like `kcp-go` without a cipher;
    /// [`Algorithm::None`](super::Algorithm::None) keeps the checksum. rpcx requires a cipher.
    pub cipher: Option<Cipher>,
    /// Forward error correction. `None`, the default: no parity datagrams. rpcx uses 10 data and 3 parity datagrams.
    pub shards: Option<Shards>,
    /// Windows and timers.
    pub tuning: Tuning,
    /// Maximum length of a datagram in bytes, between 128 and 1500. Default: 1400.
    pub mtu: usize,
    /// How long a peer may be silent before its conversation ends. Default: 60 s.
    ///
    /// A silent peer is probed, so that only the conversation of an unreachable peer ends. A listener waits ten times
    /// as long for a `kcp-go` client with a validated address, unless another client needs the slot.
    pub idle_timeout: Duration,
    /// How long a client waits for an acknowledgement while nothing at all arrives from the server. Then the
    /// conversation ends and the calls in flight fail, as with TCP's `TCP_USER_TIMEOUT`. At least 1 s. Default: 5 s.
    ///
    /// A listener ignores it and waits for [`idle_timeout`](Self::idle_timeout).
    pub ack_timeout: Duration,
    /// Maximum number of conversations of a listening socket. Peers with a validated address may have 15 of 16; a
    /// further one takes the place of one without calls, of the network that has most first. Default: 4096.
    pub conversations: usize,
    /// Maximum number of conversations with an unvalidated address: the peer has not acknowledged anything yet, so the
    /// address may be forged. A further one evicts the oldest of them. Default: 1024.
    pub unvalidated: usize,
}

/// Size of an error correction group: as many datagrams of a group may be lost as it has parity datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shards {
    /// Number of data datagrams.
    pub data: u8,
    /// Number of parity datagrams.
    pub parity: u8,
}

/// Windows and timers of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Whether to retransmit sooner: after at least 30 ms instead of 100 ms, with a delay that grows by half instead of
    /// doubling. Default: `false`.
    pub nodelay: bool,
    /// Maximum delay of acknowledgements in milliseconds, between 10 and 5000. Default: 40.
    pub interval: u32,
    /// A segment is retransmitted at once when this many later ones have been acknowledged; 0 waits for the timeout.
    /// Default: 2.
    pub fast_resend: u32,
    /// Whether to send less when many segments are lost. `false`: the whole window is always used. Default: `true`.
    pub congestion_control: bool,
    /// Maximum number of segments in flight. Default: 128.
    pub send_window: u16,
    /// Maximum number of segments buffered for the reader. Default: 128.
    pub receive_window: u16,
    /// Whether small writes that wait share a segment; `false`: each write is a segment of its own. Default: `true`.
    pub stream: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cipher: None,
            shards: None,
            tuning: Tuning::default(),
            mtu: 1400,
            idle_timeout: Duration::from_secs(60),
            ack_timeout: Duration::from_secs(5),
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

    /// Returns the minimum retransmission timeout in milliseconds (`kcp.go: IKCP_RTO_NDL`, `IKCP_RTO_MIN`).
    pub(super) fn min_timeout(&self) -> u32 {
        if self.nodelay { 30 } else { 100 }
    }

    /// Returns the same settings clamped to working ranges.
    pub(super) fn clamp(self) -> Self {
        Self {
            interval: self.interval.clamp(10, 5000),
            send_window: self.send_window.clamp(1, MAX_WINDOW),
            receive_window: self.receive_window.clamp(1, MAX_WINDOW),
            ..self
        }
    }
}

/// Maximum window in segments. One peer can make us buffer two windows of 12 MB each.
const MAX_WINDOW: u16 = 8192;
