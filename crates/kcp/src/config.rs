use std::time::Duration;

use super::crypt::Cipher;

/// How conversations are held. Both sides must agree on cipher and shards; the rest is each side's own business.
#[derive(Debug, Clone)]
pub struct Config {
    /// What datagrams are encrypted with. `None`: nothing, and without a checksum either, as `kcp-go` does it when it
    /// is given no cipher; [`Algorithm::None`](super::Algorithm::None) keeps the checksum. rpcx insists on a cipher.
    pub cipher: Option<Cipher>,
    /// Forward error correction. rpcx uses 10 and 3.
    pub shards: Option<Shards>,
    /// Windows and times.
    pub tuning: Tuning,
    /// Bytes of a datagram, between 128 and 1500. 1400.
    pub mtu: usize,
    /// For how long a peer may be silent. It is asked for a sign of life in between, so that only one that is gone is
    /// given up. A listener bears ten times that with a client which has heard it, unless it needs the place. 60 s.
    pub idle: Duration,
    /// How many conversations a listening socket holds at most. 4096.
    pub conversations: usize,
    /// How many of these may be with peers whose address is not validated: they have not acknowledged anything yet, so
    /// that their address may be forged. One more ends the oldest of them. 1024.
    pub unvalidated: usize,
}

/// How many datagrams are protected together, and by how many more: as many may be lost as were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shards {
    /// Datagrams with data.
    pub data: u8,
    /// Datagrams that are added.
    pub parity: u8,
}

/// Windows and times of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Repeats are sent after 30 ms rather than 100 at the earliest, and less and less often by half.
    pub nodelay: bool,
    /// Milliseconds that acknowledgements may wait, between 10 and 5000. 40.
    pub interval: u32,
    /// After how many later segments have arrived one is sent again at once; 0 waits for the time-out. 2.
    pub fast_resend: u32,
    /// Whether less is sent when the link loses much. Without it the window is always used to the full.
    pub congestion_control: bool,
    /// How many segments may be under way. 128.
    pub send_window: u16,
    /// How many segments are kept for a reader. 128.
    pub receive_window: u16,
    /// Whether small writes share a segment while they wait; else each is one.
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
            conversations: 4096,
            unvalidated: 1024,
        }
    }
}

impl Config {
    /// What rpcx uses: this cipher, and 3 datagrams added to every 10.
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
    /// What KCP calls its fastest mode, `nodelay(1, 10, 2, 1)`: it wins time with bandwidth.
    pub fn fast() -> Self {
        Self { nodelay: true, interval: 10, fast_resend: 2, congestion_control: false, ..Self::default() }
    }

    /// `kcp.go: IKCP_RTO_NDL`, `IKCP_RTO_MIN`
    pub(super) fn least_timeout(&self) -> u32 {
        if self.nodelay { 30 } else { 100 }
    }

    /// The same within the bounds of what works.
    pub(super) fn bounded(self) -> Self {
        Self {
            interval: self.interval.clamp(10, 5000),
            send_window: self.send_window.clamp(1, WINDOW),
            receive_window: self.receive_window.clamp(1, WINDOW),
            ..self
        }
    }
}

/// The largest window: 12 MB that one peer can make us keep, twice.
const WINDOW: u16 = 8192;
