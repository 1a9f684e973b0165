use std::collections::VecDeque;

use super::segment::{Command, Segment};
use super::time::Millis;

/// A peer that has not yet proven that it receives what is sent to its address.
///
/// The source address of a datagram can be forged. Until the peer is validated, it is sent at most [`AMPLIFICATION`]
/// times the bytes that came from its address (RFC 9000 §8.1), repeats and probes included.
///
/// The proof is an acknowledgement that repeats the time of a segment of ours. These times begin at a random moment in
/// each conversation, so that they cannot be guessed by a peer that does not receive them. `una` and window updates
/// prove nothing: their values can be guessed.
#[derive(Debug, Default)]
pub(super) struct AddressValidation {
    received: u64,
    sent: u64,
    /// Number and time, as on the wire, of the segments that were sent last.
    segments: VecDeque<(u32, Millis)>,
    /// Acknowledgements of what was not sent. After some of them none counts any more, so that guessing is hopeless.
    wrong: u32,
}

impl AddressValidation {
    /// A datagram of so many bytes came from the peer's address.
    pub(super) fn received(&mut self, bytes: usize) {
        self.received += bytes as u64;
    }

    /// Whether the segments of a datagram prove the address.
    pub(super) fn is_proven_by(&mut self, conv: u32, mut datagram: &[u8]) -> bool {
        while let Some(Ok(segment)) = Segment::cut(&mut datagram) {
            if segment.conv != conv || segment.command != Command::Ack {
                continue;
            }
            if self.segments.contains(&(segment.sn, segment.ts)) {
                return self.wrong < GUESSES;
            }
            self.wrong = self.wrong.saturating_add(1);
        }
        false
    }

    /// A segment with data leaves.
    pub(super) fn segment(&mut self, sn: u32, ts: Millis) {
        if self.segments.len() >= REMEMBERED {
            self.segments.pop_front();
        }
        self.segments.push_back((sn, ts));
    }

    /// A datagram of so many bytes leaves.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// Bytes that may still be sent.
    pub(super) fn allowance(&self) -> usize {
        let allowed = self.received.saturating_mul(AMPLIFICATION).saturating_sub(self.sent);
        usize::try_from(allowed).unwrap_or(usize::MAX)
    }
}

/// How many times the bytes received an unvalidated address is sent (RFC 9000 §8.1).
const AMPLIFICATION: u64 = 3;
/// Acknowledgements that may be wrong.
const GUESSES: u32 = 64;
/// Segments whose acknowledgement is a proof.
const REMEMBERED: usize = 32;
