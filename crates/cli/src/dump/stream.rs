//! One direction of a TCP connection: its bytes in order.

use std::collections::BTreeMap;

/// Puts segments into their order.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Sequence number of the next byte; `None` before the first segment.
    next: Option<u32>,
    /// Segments that came too early, by their sequence numbers.
    early: BTreeMap<u32, Vec<u8>>,
    early_bytes: usize,
}

/// What follows in the stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Bytes(Vec<u8>),
    /// Segments are missing in the capture.
    Gap,
}

impl Stream {
    /// Sets the number of the byte before the first one: that of the segment that opens the connection.
    pub(super) fn open(&mut self, sequence: u32) {
        *self = Self { next: Some(sequence.wrapping_add(1)), ..Self::default() };
    }

    /// Whether a segment that opens a connection is the one that opened this, and nothing followed.
    pub(super) fn is_at(&self, sequence: u32) -> bool {
        self.next == Some(sequence.wrapping_add(1))
    }

    /// Takes a segment; returns what follows in the stream now.
    pub(super) fn push(&mut self, sequence: u32, content: &[u8]) -> Vec<Next> {
        if content.is_empty() {
            return Vec::new();
        }
        let next = *self.next.get_or_insert(sequence);
        let ahead = sequence.wrapping_sub(next);
        if ahead > MAX_AHEAD {
            // Sent again; it may continue beyond what is known.
            let known = next.wrapping_sub(sequence) as usize;
            return match content.get(known..) {
                Some(new @ [_, ..]) => self.push(next, new),
                _ => Vec::new(),
            };
        }
        if ahead > 0 {
            self.keep(sequence, content);
            return if self.early_bytes > MAX_EARLY { self.skip() } else { Vec::new() };
        }
        let mut all = content.to_vec();
        self.next = Some(next.wrapping_add(content.len() as u32));
        self.join(&mut all);
        vec![Next::Bytes(all)]
    }

    /// Whether bytes are missing before others that came.
    pub(super) fn has_gap(&self) -> bool {
        !self.early.is_empty()
    }

    /// Gives up the bytes that are missing; returns what comes behind them.
    fn skip(&mut self) -> Vec<Next> {
        let Some(next) = self.next else { return Vec::new() };
        let first = self.early.keys().copied().min_by_key(|sequence| sequence.wrapping_sub(next));
        let Some(content) = first.and_then(|first| self.early.remove(&first)) else { return Vec::new() };
        self.early_bytes -= content.len();
        let mut all = content;
        self.next = first.map(|first| first.wrapping_add(all.len() as u32));
        self.join(&mut all);
        vec![Next::Gap, Next::Bytes(all)]
    }

    fn keep(&mut self, sequence: u32, content: &[u8]) {
        let known = self.early.entry(sequence).or_default();
        if known.len() < content.len() {
            self.early_bytes += content.len() - known.len();
            *known = content.to_vec();
        }
    }

    /// Appends early segments that follow now.
    fn join(&mut self, all: &mut Vec<u8>) {
        while let Some(next) = self.next {
            let reached = |sequence: &&u32| next.wrapping_sub(**sequence) <= MAX_AHEAD;
            let Some(sequence) = self.early.keys().find(reached).copied() else { return };
            let Some(content) = self.early.remove(&sequence) else { return };
            self.early_bytes -= content.len();
            let known = next.wrapping_sub(sequence) as usize;
            if let Some(new) = content.get(known..) {
                all.extend_from_slice(new);
                self.next = Some(next.wrapping_add(new.len() as u32));
            }
        }
    }
}

/// Larger distances mean that a segment is older. Half of all numbers.
const MAX_AHEAD: u32 = 1 << 31;

/// Bytes that wait for missing ones, before these are given up.
const MAX_EARLY: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn push_all(stream: &mut Stream, segments: &[(u32, &str)]) -> String {
        let mut text = String::new();
        for (sequence, content) in segments {
            for next in stream.push(*sequence, content.as_bytes()) {
                match next {
                    Next::Bytes(bytes) => text.push_str(&String::from_utf8(bytes).unwrap()),
                    Next::Gap => text.push('…'),
                }
            }
        }
        text
    }

    #[test]
    fn bytes_come_in_order_however_segments_arrive() {
        for start in [0, 100, u32::MAX - 4] {
            let at = |n: u32| start.wrapping_add(1).wrapping_add(n);
            for segments in [
                vec![(at(0), "abc"), (at(3), "def"), (at(6), "ghi")],
                vec![(at(0), "abc"), (at(6), "ghi"), (at(3), "def")],
                vec![(at(6), "ghi"), (at(3), "def"), (at(0), "abc")],
                vec![(at(0), "abc"), (at(0), "abc"), (at(1), "bcdef"), (at(4), "efghi"), (at(6), "ghi")],
                vec![(at(5), "fgh"), (at(3), "defg"), (at(0), "abcd"), (at(8), "i")],
            ] {
                let mut stream = Stream::default();
                stream.open(start);
                assert_eq!(push_all(&mut stream, &segments), "abcdefghi", "{segments:?}");
                assert_eq!(stream.early_bytes, 0);
            }
        }
    }

    #[test]
    fn missing_bytes_are_given_up_when_asked_or_when_too_many_wait() {
        let mut stream = Stream::default();
        assert_eq!(push_all(&mut stream, &[(7, "ab"), (12, "fg"), (10, "d")]), "ab");
        assert_eq!(stream.skip(), [Next::Gap, Next::Bytes(b"d".to_vec())]);
        assert_eq!(stream.skip(), [Next::Gap, Next::Bytes(b"fg".to_vec())]);
        assert!(stream.skip().is_empty());
        let mut stream = Stream::default();
        stream.push(0, b"a");
        let (mut sequence, mut gaps) = (100, 0);
        for _ in 0..100 {
            let next = stream.push(sequence, &[0; 1 << 16]);
            gaps += next.iter().filter(|next| **next == Next::Gap).count();
            sequence += 1 << 16;
            assert!(stream.early_bytes <= MAX_EARLY + (1 << 16));
        }
        assert_eq!(gaps, 1);
    }
}
