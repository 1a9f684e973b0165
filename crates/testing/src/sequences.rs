//! Valid sequences of calls, as a client of each protocol writes them, with damage in their middle.
//!
//! A fuzzer of bytes seldom gets past the first message of a connection. These inputs do: what precedes the damage is
//! valid, so that it meets a session with state, and so is what follows it. gRPC has targets of its own
//! ([`grpc_server`](super::grpc_server)), since its events depend on how the bytes were split.

use bytes::Bytes;
use polyrpc_core::session::{Client, Server};
use polyrpc_core::{Call, CallId, Format, Json, Outbox};
use polyrpc_wire::{Protocol, baidu_std, fb_rpc, http, net_rpc, rest_rpc, rpcx};

use super::server::{self, events};
use super::{LIMITS, Scenario};

/// A protocol, how the session is driven, the lengths of the calls' messages, and what is damaged.
///
/// # Panics
///
/// If the session violates its contract, rejects the undamaged sequence, or if the damage changes what happened before it.
pub fn damaged_sequences(input: &[u8]) {
    let Some((choice, input)) = input.split_first() else { return };
    let (json, protobuf) = (Format::Json(Json::Go), Format::Protobuf);
    match choice % PROTOCOLS {
        0 => {
            let config = baidu_std::ClientConfig { limits: LIMITS, deliver_timeout: true, ..<_>::default() };
            damage(
                baidu_std::Client::new(config),
                server::baidu_std,
                Some(Protocol::BaiduStd),
                protobuf,
                input,
            );
        }
        1 => {
            let config = rpcx::ClientConfig { limits: LIMITS, ..<_>::default() };
            damage(rpcx::Client::new(config), server::rpcx, Some(Protocol::Rpcx), json, input);
        }
        2 => {
            let config = fb_rpc::ClientConfig { limits: LIMITS, ..<_>::default() };
            damage(fb_rpc::Client::new(config), server::fb_rpc, Some(Protocol::FbRpc), Format::Raw, input);
        }
        3 => {
            let config = rest_rpc::ClientConfig { limits: LIMITS, ..<_>::default() };
            let new = || server::rest_rpc(Default::default());
            damage(rest_rpc::Client::new(config), new, None, Format::MessagePack, input);
        }
        4 => {
            let codec = net_rpc::Codec::Json;
            let config = net_rpc::ClientConfig { limits: LIMITS, codec, ..<_>::default() };
            damage(net_rpc::Client::new(config), || server::net_rpc(Some(codec)), None, json, input);
        }
        _ => {
            let json_rpc = choice % PROTOCOLS == 6;
            let config =
                http::ClientConfig { limits: LIMITS, json_rpc, authority: "a".into(), ..<_>::default() };
            damage(http::Client::new(config), server::http, None, json, input);
        }
    }
}

/// Number of choices.
const PROTOCOLS: u8 = 7;

fn damage<C: Client, S: Server>(
    client: C,
    new: impl Fn() -> S,
    own: Option<Protocol>,
    format: Format,
    input: &[u8],
) {
    let Some((scenario, [count, plan @ ..])) = Scenario::read(input) else { return };
    let calls = MIN_CALLS + usize::from(*count) % (MAX_CALLS - MIN_CALLS + 1);
    let Some((lengths, damages)) = plan.split_at_checked(calls) else { return };
    let sequence = sequence(client, format, lengths);
    let whole = events(new(), scenario, &sequence.bytes);
    assert!(whole.violation.is_none(), "the undamaged sequence is rejected: {:?}", whole.violation);

    let Some((damaged, first)) = sequence.apply_damages(damages) else { return };
    server::drive(&new, own, scenario, &damaged);
    // Nothing that arrives later changes what a session has reported.
    let before = events(new(), scenario, &damaged[..first]).calls;
    let after = events(new(), scenario, &damaged).calls;
    assert!(after.starts_with(&before), "{before:?} before the damage, {after:?} with it");
    assert!(whole.calls.starts_with(&before), "{before:?} before the damage, {:?} without it", whole.calls);
}

/// Numbers of calls of a sequence.
const MIN_CALLS: usize = 3;
const MAX_CALLS: usize = 10;

struct Sequence {
    bytes: Vec<u8>,
    /// Where the middle starts and ends: after the first call, and before the last.
    middle: std::ops::Range<usize>,
}

fn sequence<C: Client>(mut client: C, format: Format, lengths: &[u8]) -> Sequence {
    let (mut bytes, mut starts) = (Vec::new(), Vec::new());
    for (number, length) in (0..).zip(lengths) {
        starts.push(bytes.len());
        let mut out = Outbox::new();
        let body = body(format, usize::from(*length));
        // fb_rpc, the only one of raw bytes here, identifies methods by number.
        let method = if format == Format::Raw { "Echo#7" } else { "Echo" };
        let call = Call::new("example.EchoService", method, format, body);
        client.send(CallId(number), call, &mut out).expect("the protocol can express the call");
        bytes.extend(out.take());
    }
    let middle = starts[1]..starts[starts.len() - 1];
    Sequence { bytes, middle }
}

/// A message of about this length that is valid in its format.
fn body(format: Format, length: usize) -> Bytes {
    match format {
        Format::Json(_) => format!("\"{}\"", "x".repeat(length)).into(),
        // A list of one string: rest_rpc's arguments.
        Format::MessagePack => {
            let mut bytes = vec![0x91, 0xd9, length as u8];
            bytes.resize(3 + length, b'x');
            bytes.into()
        }
        // The first field, a string.
        Format::Protobuf => {
            let length = length.min(127);
            let mut bytes = vec![1 << 3 | 2, length as u8];
            bytes.resize(2 + length, b'x');
            bytes.into()
        }
        // fb_rpc has no empty messages.
        _ => vec![b'x'; length.max(1)].into(),
    }
}

impl Sequence {
    /// The bytes with damage, and where that begins. `None`: there is none.
    fn apply_damages(&self, damages: &[u8]) -> Option<(Vec<u8>, usize)> {
        let mut bytes = self.bytes.clone();
        let mut first = None::<usize>;
        for &[kind, high, low, value] in damages.as_chunks::<4>().0.iter().take(MAX_DAMAGES) {
            // The middle keeps its start, and its end may move.
            let end = (bytes.len() - (self.bytes.len() - self.middle.end)).max(self.middle.start + 1);
            let length = end - self.middle.start;
            let at = self.middle.start + usize::from(u16::from_be_bytes([high, low])) % length;
            match kind % 4 {
                0 => bytes[at] = value,
                1 => bytes[at] ^= 1 << (value % 8),
                2 => bytes.insert(at, value),
                _ => {
                    let removed = (1 + usize::from(value) % 16).min(end - at);
                    bytes.drain(at..at + removed);
                }
            }
            first = Some(first.map_or(at, |first| first.min(at)));
        }
        first.map(|first| (bytes, first))
    }
}

const MAX_DAMAGES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_protocol_has_sequences_of_which_each_byte_can_be_damaged() {
        for choice in 0..PROTOCOLS {
            for offset in 0..=600_u16 {
                for kind in 0..4 {
                    let [high, low] = offset.to_be_bytes();
                    // Three calls of 0, 5 and 100 bytes.
                    damaged_sequences(&[
                        choice,
                        offset as u8,
                        0,
                        0,
                        0,
                        5,
                        100,
                        kind,
                        high,
                        low,
                        offset as u8,
                    ]);
                }
            }
        }
    }
}
