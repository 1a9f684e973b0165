use super::time::Millis;

/// What a datagram consists of (`kcp.go: segment`).
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
    /// How many fragments of the same message follow. What is above reads a stream, so it means nothing here.
    pub(super) frg: u8,
    /// How many more segments the sender has room for.
    pub(super) wnd: u16,
    /// When it was sent; an acknowledgement repeats that of what it acknowledges.
    pub(super) ts: Millis,
    pub(super) sn: u32,
    /// Everything before this number has arrived at the sender.
    pub(super) una: u32,
    pub(super) data: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Push = 81,
    Ack = 82,
    /// "How large is your window?"
    Ask = 83,
    /// The answer, and whatever else the header says.
    Tell = 84,
}

/// Bytes that are no segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MalformedSegment;

impl<'a> Segment<'a> {
    /// Takes the next segment off the front. `None` at the end: fewer bytes than a header are none.
    pub(super) fn cut(bytes: &mut &'a [u8]) -> Option<Result<Self, MalformedSegment>> {
        let (header, rest) = bytes.split_first_chunk::<OVERHEAD>()?;
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let data = usize::try_from(word(20)).ok().and_then(|len| rest.split_at_checked(len));
        let (Some((data, rest)), Some(command)) = (data, Command::of(header[4])) else {
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

    /// How many bytes it takes.
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
    fn of(byte: u8) -> Option<Self> {
        [Self::Push, Self::Ack, Self::Ask, Self::Tell].into_iter().find(|&command| command as u8 == byte)
    }
}

/// Bytes of a segment's header.
pub(super) const OVERHEAD: usize = 24;
