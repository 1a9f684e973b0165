//! Attackers that make the server wait and hold state.

use std::time::Duration;

use super::attack::{Attack, ExpectedOutcome, Pace};
use super::frames::{DATA, ECHO, Frames, HEADERS, INITIAL_WINDOW_SIZE, message, stream};

pub(super) const ATTACKS: [Attack; 4] = [
    // Incomplete heads on many connections.
    Attack {
        connections: 1000,
        pace: Pace::Once,
        expected: ExpectedOutcome::Closed,
        // The server's timeout for a head is 10 s.
        min_duration: Duration::from_secs(12),
        ..Attack::flood("slow_headers", |_, _| {}).with_opening(|frames| frames.frame(HEADERS, 0, 1, ECHO))
    },
    // Incomplete messages on the maximum number of streams.
    Attack::flood("slow_messages", |frames, iteration| {
        frames.head(stream(iteration), ECHO);
        frames.frame(DATA, 0, stream(iteration), &message(2000)[..1000]);
    }),
    // CVE-2019-9517 and similar: large responses without a window.
    Attack::flood("slow_read", |frames, iteration| frames.large_call(stream(iteration), 60_000))
        .with_opening(|frames| frames.settings(&[(INITIAL_WINDOW_SIZE, 0)])),
    // Large responses with a window, which are not read.
    Attack {
        reads: false,
        ..Attack::flood("unread", |frames, iteration| frames.large_call(stream(iteration), 15_000))
            .with_opening(Frames::open_windows)
            .with_bounded_outcome()
    },
];
