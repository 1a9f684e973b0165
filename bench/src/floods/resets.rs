//! Streams that are opened to be reset: by the attacker, or by the server through provoked errors.

use super::attack::{Attack, ENHANCE_YOUR_CALM, ExpectedOutcome, STREAM_CLOSED};
use super::frames::{DATA, ECHO, END_HEADERS, END_STREAM, HEADERS, PRIORITY, WIDEST, stream};

pub(super) const ATTACKS: [Attack; 8] = [
    // CVE-2023-44487
    Attack::flood("rapid_reset", |frames, iteration| {
        frames.head(stream(iteration), ECHO);
        frames.reset(stream(iteration));
    }),
    // Each costs the server a call, but no more than that.
    Attack::flood("reset_when_answered", |frames, iteration| {
        frames.call(stream(iteration), ECHO);
        frames.reset(stream(iteration));
    })
    .with_opening(super::frames::Frames::open_windows)
    .with_bounded_outcome(),
    // CVE-2025-8671: each of these makes the server reset the stream.
    Attack::flood("made_you_reset_window_zero", |frames, iteration| {
        frames.head(stream(iteration), ECHO);
        frames.window_update(stream(iteration), 0);
    }),
    Attack::flood("made_you_reset_window_overflow", |frames, iteration| {
        frames.head(stream(iteration), ECHO);
        frames.window_update(stream(iteration), WIDEST);
    }),
    // Late frames may also arrive after the stream was answered and closed (RFC 9113, section 5.1).
    Attack {
        expected: ExpectedOutcome::GoAway(&[ENHANCE_YOUR_CALM, STREAM_CLOSED]),
        ..Attack::flood("made_you_reset_half_closed", |frames, iteration| {
            frames.frame(HEADERS, END_HEADERS | END_STREAM, stream(iteration), ECHO);
            frames.frame(DATA, 0, stream(iteration), b"late");
        })
    },
    Attack::flood("made_you_reset_priority", |frames, iteration| {
        frames.head(stream(iteration), ECHO);
        let [a, b, c, d] = stream(iteration).to_be_bytes();
        frames.frame(PRIORITY, 0, stream(iteration), &[a, b, c, d, 0]);
    }),
    Attack::flood("made_you_reset_content_length", |frames, iteration| {
        const TOO_SHORT: &[u8] = b"\x0f\x0d\x011";
        frames.call(stream(iteration), &[ECHO, TOO_SHORT].concat());
    }),
    // An interim response, which only servers send.
    Attack::flood("made_you_reset_interim", |frames, iteration| {
        frames.head(stream(iteration), b"\x08\x03103");
    }),
];
