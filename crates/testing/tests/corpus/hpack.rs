//! Header compression, compared with another implementation: the decoder of the `h2` crate reads every block
//! as ours does, and reads the output of our encoder as intended.
//!
//! The only target that is not in `testing::fuzz`: the other decoder must not become a dependency of the crate.
//! `fuzz/` compiles this file as well. The decoder of `h2` is reached through its codec, one HEADERS frame a block.
//!
//! Both must accept a block and read the same, or both must reject it, with these exceptions:
//!
//! * `h2` makes HTTP's types of the fields while it decodes them, and ends the connection where that fails (a name in
//!   upper case, a value with control characters, a status of two digits). To us these are fields of a message that is
//!   malformed (RFC 9113, §8.1.1), which ends its stream. Such rejections can be predicted from what we read.
//! * More than two table size updates before a block are rejected by us (RFC 7541, §4.2: "at most two")
//!   and accepted by `h2`.
//! * `h2` validates the combination of fields in the same step: a list that is not a valid message is not returned.
//! * `h2` keeps only the order of fields with the same name, as HTTP does (RFC 9110, §5.3).

use std::collections::BTreeSet;
use std::io::Cursor;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::StreamExt;
use h2::Codec;
use h2::frame::{Frame, Headers};
use h2::proto::Error;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use polyrpc_wire::http::h2::hpack::{DecodeError, Decoder, Encoder, Fields, Indexing, stateless_field};

/// A conversation in steps, each after its kind and length: a block, fields to encode, or another size of the
/// table.
pub(crate) fn hpack(input: &[u8]) {
    let (mut reading, mut writing) = (Reading::new(), Writing::new());
    let mut rest = input;
    while let Some((&[kind, length], behind)) = rest.split_first_chunk() {
        let length = if kind & LONG == 0 { length.into() } else { behind.len() };
        let (bytes, behind) = behind.split_at(length.min(behind.len()));
        rest = behind;
        match kind % 4 {
            SIZE => writing.resize(bytes),
            FIELDS => writing.write(bytes),
            _ => reading.read(bytes),
        }
    }
}

/// The step takes the rest of the input.
const LONG: u8 = 0x80;
const FIELDS: u8 = 2;
const SIZE: u8 = 3;

/// Names and values.
type List = Vec<(Vec<u8>, Vec<u8>)>;

/// Result of `h2` for a block.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// The fields, by name; those of one name in their order.
    Fields(List),
    /// They are not a valid message; the connection stays open.
    Malformed,
    /// The connection ends.
    Broken,
}

/// The decoder of `h2`.
struct Witness {
    codec: Codec<Cursor<Vec<u8>>, Bytes>,
}

impl Witness {
    fn new() -> Self {
        Self { codec: Codec::new(Cursor::new(Vec::new())) }
    }

    fn resize(&mut self, size: usize) {
        self.codec.set_recv_header_table_size(size);
    }

    fn decode(&mut self, block: &[u8]) -> Verdict {
        const HEADERS: u8 = 1;
        const END_HEADERS: u8 = 4;
        let [_, a, b, c] = (block.len() as u32).to_be_bytes();
        let wire = self.codec.get_mut().get_mut();
        wire.extend_from_slice(&[a, b, c, HEADERS, END_HEADERS, 0, 0, 0, 1]);
        wire.extend_from_slice(block);
        match self.codec.poll_next_unpin(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(Ok(Frame::Headers(headers)))) => Verdict::Fields(list(headers)),
            Poll::Ready(Some(Err(Error::Reset(..)))) => Verdict::Malformed,
            Poll::Ready(Some(Err(Error::GoAway(..)))) => Verdict::Broken,
            other => panic!("a frame is decoded, or rejected: {other:?}"),
        }
    }
}

fn list(headers: Headers) -> List {
    let (pseudo, fields) = headers.into_parts();
    let pseudo = [
        (":method", pseudo.method.as_ref().map(|method| method.as_str())),
        (":scheme", pseudo.scheme.as_deref()),
        (":authority", pseudo.authority.as_deref()),
        (":path", pseudo.path.as_deref()),
        (":protocol", pseudo.protocol.as_ref().map(|protocol| protocol.as_str())),
        (":status", pseudo.status.as_ref().map(|status| status.as_str())),
    ];
    let pseudo = pseudo.into_iter().filter_map(|(name, value)| Some((name.into(), value?.into())));
    let fields = fields.iter().map(|(name, value)| (name.as_str().into(), value.as_bytes().to_vec()));
    by_name(pseudo.chain(fields).collect())
}

fn by_name(mut list: List) -> List {
    list.sort_by(|(a, _), (b, _)| a.cmp(b));
    list
}

/// The expected result of `h2` for these fields.
fn verdict(fields: &Fields) -> Verdict {
    if !fields.iter().all(|(name, value)| is_of_http(name, value)) {
        return Verdict::Broken;
    }
    if !is_in_order(fields) {
        return Verdict::Malformed;
    }
    Verdict::Fields(by_name(fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()))
}

/// Whether `h2` has a type for the field.
fn is_of_http(name: &[u8], value: &[u8]) -> bool {
    match name {
        b":authority" | b":path" | b":protocol" | b":scheme" => std::str::from_utf8(value).is_ok(),
        b":method" => Method::from_bytes(value).is_ok(),
        b":status" => StatusCode::from_bytes(value).is_ok(),
        name => HeaderName::from_lowercase(name).is_ok() && HeaderValue::from_bytes(value).is_ok(),
    }
}

/// Whether pseudo-fields come first and once each, and no field is connection-specific.
fn is_in_order(fields: &Fields) -> bool {
    let (mut seen, mut regular) = (BTreeSet::new(), false);
    fields.iter().all(|(name, value)| match name {
        [b':', ..] => !regular && seen.insert(name.to_vec()),
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => false,
        b"te" if value != b"trailers" => false,
        _ => {
            regular = true;
            true
        }
    })
}

/// Arbitrary blocks.
struct Reading {
    ours: Decoder,
    /// A decoder that returns only short lists, and must still maintain its table.
    short: Decoder,
    /// `None` once it has ended the connection.
    witness: Option<Witness>,
}

/// A block of a few thousand bytes may say more than that, but not in so little time.
const MOST: usize = 256 << 10;

const SHORT: usize = 256;

impl Reading {
    fn new() -> Self {
        Self {
            ours: Decoder::new(4096, MOST),
            short: Decoder::new(4096, SHORT),
            witness: Some(Witness::new()),
        }
    }

    fn read(&mut self, block: &[u8]) {
        let ours = self.ours.decode(block);
        let short = self.short.decode(block);
        // The connection ends: with the shorter limit earlier than with the longer one.
        if [&ours, &short].contains(&&Err(DecodeError::TooCostly)) {
            *self = Self::new();
            return;
        }
        match (&ours, &short) {
            (Ok(fields), _) => assert_eq!(short, shortened(fields)),
            (Err(DecodeError::TooLarge { size, .. }), Err(DecodeError::TooLarge { size: same, .. })) => {
                assert_eq!(size, same);
            }
            _ => assert_eq!(short, ours),
        }
        let Some(witness) = &mut self.witness else { return };
        let theirs = witness.decode(block);
        match &ours {
            Ok(fields) => assert_eq!(theirs, verdict(fields), "{}", block.escape_ascii()),
            Err(DecodeError::Broken) if updates(block) > 2 => {}
            Err(DecodeError::Broken) => assert_eq!(theirs, Verdict::Broken, "{}", block.escape_ascii()),
            // Its content is unknown.
            Err(DecodeError::TooLarge { .. } | DecodeError::TooCostly) => {}
        }
        if theirs == Verdict::Broken || ours == Err(DecodeError::Broken) {
            self.witness = None;
        }
        if ours == Err(DecodeError::Broken) {
            *self = Self::new();
        }
    }
}

/// The expected list if only short ones are allowed: the fields that fit.
fn shortened(fields: &Arc<Fields>) -> Result<Arc<Fields>, DecodeError> {
    let (mut kept, mut room, mut size) = (Fields::default(), SHORT, 0);
    for (name, value) in fields.iter() {
        let length = name.len() + value.len() + 32;
        size += length;
        if let Some(rest) = room.checked_sub(length) {
            room = rest;
            kept.push(name, value);
        }
    }
    match size {
        0..=SHORT => Ok(fields.clone()),
        _ => Err(DecodeError::TooLarge { size, fields: Arc::new(kept) }),
    }
}

/// Number of table size updates at the start of a block.
fn updates(mut block: &[u8]) -> usize {
    let mut count = 0;
    while let Some((first, rest)) = block.split_first().filter(|(first, _)| *first & 0xe0 == 0x20) {
        count += 1;
        let digits = if first & 0x1f == 0x1f {
            rest.iter().take_while(|byte| **byte & 0x80 != 0).count() + 1
        } else {
            0
        };
        block = rest.get(digits..).unwrap_or_default();
    }
    count
}

/// Blocks from our encoder.
struct Writing {
    encoder: Encoder,
    ours: Decoder,
    witness: Witness,
}

impl Writing {
    fn new() -> Self {
        Self { encoder: Encoder::new(), ours: Decoder::new(4096, MOST), witness: Witness::new() }
    }

    /// The reader allows another table size.
    fn resize(&mut self, bytes: &[u8]) {
        for &size in bytes.as_chunks::<2>().0 {
            let size = u16::from_le_bytes(size).into();
            self.encoder.resize(size);
            self.ours.allow(size);
            self.witness.resize(size);
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut block = Vec::new();
        let mut fields = Fields::default();
        self.encoder.begin(&mut block);
        for (name, value, indexing) in Drawn(bytes) {
            assert_returns_alone(&name, &value, indexing);
            let (name, value) = (token(&name), printable(&value));
            let start = block.len();
            self.encoder.field(&name, &value, indexing, &mut block);
            assert_is_marked(indexing, block[start]);
            fields.push(&name, &value);
        }
        assert_eq!(self.ours.decode(&block).as_deref(), Ok(&fields));
        assert_eq!(self.witness.decode(&block), verdict(&fields));
    }
}

/// Asserts that a field of arbitrary bytes round-trips when encoded without a table.
fn assert_returns_alone(name: &[u8], value: &[u8], indexing: Indexing) {
    let mut block = Vec::new();
    stateless_field(name, value, indexing, &mut block);
    let fields: Fields = [(name, value)].into_iter().collect();
    assert_eq!(Decoder::new(0, MOST).decode(&block).as_deref(), Ok(&fields));
    assert_is_marked(indexing, block[0]);
}

/// Asserts that sensitive fields, and only these, are never-indexed literals (RFC 7541, §6.2.3).
fn assert_is_marked(indexing: Indexing, first: u8) {
    assert_eq!(first & 0xf0 == 0x10, indexing == Indexing::Never, "{first:#x}");
}

/// Fields from bytes: one that selects the encoding and whether the name is a common one, two lengths, the bytes.
struct Drawn<'b>(&'b [u8]);

impl Iterator for Drawn<'_> {
    type Item = (Vec<u8>, Vec<u8>, Indexing);

    fn next(&mut self) -> Option<Self::Item> {
        const USUAL: [&[u8]; 8] = [
            b":path",
            b":authority",
            b"authorization",
            b"content-type",
            b"cookie",
            b"grpc-timeout",
            b"te",
            b"x-id",
        ];
        let (&[how, name, value], rest) = self.0.split_first_chunk()?;
        let indexing = [Indexing::Likely, Indexing::Unlikely, Indexing::Never, Indexing::Likely];
        let usual = (how & 4 != 0).then(|| USUAL[usize::from(name) % USUAL.len()]);
        let length = if usual.is_some() { 0 } else { usize::from(name).min(rest.len()) };
        let (name, rest) = rest.split_at(length);
        let (value, rest) = rest.split_at(usize::from(value).min(rest.len()));
        self.0 = rest;
        Some((usual.unwrap_or(name).to_vec(), value.to_vec(), indexing[usize::from(how % 4)]))
    }
}

/// A name valid in HTTP; common ones are unchanged.
fn token(name: &[u8]) -> Vec<u8> {
    const KNOWN: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789-_.";
    if name.is_empty() || is_of_http(name, b"") {
        return if name.is_empty() { b"x".to_vec() } else { name.to_vec() };
    }
    name.iter().map(|&byte| KNOWN[usize::from(byte) % KNOWN.len()]).collect()
}

/// A value valid in HTTP.
fn printable(value: &[u8]) -> Vec<u8> {
    value.iter().map(|&byte| b' ' + byte % 95).collect()
}
