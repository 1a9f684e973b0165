//! Reads recordings, including truncated and damaged ones.

use std::fmt;
use std::io::{self, Read};

use polyrpc_core::protobuf;

use crate::block::{FILE_MAGIC, HEADER, Header, Kind, TRAILER};
use crate::call::Entry;
use crate::index::{Index, trailer_offset};

/// Reads the entries of a recording in their order. It needs memory for one block, or for one entry larger than that.
///
/// If a process was killed, or a disk was full, its recording ends with complete blocks and possibly a torn one: the
/// complete ones are read, and [`ending`](Self::ending) reports the loss. Damage within a recording loses the blocks
/// that it touches.
#[derive(Debug)]
pub struct Reader<R> {
    input: Pushback<R>,
    /// Position in the file.
    position: u64,
    /// Entries of the current block.
    content: Vec<u8>,
    /// How much of them was returned.
    returned: usize,
    /// Parts of an entry that is larger than a block.
    partial: Option<Vec<u8>>,
    largest: usize,
    damage: Vec<Damage>,
    ending: Option<RecordingEnd>,
}

/// Bytes of a recording that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Their position in the file.
    pub offset: u64,
    /// Their number.
    pub bytes: u64,
    /// Reason.
    pub reason: &'static str,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {} cannot be read: {}", self.bytes, self.offset, self.reason)
    }
}

/// How a recording ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordingEnd {
    /// With its index.
    Complete(Box<Index>),
    /// Without an index, after a complete block: the recorder was not shut down. At most the calls of its last second
    /// are missing.
    Unfinished,
    /// Within a block.
    Torn {
        /// Position of the last whole block's end.
        offset: u64,
        /// Number of bytes after it.
        bytes: u64,
    },
}

impl fmt::Display for RecordingEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete(_) => f.write_str("the recording is complete"),
            Self::Unfinished => f.write_str(
                "the recording has no end: the recorder was not shut down, and calls of its last second may be missing",
            ),
            Self::Torn { offset, bytes } => write!(
                f,
                "the recording is torn: the last {bytes} bytes, from {offset}, are part of a block that was not written completely"
            ),
        }
    }
}

/// Why a recording cannot be read further.
#[derive(Debug)]
pub enum ReadError {
    /// The file cannot be read.
    Io(io::Error),
    /// It is not a recording.
    NoRecording,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NoRecording => {
                f.write_str("it is not a recording of PolyRPC: it does not begin with POLYREC1")
            }
        }
    }
}

impl std::error::Error for ReadError {}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl<R: Read> Reader<R> {
    /// Starts to read. Entries are at most 80 MiB large; larger ones count as damage.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is not a recording.
    pub fn new(mut input: R) -> Result<Self, ReadError> {
        let mut magic = Vec::new();
        input.by_ref().take(FILE_MAGIC.len() as u64).read_to_end(&mut magic)?;
        if magic != FILE_MAGIC {
            return Err(ReadError::NoRecording);
        }
        Ok(Self {
            input: Pushback { unread: io::Cursor::default(), input },
            position: FILE_MAGIC.len() as u64,
            content: Vec::new(),
            returned: 0,
            partial: None,
            largest: LARGEST,
            damage: Vec::new(),
            ending: None,
        })
    }

    /// Sets the maximum size of an entry, in bytes.
    #[must_use]
    pub fn largest_entry(mut self, bytes: usize) -> Self {
        self.largest = bytes;
        self
    }

    /// Returns the next entry; `None` at the end.
    ///
    /// # Errors
    ///
    /// If the file cannot be read. Damage is not an error.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, ReadError> {
        loop {
            while let Some(encoded) = self.next_encoded() {
                match Entry::decode(&encoded) {
                    Some(Some(entry)) => return Ok(Some(entry)),
                    // An entry of a newer version.
                    Some(None) => {}
                    None => self.record_damage(self.position, encoded.len() as u64, "an entry is malformed"),
                }
            }
            if self.ending.is_some() {
                return Ok(None);
            }
            self.next_block()?;
        }
    }

    /// Returns how the recording ends, once it was read to its end.
    pub fn ending(&self) -> Option<&RecordingEnd> {
        self.ending.as_ref()
    }

    /// Returns the unreadable parts so far: the first 100.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    fn next_encoded(&mut self) -> Option<Vec<u8>> {
        let rest = self.content.get(self.returned..).filter(|rest| !rest.is_empty())?;
        let mut reader = protobuf::Reader::new(rest);
        match reader.bytes() {
            Some(encoded) => {
                let encoded = encoded.to_vec();
                self.returned = self.content.len() - reader.rest().len();
                Some(encoded)
            }
            None => {
                let lost = rest.len() as u64;
                self.content.clear();
                self.record_damage(self.position, lost, "a block is malformed");
                None
            }
        }
    }

    fn next_block(&mut self) -> Result<(), ReadError> {
        (self.content, self.returned) = (Vec::new(), 0);
        let mut head = Vec::new();
        self.input.by_ref().take(HEADER as u64).read_to_end(&mut head)?;
        if head.len() < HEADER {
            self.end(head.len() as u64);
            return Ok(());
        }
        let Some(header) = head.as_slice().try_into().ok().and_then(Header::parse) else {
            return self.resynchronize(head, "there is no valid block");
        };
        let start = self.position;
        let mut stored = Vec::new();
        self.input.by_ref().take(header.stored as u64).read_to_end(&mut stored)?;
        self.position += (HEADER + stored.len()) as u64;
        if stored.len() < header.stored {
            self.ending = Some(RecordingEnd::Torn { offset: start, bytes: self.position - start });
            return Ok(());
        }
        match header.decompress(&stored) {
            Some(content) => self.take(start, header.kind, content),
            // The header may be a remnant, and the next block may start within the length that it announced.
            None if self.damage.len() < MAX_DAMAGE => {
                self.position = start;
                self.input.unread(stored);
                self.resynchronize(head, WRONG_CHECKSUM)
            }
            // A file of such headers would be searched again and again.
            None => Ok(()),
        }
    }

    fn take(&mut self, start: u64, kind: Option<Kind>, content: Vec<u8>) -> Result<(), ReadError> {
        let length = self.position - start;
        if !matches!(kind, Some(Kind::Middle | Kind::Last)) && self.partial.take().is_some() {
            self.record_damage(start, 0, "a large entry has no end");
        }
        match (kind, &mut self.partial) {
            (None, _) => {}
            (Some(Kind::Entries), _) => self.content = content,
            (Some(Kind::First), partial) => *partial = Some(content),
            (Some(Kind::Middle | Kind::Last), None) => {
                self.record_damage(start, length, "a large entry has no start");
            }
            (Some(Kind::Middle | Kind::Last), Some(parts)) if parts.len() + content.len() > self.largest => {
                self.partial = None;
                self.record_damage(start, length, "an entry is too large");
            }
            (Some(Kind::Middle), Some(parts)) => parts.extend_from_slice(&content),
            (Some(Kind::Last), Some(parts)) => {
                parts.extend_from_slice(&content);
                let mut whole = Vec::with_capacity(parts.len() + 10);
                protobuf::put_varint(&mut whole, parts.len() as u64);
                whole.append(parts);
                (self.content, self.partial) = (whole, None);
            }
            (Some(Kind::Index), _) => self.accept_index(start, &content)?,
        }
        Ok(())
    }

    /// Accepts an index only at the end.
    fn accept_index(&mut self, start: u64, content: &[u8]) -> Result<(), ReadError> {
        let mut trailer = Vec::new();
        self.input.by_ref().take(TRAILER as u64).read_to_end(&mut trailer)?;
        let whole = trailer.as_slice().try_into().ok().and_then(trailer_offset);
        self.position += trailer.len() as u64;
        self.ending = Some(match (whole, Index::decode(content)) {
            (Some(offset), Some(index)) if offset == start => RecordingEnd::Complete(Box::new(index)),
            _ => RecordingEnd::Torn { offset: start, bytes: self.position - start },
        });
        Ok(())
    }

    /// Skips bytes up to the next header; `head` is not a header, or a false one.
    fn resynchronize(&mut self, head: Vec<u8>, reason: &'static str) -> Result<(), ReadError> {
        let start = self.position;
        let mut window = head;
        // The header at 0 is damaged.
        let mut from = 1;
        loop {
            if let Some(at) = (from..window.len()).find(|at| is_header(&window, *at)) {
                self.position += at as u64;
                self.input.unread(window.split_off(at));
                self.record_damage(start, self.position - start, reason);
                return Ok(());
            }
            // A header may begin within the last bytes.
            let gone = window.len().saturating_sub(HEADER - 1);
            window.drain(..gone);
            self.position += gone as u64;
            from = usize::from(gone == 0);
            let before = window.len();
            self.input.by_ref().take(WINDOW).read_to_end(&mut window)?;
            if window.len() == before {
                self.position += before as u64;
                self.ending = Some(RecordingEnd::Torn { offset: start, bytes: self.position - start });
                return Ok(());
            }
        }
    }

    fn end(&mut self, bytes: u64) {
        if self.partial.take().is_some() {
            self.record_damage(self.position, 0, "a large entry has no end");
        }
        self.ending = Some(match bytes {
            0 => RecordingEnd::Unfinished,
            bytes => RecordingEnd::Torn { offset: self.position, bytes },
        });
    }

    fn record_damage(&mut self, offset: u64, bytes: u64, reason: &'static str) {
        if self.damage.len() < MAX_DAMAGE {
            self.damage.push(Damage { offset, bytes, reason });
        }
    }
}

/// Whether a header begins at this offset.
fn is_header(window: &[u8], at: usize) -> bool {
    let header = window.get(at..).and_then(|rest| rest.first_chunk::<HEADER>());
    header.is_some_and(|header| Header::parse(header).is_some())
}

/// An input to which bytes can be returned.
#[derive(Debug)]
struct Pushback<R> {
    unread: io::Cursor<Vec<u8>>,
    input: R,
}

impl<R> Pushback<R> {
    /// Returns the bytes that were read last.
    fn unread(&mut self, bytes: Vec<u8>) {
        let at = usize::try_from(self.unread.position()).unwrap_or(usize::MAX);
        let mut bytes = bytes;
        bytes.extend_from_slice(self.unread.get_ref().get(at..).unwrap_or_default());
        self.unread = io::Cursor::new(bytes);
    }
}

impl<R: Read> Read for Pushback<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.unread.read(buffer)? {
            0 => self.input.read(buffer),
            read => Ok(read),
        }
    }
}

/// Number of bytes that are searched at a time.
const WINDOW: u64 = 64 << 10;
const LARGEST: usize = 80 << 20;
const MAX_DAMAGE: usize = 100;
const WRONG_CHECKSUM: &str = "the content of a block does not match its checksum";
