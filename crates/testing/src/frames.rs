//! A minimal reader of one side's HTTP/2 frames, which knows only the frame header (RFC 9113, §4.1).

use std::collections::{BTreeMap, BTreeSet};

use polyrpc_wire::http::h2::PREFACE;
use polyrpc_wire::http::h2::hpack::Decoder;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'b> {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: &'b [u8],
}

impl Frame<'_> {
    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The complete frames, and the remaining bytes.
pub(super) fn split(mut bytes: &[u8]) -> (Vec<Frame<'_>>, &[u8]) {
    let mut frames = Vec::new();
    while let Some((&[a, b, c, kind, flags, s0, s1, s2, s3], rest)) = bytes.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(length) else { break };
        let stream = u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]);
        frames.push(Frame { kind, flags, stream, payload });
        bytes = rest;
    }
    (frames, bytes)
}

/// The frames of a client, after the preface.
pub(super) fn split_client(bytes: &[u8]) -> Vec<Frame<'_>> {
    split(bytes.strip_prefix(PREFACE).unwrap_or_default()).0
}

/// A frame's bytes.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
    let [s0, s1, s2, s3] = stream.to_be_bytes();
    [&[a, b, c, kind, flags, s0, s1, s2, s3], payload].concat()
}

/// Asserts that a server sent only valid output: complete frames, on streams that the peer opened in `observed`, each
/// stream a head, data, trailers and nothing after its end; and no more data than the windows allow.
pub(super) fn assert_server_sent(out: &[u8], observed: &[Frame<'_>]) {
    let opened = streams(observed);
    let sent_frames = split_sent(out, observed);
    assert!(streams(&sent_frames).is_subset(&opened), "HEADERS for a stream that was not opened");
    let mut heads = BTreeSet::new();
    for (head, block) in blocks(&sent_frames) {
        let fields = Decoder::new(4096, usize::MAX).decode(&block).expect("a block that depends on no table");
        let first = heads.insert(head.stream);
        assert_eq!(first, fields.get(b":status").is_some(), "{fields:?}");
        assert!(first || head.has(END_STREAM), "trailers are the last: {fields:?}");
    }
}

/// Asserts that a client sent only valid output: the preface, and complete frames as for a server, on
/// its own streams with growing ids.
pub(super) fn assert_client_sent(out: &[u8], observed: &[Frame<'_>]) {
    let out = out.strip_prefix(PREFACE).expect("a client begins with the preface");
    let sent_frames = split_sent(out, observed);
    let opened: Vec<u32> = blocks(&sent_frames).map(|(head, _)| head.stream).collect();
    assert!(opened.iter().all(|stream| stream % 2 == 1), "{opened:?}");
    assert!(opened.is_sorted_by(|a, b| a < b), "a stream is opened once: {opened:?}");
    let mut decoder = Decoder::new(4096, usize::MAX);
    for (_, block) in blocks(&sent_frames) {
        let fields = decoder.decode(&block).expect("what our encoder wrote");
        assert_eq!(fields.get(b":method"), Some(&b"POST"[..]), "{fields:?}");
    }
}

/// The frames of one side, after the assertions common to both.
fn split_sent<'b>(out: &'b [u8], observed: &[Frame<'_>]) -> Vec<Frame<'b>> {
    let (sent_frames, rest) = split(out);
    assert!(rest.is_empty(), "half a frame: {}", rest.escape_ascii());
    assert!(
        sent_frames.first().is_none_or(|first| first.kind == SETTINGS && first.flags == 0),
        "{sent_frames:?}"
    );
    assert_frame_order(&sent_frames, longest_frame(observed));
    assert_within_windows(&sent_frames, observed);
    sent_frames
}

/// Asserts the order of frames on each stream, and that none is longer than this.
fn assert_frame_order(sent_frames: &[Frame<'_>], longest: usize) {
    let mut ended: BTreeMap<u32, bool> = BTreeMap::new();
    let mut unfinished = None;
    for frame in sent_frames {
        assert!(frame.payload.len() <= longest, "a frame of {} bytes", frame.payload.len());
        assert_eq!(unfinished.is_some(), frame.kind == CONTINUATION, "{frame:?}");
        assert!(unfinished.is_none_or(|stream| stream == frame.stream), "{frame:?}");
        if matches!(frame.kind, HEADERS | CONTINUATION) {
            unfinished = (!frame.has(END_HEADERS)).then_some(frame.stream);
        }
        match frame.kind {
            HEADERS => {
                let before = ended.insert(frame.stream, frame.has(END_STREAM));
                assert_ne!(before, Some(true), "HEADERS after the end: {frame:?}");
            }
            DATA => {
                let before = ended.insert(frame.stream, frame.has(END_STREAM));
                assert_eq!(before, Some(false), "DATA without HEADERS or after the end: {frame:?}");
            }
            RST_STREAM => {
                ended.insert(frame.stream, true);
            }
            _ => {}
        }
    }
    assert_eq!(unfinished, None);
}

/// Asserts that the data does not exceed the granted windows.
fn assert_within_windows(sent_frames: &[Frame<'_>], observed: &[Frame<'_>]) {
    const FIRST: u64 = 65_535;
    let mut widest = FIRST;
    let mut more: BTreeMap<u32, u64> = BTreeMap::new();
    for frame in observed {
        match frame.kind {
            SETTINGS => widest = widest.max(widest_window(frame.payload)),
            WINDOW_UPDATE => {
                let increment =
                    frame.payload.as_array().map_or(0, |bytes| u32::from_be_bytes(*bytes) & !(1 << 31));
                *more.entry(frame.stream).or_default() += u64::from(increment);
            }
            _ => {}
        }
    }
    let mut sent: BTreeMap<u32, u64> = BTreeMap::new();
    for frame in sent_frames.iter().filter(|frame| frame.kind == DATA) {
        *sent.entry(frame.stream).or_default() += frame.payload.len() as u64;
    }
    let given = |stream: u32| more.get(&stream).copied().unwrap_or(0);
    assert!(sent.values().sum::<u64>() <= FIRST + given(0), "more data than the connection's window");
    for (&stream, &sent) in &sent {
        assert!(sent <= widest + given(stream), "more data than the window of stream {stream}");
    }
}

/// The longest frame that a peer accepts by its settings, some of which may have come later.
fn longest_frame(observed: &[Frame<'_>]) -> usize {
    const DEFAULT: usize = 16_384;
    let settings = observed.iter().filter(|frame| frame.kind == SETTINGS);
    settings.map(|frame| largest(frame.payload, 5) as usize).max().unwrap_or(0).max(DEFAULT)
}

fn widest_window(settings: &[u8]) -> u64 {
    largest(settings, 4)
}

/// The largest value of a setting; 0 if it is not there.
fn largest(settings: &[u8], id: u8) -> u64 {
    let values = settings.as_chunks::<6>().0.iter().filter_map(|setting| match *setting {
        [0, found, a, b, c, d] if found == id => Some(u32::from_be_bytes([a, b, c, d]).into()),
        _ => None,
    });
    values.max().unwrap_or(0)
}

/// The header blocks, each with its first frame.
fn blocks<'f, 'b>(frames: &'f [Frame<'b>]) -> impl Iterator<Item = (&'f Frame<'b>, Vec<u8>)> {
    frames.iter().enumerate().filter(|(_, frame)| frame.kind == HEADERS).map(|(at, head)| {
        let more = frames[at + 1..].iter().take_while(|frame| frame.kind == CONTINUATION);
        (head, [head].into_iter().chain(more).flat_map(|frame| frame.payload).copied().collect())
    })
}

fn streams(frames: &[Frame<'_>]) -> BTreeSet<u32> {
    frames.iter().filter(|frame| frame.kind == HEADERS).map(|frame| frame.stream).collect()
}
