//! brpc's streams, with the ids of the fuzzed sessions.

use polyrpc_core::testing::hex;

use super::Seeds;

/// For a server that accepts: its streams are 0 and 1, the client's 5 and 6.
pub(super) fn served() -> Seeds {
    let open = "50525043 00000018 00000018 0a08 0a0161 120162 3801 2007 4208 0805 1001 1801 2006 5000";
    let cases = [
        ("stream_echoed", vec![data(0, 5, false, "one"), data(1, 6, false, "two"), feedback(0, 5, 3)]),
        ("stream_in_fragments", vec![data(0, 5, true, "o"), data(0, 5, true, ""), data(0, 5, false, "ne")]),
        ("stream_closed", vec![data(0, 5, false, "one"), close(0, 5), data(0, 5, false, "late")]),
        ("stream_reset", vec![data(0, 5, false, "one"), reset(0), close(1, 6), close(1, 6)]),
        ("stream_lied_of", vec![feedback(0, 5, u64::MAX), feedback(0, 5, 1 << 62), feedback(9, 5, 1)]),
    ];
    seeds(0x80, &hex(open), cases)
}

/// For a client whose first call is 0 with the streams 100 and 200; the server's are 5 and 6.
pub(super) fn asked() -> Seeds {
    let accepted = hex("50525043 00000010 00000010 1202 0800 2000 4208 0805 1001 1801 2006");
    let response = raw_data(100, 5, false, &accepted);
    let cases = [
        ("stream_echoed", vec![data(100, 5, false, "one"), data(200, 6, false, "two"), feedback(100, 5, 3)]),
        ("stream_in_fragments", vec![data(100, 5, true, "o"), data(100, 5, false, "ne")]),
        ("stream_closed", vec![data(200, 6, false, "one"), close(200, 6), close(100, 5)]),
        ("stream_reset", vec![reset(100), data(200, 6, false, "one"), reset(200)]),
        ("stream_overtaken", vec![data(201, 7, false, "early"), raw_data(101, 7, false, b"no response")]),
    ];
    let (begin, rest) = accepted.split_at(9);
    let in_parts = [raw_data(100, 5, true, begin), raw_data(100, 5, false, rest)].concat();
    let mut seeds = seeds(0x20, &response, cases);
    seeds.push(("stream_accepted_in_parts".into(), [&[7, 0x20][..], &in_parts].concat()));
    seeds.push(("stream_accepted_bare".into(), [&[7, 0x20][..], &accepted].concat()));
    seeds
}

fn seeds<const N: usize>(manner: u8, begin: &[u8], cases: [(&str, Vec<Vec<u8>>); N]) -> Seeds {
    let seed = |frames: Vec<Vec<u8>>| [&[7, manner][..], begin, &frames.concat()].concat();
    cases.into_iter().map(|(name, frames)| (name.to_owned(), seed(frames))).collect()
}

fn data(to: u64, from: u64, continues: bool, text: &str) -> Vec<u8> {
    raw_data(to, from, continues, text.as_bytes())
}

fn raw_data(to: u64, from: u64, continues: bool, data: &[u8]) -> Vec<u8> {
    let mut meta = ids(to, Some(from));
    meta.extend_from_slice(&[0x18, 3, 0x20, continues.into()]);
    frame(&meta, data)
}

fn feedback(to: u64, from: u64, consumed: u64) -> Vec<u8> {
    let mut told = vec![0x08];
    varint(&mut told, consumed);
    let mut meta = ids(to, Some(from));
    meta.extend_from_slice(&[0x18, 4, 0x2a, told.len() as u8]);
    frame(&[meta, told].concat(), b"")
}

fn close(to: u64, from: u64) -> Vec<u8> {
    let mut meta = ids(to, Some(from));
    meta.extend_from_slice(&[0x18, 2]);
    frame(&meta, b"")
}

fn reset(to: u64) -> Vec<u8> {
    let mut meta = ids(to, None);
    meta.extend_from_slice(&[0x18, 1]);
    frame(&meta, b"")
}

fn ids(to: u64, from: Option<u64>) -> Vec<u8> {
    let mut meta = vec![0x08];
    varint(&mut meta, to);
    if let Some(from) = from {
        meta.push(0x10);
        varint(&mut meta, from);
    }
    meta
}

fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn frame(meta: &[u8], data: &[u8]) -> Vec<u8> {
    let size = |n: usize| (n as u32).to_be_bytes();
    [b"STRM", &size(meta.len() + data.len())[..], &size(meta.len()), meta, data].concat()
}
