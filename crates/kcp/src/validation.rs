use std::collections::VecDeque;

use super::segment::{Command, Segment};
use super::time::Millis;

/// A peer that has not yet proven that it receives what is sent to its address.
///
/// The source address of a datagram can be forged. Until the peer is validated, it is sent at most [`AMPLIFICATION`]
/// times the bytes received from its address (RFC 9000 §8.1), retransmissions and probes included.
///
/// The proof is an acknowledgement that repeats the timestamp of one of our segments. These timestamps start at a
/// random time in each conversation, so that they cannot be guessed by a peer that does not receive them. `una` and
/// window updates prove nothing: their values can be guessed.
#[derive(Debug, Default)]
pub(super) struct AddressValidation {
    received: u64,
    sent: u64,
    /// Sequence numbers and timestamps, as on the wire, of the most recently sent segments.
    segments: VecDeque<(u32, Millis)>,
    /// Invalid acknowledgements. After a number of them no further one is accepted, so that guessing is hopeless.
    wrong: u32,
}

impl AddressValidation {
    /// Records a datagram of `bytes` bytes from the peer's address.
    pub(super) fn record_received(&mut self, bytes: usize) {
        self.received += bytes as u64;
    }

    /// Whether the segments of a datagram prove the address.
    pub(super) fn is_proven_by(&mut self, conv: u32, mut datagram: &[u8]) -> bool {
        while let Some(Ok(segment)) = Segment::cut(&mut datagram) {
            if segment.conv != conv || segment.command != Command::Ack {
                continue;
            }
            if self.segments.contains(&(segment.sn, segment.ts)) {
                return self.wrong < MAX_INVALID_ACKS;
            }
            self.wrong = self.wrong.saturating_add(1);
        }
        false
    }

    /// Records a sent segment with data.
    pub(super) fn record_segment(&mut self, sn: u32, ts: Millis) {
        if self.segments.len() >= MAX_REMEMBERED_SEGMENTS {
            self.segments.pop_front();
        }
        self.segments.push_back((sn, ts));
    }

    /// Records a sent datagram of `bytes` bytes.
    pub(super) fn record_sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// Returns the number of bytes that may still be sent.
    pub(super) fn allowance(&self) -> usize {
        let allowed = self.received.saturating_mul(AMPLIFICATION).saturating_sub(self.sent);
        usize::try_from(allowed).unwrap_or(usize::MAX)
    }
}

/// Amplification limit: bytes sent per byte received from an unvalidated address (RFC 9000 §8.1).
const AMPLIFICATION: u64 = 3;
/// Maximum number of invalid acknowledgements.
const MAX_INVALID_ACKS: u32 = 64;
/// Number of segments whose acknowledgement is a proof.
const MAX_REMEMBERED_SEGMENTS: usize = 32;
