use std::fmt;
use std::sync::Arc;

use super::MAX_DATAGRAM;
use super::config::{Config, Shards};
use super::fec::{self, Code, Decoder, Encoder, Shard};
use super::packet::Envelope;
use super::segment::{self, Command, Segment};

/// A [`Config`] that was found to be usable, with what is made of it once for all conversations.
#[derive(Debug)]
pub struct Settings {
    pub(super) config: Config,
    pub(super) envelope: Envelope,
    correction: Option<(Shards, Arc<Code>)>,
}

impl Settings {
    /// Checks a configuration.
    ///
    /// # Errors
    ///
    /// When datagrams are too short or too long, or there is no code for so many shards.
    pub fn new(mut config: Config) -> Result<Self, Unusable> {
        if !(128..=MAX_DATAGRAM).contains(&config.mtu) {
            return Err(Unusable::Mtu);
        }
        config.tuning = config.tuning.bounded();
        let correction = match config.shards {
            None => None,
            Some(shards) => Some((shards, Arc::new(Code::new(shards).ok_or(Unusable::Shards)?))),
        };
        Ok(Self { envelope: Envelope::new(config.cipher.clone()), correction, config })
    }

    /// Takes the wrapping off a datagram. `None`: it is of somebody who has not got the key, or was damaged.
    pub fn open<'a>(&self, datagram: &'a mut [u8]) -> Option<OpenedDatagram<'a>> {
        let length = datagram.len();
        let payload = self.envelope.open(datagram)?;
        Shard::parse(payload).map(|shard| OpenedDatagram { shard, length })
    }

    /// How many conversations a listening socket holds at most.
    pub fn conversations(&self) -> usize {
        self.config.conversations
    }

    /// How many of these may be with peers whose address is not validated.
    pub fn unvalidated(&self) -> usize {
        self.config.unvalidated.clamp(1, self.config.conversations.max(1))
    }

    /// Bytes of a datagram before its first segment.
    pub(super) fn overhead(&self) -> usize {
        self.envelope.overhead() + self.correction.as_ref().map_or(0, |_| fec::OVERHEAD)
    }

    /// Bytes of data that fit into a datagram.
    pub(super) fn mss(&self) -> usize {
        self.config.mtu - self.overhead() - segment::OVERHEAD
    }

    pub(super) fn correction(&self) -> (Option<Encoder>, Option<Decoder>) {
        match &self.correction {
            None => (None, None),
            Some((shards, code)) => {
                (Some(Encoder::new(*shards, code.clone())), Some(Decoder::new(*shards, code.clone())))
            }
        }
    }
}

/// A datagram without its wrapping.
#[derive(Debug, Clone, Copy)]
pub struct OpenedDatagram<'a> {
    pub(super) shard: Shard<'a>,
    /// Bytes of the datagram, wrapping included.
    pub(super) length: usize,
}

impl OpenedDatagram<'_> {
    /// The conversation that it is of; parity is of whichever there is.
    pub fn conv(&self) -> Option<u32> {
        self.first().map(|segment| segment.conv)
    }

    /// Whether a conversation can begin with it: data, from somebody who has not heard from us. The first segments may
    /// come in any order. `kcp-go` lets a conversation begin with anything, and has a new one for the late datagrams
    /// of one that has ended.
    pub fn begins(&self) -> bool {
        self.first().is_some_and(|first| first.command == Command::Push && first.una == 0 && first.sn < FIRST)
    }

    /// Whether it takes the place of another conversation with the same peer (`sess.go: packetInput`).
    pub fn replaces(&self) -> bool {
        self.begins() && self.first().is_some_and(|first| first.sn == 0)
    }

    fn first(&self) -> Option<Segment<'_>> {
        match self.shard {
            Shard::Data { mut segments, .. } => Segment::cut(&mut segments)?.ok(),
            Shard::Parity { .. } => None,
        }
    }
}

/// What a peer sends before it hears from us: its window, and ours is what it takes to be the default.
const FIRST: u32 = 32;

/// Why a [`Config`] cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusable {
    /// Datagrams must have between 128 and 1500 bytes.
    Mtu,
    /// Shards must be at least one of data and one of parity, and 256 together at most.
    Shards,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mtu => "a datagram has between 128 and 1500 bytes",
            Self::Shards => "there must be shards of data and of parity, and 256 together at most",
        })
    }
}

impl std::error::Error for Unusable {}
