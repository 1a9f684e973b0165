use super::time::Millis;

/// A segment of a datagram (`kcp.go: segment`).
///
/// ```text
///  0       4     5     6       8       12      16      20      24
///  | conv  | cmd | frg |  wnd  |   ts  |  sn   |  una  |  len  | data …
/// ```
///
/// All numbers are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment<'a> {
    pub(super) conv: u32,
    pub(super) command: Command,
    /// Number of fragments of the same message that follow. Ignored, since the layer above reads a stream. Other
    /// commands than data carry [`KNOWS_ENDS`] and [`UNKNOWN`] here, which `kcp-go` ignores.
    pub(super) frg: u8,
    /// Number of segments that the sender still has room for.
    pub(super) wnd: u16,
    /// Time of sending; an acknowledgement repeats that of the acknowledged segment.
    pub(super) ts: Millis,
    pub(super) sn: u32,
    /// The sender has received everything before this number.
    pub(super) una: u32,
    pub(super) data: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Push = 81,
    Ack = 82,
    /// Window probe.
    Ask = 83,
    /// Window announcement, the answer to a probe.
    Tell = 84,
    /// Our own: the conversation has ended. `kcp-go` drops datagrams with commands that it does not know.
    End = 90,
}

/// Mark of probes and window announcements: their sender knows [`Command::End`].
pub(super) const KNOWS_ENDS: u8 = 1;
/// Mark of an end: its sender has no such conversation. Otherwise it has closed the conversation.
pub(super) const UNKNOWN: u8 = 1;

/// The bytes are not a valid segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MalformedSegment;

impl<'a> Segment<'a> {
    /// Removes the next segment from the front. `None` at the end: a remainder shorter than a header is ignored.
    pub(super) fn cut(bytes: &mut &'a [u8]) -> Option<Result<Self, MalformedSegment>> {
        let (header, rest) = bytes.split_first_chunk::<OVERHEAD>()?;
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let data = usize::try_from(word(20)).ok().and_then(|len| rest.split_at_checked(len));
        let (Some((data, rest)), Some(command)) = (data, Command::from_byte(header[4])) else {
            return Some(Err(MalformedSegment));
        };
        *bytes = rest;
        Some(Ok(Self {
            conv: word(0),
            command,
            frg: header[5],
            wnd: u16::from_le_bytes([header[6], header[7]]),
            ts: Millis(word(8)),
            sn: word(12),
            una: word(16),
            data,
        }))
    }

    /// Returns its encoded length.
    pub(super) fn len(&self) -> usize {
        OVERHEAD + self.data.len()
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.conv.to_le_bytes());
        out.extend_from_slice(&[self.command as u8, self.frg]);
        out.extend_from_slice(&self.wnd.to_le_bytes());
        for word in [self.ts.0, self.sn, self.una, self.data.len() as u32] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(self.data);
    }
}

impl Command {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Push, Self::Ack, Self::Ask, Self::Tell, Self::End]
            .into_iter()
            .find(|&command| command as u8 == byte)
    }
}

/// Length of a segment's header in bytes.
pub(super) const OVERHEAD: usize = 24;
