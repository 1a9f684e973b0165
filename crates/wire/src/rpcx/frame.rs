//! rpcx frame encoding and decoding (rpcx `protocol/message.go`).

use std::fmt::Display;
use std::io::Write;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use polyrpc_core::{Compression, Format, Json, Metadata, Outbox, Violation};

use super::compressors::Compressors;
use crate::oversized::MAX_DISCARDED;

pub(super) const MAGIC: u8 = 0x08;

/// Removes the next frame from `inbox`; `limit` bounds its total length.
pub(super) fn take(
    inbox: &mut BytesMut,
    limit: usize,
    compressors: &Compressors,
) -> Result<NextFrame, Violation> {
    match inbox.first() {
        Some(&MAGIC) => {}
        Some(_) => return Ok(NextFrame::Foreign),
        None => return Ok(NextFrame::Short { wanted: 0 }),
    }
    let Some(head) = inbox.first_chunk::<HEADER>() else {
        return Ok(NextFrame::Short { wanted: 0 });
    };
    let (header, total) = Header::read(head);
    let length = frame_length(total, limit)?;
    let compression = header.flags.compression(compressors)?;
    if inbox.len() < length {
        return Ok(NextFrame::Short { wanted: length });
    }
    Frame::parse(header, compression, inbox.split_to(length).freeze()).map(NextFrame::Frame)
}

/// Removes the header of a frame that exceeds the limit, and returns it with the number of bytes that follow; `None` if
/// the rest of it is too long to skip.
#[cold]
pub(super) fn take_oversized(inbox: &mut BytesMut) -> Option<(Header, usize)> {
    let (header, total) = Header::read(inbox.first_chunk::<HEADER>()?);
    let total = usize::try_from(total).ok().filter(|total| *total <= MAX_DISCARDED)?;
    inbox.advance(HEADER);
    Some((header, total))
}

/// Result of parsing the start of an inbox.
#[derive(Debug)]
pub(super) enum NextFrame {
    /// A complete frame.
    Frame(Frame),
    /// The start of a frame of `wanted` bytes, 0 while the length is unknown.
    Short { wanted: usize },
    /// Not rpcx; the inbox is unchanged.
    Foreign,
}

/// A received frame, whose blocks were checked to lie within it.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) header: Header,
    pub(super) compression: Compression,
    /// `HEADER + 4 <= path_end`, `path_end + 4 <= method_end`, `method_end + 4 <= metadata_end` and
    /// `metadata_end + 4 <= bytes.len()`: each block ends where the length of the next one begins.
    bytes: Bytes,
    path_end: usize,
    method_end: usize,
    metadata_end: usize,
}

impl Frame {
    fn parse(header: Header, compression: Compression, bytes: Bytes) -> Result<Self, Violation> {
        let ends = || {
            let path_end = block_end(&bytes, HEADER)?;
            let method_end = block_end(&bytes, path_end)?;
            let metadata_end = block_end(&bytes, method_end)?;
            (metadata_end + PREFIX <= bytes.len()).then_some((path_end, method_end, metadata_end))
        };
        let (path_end, method_end, metadata_end) = ends().ok_or_else(overrun)?;
        Ok(Self { header, compression, bytes, path_end, method_end, metadata_end })
    }

    pub(super) fn path(&self) -> &[u8] {
        &self.bytes[HEADER + PREFIX..self.path_end]
    }

    pub(super) fn method(&self) -> &[u8] {
        &self.bytes[self.path_end + PREFIX..self.method_end]
    }

    /// Path and method with their length prefixes, as a response repeats them.
    pub(super) fn names(&self) -> Names {
        Names::new(&self.bytes[HEADER..self.method_end])
    }

    pub(super) fn pairs(&self) -> Pairs<'_> {
        Pairs {
            bytes: &self.bytes,
            at: self.method_end + PREFIX,
            end: self.metadata_end,
            allowed: Pairs::ALLOWED,
        }
    }

    /// Returns everything after the payload's length, whatever that length is: rpcx takes `data[n:]` and ignores it
    /// (`protocol/message.go`, `Decode`).
    pub(super) fn payload(&self) -> Bytes {
        self.bytes.slice(self.metadata_end + PREFIX..)
    }

    /// Sends the frame back with another header and a correct payload length.
    pub(super) fn echo(&self, header: Header, out: &mut Outbox) {
        let payload = self.payload();
        let total = self.bytes.len() - HEADER;
        let buffer = out.buffer();
        header.write(buffer, total as u32);
        buffer.put_slice(&self.bytes[HEADER..self.metadata_end]);
        buffer.put_u32(payload.len() as u32);
        out.body(payload);
    }
}

/// Path and method of a call, for as long as it is pending.
///
/// They are copied: a slice would keep the whole read buffer alive, with whatever the peer sent behind the call. Usual names
/// are stored in place, which costs no more than counting another reference to the buffer.
#[derive(Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) enum Names {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(Box<[u8]>),
}

/// Length of names that are stored in place, with their length prefixes: [`Names`] then take 48 bytes, a slice 32.
const SHORT: usize = 46;

impl Names {
    /// Two empty names.
    pub(super) fn none() -> Self {
        Self::new(&[0; 2 * PREFIX])
    }

    fn new(names: &[u8]) -> Self {
        let mut bytes = [0; SHORT];
        match bytes.get_mut(..names.len()) {
            Some(start) => {
                start.copy_from_slice(names);
                Self::Short { length: names.len() as u8, bytes }
            }
            None => Self::Long(names.into()),
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { length, bytes } => &bytes[..usize::from(*length)],
            Self::Long(bytes) => bytes,
        }
    }
}

/// Returns the method among the [names](Frame::names).
pub(super) fn method_of(names: &[u8]) -> Option<&[u8]> {
    let (length, rest) = names.split_first_chunk::<PREFIX>()?;
    rest.get(u32::from_be_bytes(*length) as usize + PREFIX..)
}

/// Iterator over the key/value pairs of a frame's metadata block.
#[derive(Debug)]
pub(super) struct Pairs<'f> {
    bytes: &'f Bytes,
    at: usize,
    end: usize,
    allowed: usize,
}

impl<'f> Pairs<'f> {
    /// Maximum number of pairs. [`Metadata`] looks keys up linearly, so that unlimited pairs would cost quadratic time.
    /// The limit is far above what any caller needs, and keeps a hostile frame as cheap to parse as it is to send.
    pub(super) const ALLOWED: usize = MAX_METADATA;

    fn read(&mut self) -> Option<(&'f [u8], Bytes)> {
        let block = self.bytes.get(..self.end)?;
        let key_end = block_end(block, self.at)?;
        let value_end = block_end(block, key_end)?;
        let key = block.get(self.at + PREFIX..key_end)?;
        let value = self.bytes.slice(key_end + PREFIX..value_end);
        self.at = value_end;
        Some((key, value))
    }
}

impl<'f> Iterator for Pairs<'f> {
    type Item = Result<(&'f [u8], Bytes), MetadataError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.end {
            return None;
        }
        if self.allowed == 0 {
            return Some(Err(MetadataError::TooManyPairs));
        }
        self.allowed -= 1;
        Some(self.read().ok_or(MetadataError::MissingPair))
    }
}

/// Why the metadata of a frame cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetadataError {
    /// A key or a value extends beyond the block.
    MissingPair,
    /// More than [`MAX_METADATA`] pairs.
    TooManyPairs,
}

impl From<MetadataError> for Violation {
    #[cold]
    fn from(error: MetadataError) -> Self {
        match error {
            MetadataError::MissingPair => Self::new("wrong metadata lines. some keys or values are missing"),
            MetadataError::TooManyPairs => {
                Self::new(format!("more than {} metadata entries", Pairs::ALLOWED))
            }
        }
    }
}

/// Writes one frame directly into an outbox. Lengths that are not known yet are patched by [`Writer::finish`], without
/// which the frame is incomplete.
#[derive(Debug)]
#[must_use]
pub(super) struct Writer<'o> {
    out: &'o mut Outbox,
    start: usize,
    metadata: usize,
}

impl<'o> Writer<'o> {
    pub(super) fn new(out: &'o mut Outbox, header: Header, path: &str, method: &str) -> Self {
        Self::with_names(out, header, |buffer| {
            put_block(buffer, path.as_bytes());
            put_block(buffer, method.as_bytes());
        })
    }

    /// Starts a frame that repeats the [`Frame::names`] of another.
    pub(super) fn answering(out: &'o mut Outbox, header: Header, names: &[u8]) -> Self {
        Self::with_names(out, header, |buffer| buffer.put_slice(names))
    }

    fn with_names(out: &'o mut Outbox, header: Header, names: impl FnOnce(&mut Vec<u8>)) -> Self {
        let buffer = out.buffer();
        let start = buffer.len();
        header.write(buffer, 0);
        names(buffer);
        let metadata = open_block(buffer);
        Self { out, start, metadata }
    }

    pub(super) fn pair(&mut self, key: &str, value: &[u8]) {
        let buffer = self.out.buffer();
        put_block(buffer, key.as_bytes());
        put_block(buffer, value);
    }

    pub(super) fn pair_shown(&mut self, key: &str, value: impl Display) {
        let buffer = self.out.buffer();
        put_block(buffer, key.as_bytes());
        let at = open_block(buffer);
        write!(buffer, "{value}").expect("a Vec takes every byte");
        close_block(buffer, at);
    }

    /// Writes every pair of `metadata` whose key is not `taken` by the protocol itself.
    pub(super) fn pairs(&mut self, metadata: &Metadata, taken: impl Fn(&str) -> bool) {
        for (key, value) in metadata.iter().filter(|(key, _)| !taken(key)) {
            self.pair(key, value);
        }
    }

    /// Finishes the frame with its payload. A frame too long for rpcx's length fields is removed again.
    pub(super) fn finish(self, payload: Bytes) -> Result<(), FrameTooLong> {
        let buffer = self.out.buffer();
        let total = buffer.len() - self.start - HEADER + PREFIX + payload.len();
        let Ok(total) = u32::try_from(total) else {
            buffer.truncate(self.start);
            return Err(FrameTooLong);
        };
        patch(buffer, self.start + TOTAL, total);
        close_block(buffer, self.metadata);
        buffer.put_u32(payload.len() as u32);
        self.out.body(payload);
        Ok(())
    }
}

/// The length of a frame exceeds 32 bits.
#[derive(Debug)]
pub(super) struct FrameTooLong;

/// Header before a frame's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// 0 from every known peer; a response repeats it.
    pub(super) version: u8,
    pub(super) flags: Flags,
    /// Serialize type in the high nibble; the low nibble is reserved, and repeated by a response.
    serialize: u8,
    pub(super) seq: u64,
}

impl Header {
    /// Creates the header of a frame that is not a response. `serialize` is a number returned by [`serialize`].
    pub(super) fn new(flags: Flags, serialize: u8, seq: u64) -> Self {
        Self { version: 0, flags, serialize: serialize << 4, seq }
    }

    #[must_use]
    pub(super) fn with_flags(self, flags: Flags) -> Self {
        Self { flags, ..self }
    }

    #[must_use]
    pub(super) fn with_serialize(self, serialize: u8) -> Self {
        Self { serialize: serialize << 4, ..self }
    }

    pub(super) fn format(self) -> Format {
        format(self.serialize >> 4)
    }

    fn read(bytes: &[u8; HEADER]) -> (Self, u32) {
        let [_magic, version, flags, serialize, seq @ .., t0, t1, t2, t3] = *bytes;
        let header = Self { version, flags: Flags(flags), serialize, seq: u64::from_be_bytes(seq) };
        (header, u32::from_be_bytes([t0, t1, t2, t3]))
    }

    fn write(self, buffer: &mut Vec<u8>, total: u32) {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&[MAGIC, self.version, self.flags.0, self.serialize]);
        bytes[4..TOTAL].copy_from_slice(&self.seq.to_be_bytes());
        bytes[TOTAL..].copy_from_slice(&total.to_be_bytes());
        buffer.put_slice(&bytes);
    }
}

/// Third byte of a frame: message type, compression and status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flags(u8);

impl Flags {
    pub(super) const REQUEST: Self = Self(0);
    pub(super) const RESPONSE: Self = Self(0x80);
    pub(super) const HEARTBEAT: Self = Self(0x40);
    pub(super) const ONEWAY: Self = Self(0x20);
    pub(super) const ERROR: Self = Self(1);

    const COMPRESSION: u8 = 0x1C;
    const STATUS: u8 = 0x03;

    pub(super) fn has(self, flag: Self) -> bool {
        self.0 & flag.0 == flag.0
    }

    #[must_use]
    pub(super) fn with(self, flag: Self) -> Self {
        Self(self.0 | flag.0)
    }

    /// Returns the flags of a successful, uncompressed response (rpcx `Message.Clone`).
    #[must_use]
    pub(super) fn for_response(self) -> Self {
        Self(self.0 & !(Self::COMPRESSION | Self::STATUS)).with(Self::RESPONSE)
    }

    /// Whether the call failed. Only 1 is defined; any other value except 0 is treated as a failure, too.
    pub(super) fn is_failure(self) -> bool {
        self.0 & Self::STATUS != 0
    }

    /// rpcx reserves 2 to 7 for compressors that its users register, and closes the connection on one that is not
    /// registered (`ErrUnsupportedCompressor`).
    fn compression(self, compressors: &Compressors) -> Result<Compression, Violation> {
        let number = self.compressor();
        compressors.get(number).ok_or_else(|| unsupported_compressor(number))
    }

    /// Returns the number of the compressor, below 8.
    pub(super) fn compressor(self) -> u8 {
        (self.0 & Self::COMPRESSION) >> 2
    }

    #[must_use]
    pub(super) fn with_compressor(self, number: u8) -> Self {
        Self(self.0 & !Self::COMPRESSION | (number << 2) & Self::COMPRESSION)
    }
}

/// Serialize number of Thrift's binary protocol: the one that rpcx itself assigns to a format that this framework does
/// not support. Higher numbers are free for rpcx's users.
pub const THRIFT: u8 = 4;

/// Returns the format of a serialize number.
fn format(number: u8) -> Format {
    match number {
        0 => Format::Raw,
        1 => Format::Json(Json::Go),
        2 => Format::Protobuf,
        3 => Format::MessagePack,
        other => Format::Other(other),
    }
}

/// Returns the serialize number of a format, if rpcx has one.
pub(super) fn serialize(format: Format) -> Option<u8> {
    match format {
        Format::Raw => Some(0),
        Format::Json(_) => Some(1),
        Format::Protobuf => Some(2),
        Format::MessagePack | Format::MessagePackArray => Some(3),
        Format::Other(number @ 4..=15) => Some(number),
        Format::ProtoText
        | Format::RestRpc
        | Format::StructPack
        | Format::Gob
        | Format::FlatBuffers
        | Format::Other(_) => None,
    }
}

fn frame_length(total: u32, limit: usize) -> Result<usize, Violation> {
    let length = HEADER.saturating_add(total as usize);
    if length < HEADER + 4 * PREFIX {
        return Err(overrun());
    }
    if length > limit {
        return Err(Violation::message_too_large(length, limit));
    }
    Ok(length)
}

/// Returns the end of the block whose length field is at `at`, if the block lies within `bytes`.
fn block_end(bytes: &[u8], at: usize) -> Option<usize> {
    let length = u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?);
    let end = (at + PREFIX).checked_add(length as usize)?;
    (end <= bytes.len()).then_some(end)
}

fn put_block(buffer: &mut Vec<u8>, bytes: &[u8]) {
    buffer.put_u32(bytes.len() as u32);
    buffer.put_slice(bytes);
}

/// Reserves the length field of a block; returns its offset.
fn open_block(buffer: &mut Vec<u8>) -> usize {
    buffer.put_u32(0);
    buffer.len() - PREFIX
}

fn close_block(buffer: &mut [u8], at: usize) {
    let length = buffer.len() - at - PREFIX;
    patch(buffer, at, length as u32);
}

fn patch(buffer: &mut [u8], at: usize, value: u32) {
    buffer[at..at + PREFIX].copy_from_slice(&value.to_be_bytes());
}

#[cold]
fn overrun() -> Violation {
    Violation::new("a block extends beyond its frame")
}

#[cold]
fn unsupported_compressor(number: u8) -> Violation {
    Violation::new(format!("unsupported compressor {number}"))
}

/// Maximum number of metadata entries of a call or a reply.
pub const MAX_METADATA: usize = 256;

/// Length of the header in bytes: magic, version, flags, serialize, seq, total.
pub(super) const HEADER: usize = TOTAL + 4;

/// Offset of `total`, the length of all blocks together, in the header.
const TOTAL: usize = 12;

/// Length of the length field before each block in bytes.
const PREFIX: usize = 4;
