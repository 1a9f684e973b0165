use std::sync::Arc;

use super::MAX_DATAGRAM;
use super::config::{Config, Shards};
use super::error::ConfigError;
use super::fec::{self, Code, Decoder, Encoder, Shard};
use super::packet::Envelope;
use super::segment::{self, Command, KNOWS_ENDS, Segment};

/// A validated [`Config`], with values derived from it once for all conversations.
#[derive(Debug)]
pub struct Settings {
    pub(super) config: Config,
    pub(super) envelope: Envelope,
    correction: Option<(Shards, Arc<Code>)>,
}

impl Settings {
    /// Validates a configuration.
    ///
    /// # Errors
    ///
    /// If datagrams are too short or too long, or the number of shards is not supported.
    pub fn new(mut config: Config) -> Result<Self, ConfigError> {
        if !(128..=MAX_DATAGRAM).contains(&config.mtu) {
            return Err(ConfigError::new("the MTU must be between 128 and 1500 bytes"));
        }
        config.tuning = config.tuning.clamp();
        let correction = match config.shards {
            None => None,
            Some(shards) => Some((shards, Arc::new(Code::new(shards).ok_or_else(invalid_shards)?))),
        };
        Ok(Self { envelope: Envelope::new(config.cipher.clone()), correction, config })
    }

    /// Decrypts a datagram. `None`: it was encrypted with another key, or damaged.
    pub fn open<'a>(&self, datagram: &'a mut [u8]) -> Option<OpenedDatagram<'a>> {
        let length = datagram.len();
        let payload = self.envelope.open(datagram)?;
        Shard::parse(payload).map(|shard| OpenedDatagram { shard, length })
    }

    /// Maximum number of conversations of a listening socket.
    pub fn conversations(&self) -> usize {
        self.config.conversations
    }

    /// Maximum number of these whose peer has a validated address. The others are for peers that start.
    pub fn max_validated(&self) -> usize {
        self.config.conversations - (self.config.conversations / NEWCOMER_DIVISOR).min(self.max_unvalidated())
    }

    /// Maximum number of these whose peer has an unvalidated address.
    pub fn max_unvalidated(&self) -> usize {
        self.config.unvalidated.clamp(1, self.config.conversations.max(1))
    }

    /// Bytes of a datagram before its first segment.
    pub(super) fn overhead(&self) -> usize {
        self.envelope.overhead() + self.correction.as_ref().map_or(0, |_| fec::OVERHEAD)
    }

    /// Data bytes that fit into a datagram.
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

/// A decrypted datagram.
#[derive(Debug, Clone, Copy)]
pub struct OpenedDatagram<'a> {
    pub(super) shard: Shard<'a>,
    /// Length of the datagram in bytes, including encryption overhead.
    pub(super) length: usize,
}

impl OpenedDatagram<'_> {
    /// Returns the number of its conversation; parity belongs to any.
    pub fn conv(&self) -> Option<u32> {
        self.first().map(|segment| segment.conv)
    }

    /// Whether it may start a conversation: it contains data from a peer that has not received anything from us, or the
    /// probe of one that [connects](super::Session::connect). The first segments may arrive in any order. `kcp-go`
    /// starts a conversation with any datagram, and therefore a new one for late datagrams of an ended conversation.
    pub fn begins(&self) -> bool {
        let begins = |first: Segment<'_>| match first.command {
            Command::Push => first.sn < INITIAL_PEER_WINDOW,
            Command::Ask => first.sn == 0 && first.frg == KNOWS_ENDS,
            Command::Ack | Command::Tell | Command::End => false,
        };
        self.first().is_some_and(|first| first.una == 0 && begins(first))
    }

    /// Whether its sender is to be told that there is no such conversation. An announced end is not answered.
    pub fn wants_answer(&self) -> bool {
        self.first().is_some_and(|first| first.command != Command::End)
    }

    /// Whether it replaces another conversation with the same peer (`sess.go: packetInput`).
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

#[cold]
fn invalid_shards() -> ConfigError {
    ConfigError::new("there must be at least one data shard and one parity shard, and at most 256 in total")
}

/// The part of the conversations that peers with a validated address may not use up: one in so many.
const NEWCOMER_DIVISOR: usize = 16;

/// Window of segments that a peer sends before it receives anything from us: it assumes the default for our window.
const INITIAL_PEER_WINDOW: u32 = 32;
