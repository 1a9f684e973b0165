//! Cost of the messages of a call alone: request and reply are built, encoded and decoded, without a call.
//! One kind of message can be cheaper than the other by no more than that.

use std::hint::black_box;
use std::io;

use polyrpc::codec::{Body, Codec, FlatBuffers, Protobuf};
use polyrpc::flatbuffers::Message;
use polyrpc::{Format, Status};

use super::Messages;
use crate::measure;
use crate::messages::{fbs, pb};

/// Microseconds of CPU for the messages of one call.
pub(super) fn cpu_us(messages: Messages, size: usize) -> io::Result<f64> {
    let text = "A".repeat(size);
    let exchange = match messages {
        Messages::Protobuf => protobuf,
        Messages::Flatbuffers => flatbuffers,
    };
    repeat(WARM_UP, || exchange(&text))?;
    let before = measure::cpu_time();
    repeat(EXCHANGES, || exchange(&text))?;
    Ok((measure::cpu_time() - before).as_secs_f64() * 1e6 / f64::from(EXCHANGES))
}

fn repeat(times: u32, exchange: impl Fn() -> Result<bool, Status>) -> io::Result<()> {
    for _ in 0..times {
        if !black_box(exchange().map_err(io::Error::other)?) {
            return Err(io::Error::other("another message came back"));
        }
    }
    Ok(())
}

fn protobuf(text: &str) -> Result<bool, Status> {
    let written = Protobuf::encode(&pb::request(text), Format::Protobuf, None)?;
    let request: pb::BenchmarkRequest = Protobuf::decode(Body::new(Format::Protobuf, written), None)?;
    let written = Protobuf::encode(&pb::answer(request), Format::Protobuf, None)?;
    let answer = Protobuf::decode(Body::new(Format::Protobuf, written), None)?;
    Ok(pb::is_right(&answer, text))
}

fn flatbuffers(text: &str) -> Result<bool, Status> {
    let written = FlatBuffers::encode_owned(fbs::request(text), Format::FlatBuffers, None)?;
    let request: Message<fbs::BenchmarkRequest> =
        FlatBuffers::decode(Body::new(Format::FlatBuffers, written), None)?;
    let written = FlatBuffers::encode_owned(fbs::answer(&request), Format::FlatBuffers, None)?;
    let answer = FlatBuffers::decode(Body::new(Format::FlatBuffers, written), None)?;
    Ok(fbs::is_right(&answer, text))
}

const WARM_UP: u32 = 1_000;
const EXCHANGES: u32 = 20_000;
