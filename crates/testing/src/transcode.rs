//! Transcoding of messages between formats.

use std::sync::LazyLock;

use polyrpc_core::{Format, Json};
use polyrpc_payload::schema::{Message, Pool};
use polyrpc_payload::transcode::{from_protobuf, to_protobuf};

/// A message in brpc's JSON.
pub fn transcode_brpc(input: &[u8]) {
    read(Format::Json(Json::Brpc), input);
    read(Format::Json(Json::BrpcLenient), input);
}

/// A message in ProtoJSON.
pub fn transcode_proto3(input: &[u8]) {
    read(Format::Json(Json::Proto3), input);
}

/// A message in Go's JSON.
pub fn transcode_go(input: &[u8]) {
    read(Format::Json(Json::Go), input);
}

/// A message in protobuf's text format.
pub fn transcode_text(input: &[u8]) {
    read(Format::ProtoText, input);
}

/// A message in MessagePack.
pub fn transcode_msgpack(input: &[u8]) {
    read(Format::MessagePack, input);
}

/// A message in protobuf's binary format, to be encoded in all others.
pub fn transcode_protobuf(input: &[u8]) {
    let Some((message, bytes)) = message(input) else { return };
    for format in FORMATS {
        if let Ok(written) = from_protobuf(&message, format, bytes) {
            assert_round_trips(&message, format, &written);
        }
    }
}

const FORMATS: [Format; 6] = [
    Format::Json(Json::Brpc),
    Format::Json(Json::BrpcLenient),
    Format::Json(Json::Proto3),
    Format::Json(Json::Go),
    Format::ProtoText,
    Format::MessagePack,
];

/// Asserts that decoded messages can be encoded, and then round-trip.
fn read(format: Format, input: &[u8]) {
    let Some((message, bytes)) = message(input) else { return };
    let Ok(protobuf) = to_protobuf(&message, format, bytes) else { return };
    let max = 16 * bytes.len() + 64;
    assert!(protobuf.len() <= max, "{} bytes became {}", bytes.len(), protobuf.len());
    let written = from_protobuf(&message, format, &protobuf).expect("what was read can be written");
    assert_round_trips(&message, format, &written);
}

/// Asserts that encoded messages are decoded, and encoded to the same bytes.
///
/// Some information is lost in the first round:
///
/// * brpc does not read unknown enum numbers, although it writes them;
/// * ProtoJSON has one null for whatever number a `NullValue` has (protobuf-go
///   `encoding/protojson/encode.go`, `marshalSingular`), to be read as the zero that is not written;
/// * MessagePack's floats of 32 bits are read as 64, which makes a signalling NaN a quiet one.
fn assert_round_trips(message: &Message, format: Format, written: &[u8]) {
    let Some(again) = rewrite(message, format, written) else { return };
    let loses =
        matches!(format, Format::Json(Json::Brpc | Json::BrpcLenient | Json::Proto3) | Format::MessagePack);
    match loses && again != written {
        true => assert_eq!(escape(rewrite(message, format, &again)), escape(Some(again)), "{format:?}"),
        false => assert_eq!(escape(Some(again)), escape(Some(written.to_vec())), "{format:?}"),
    }
}

/// Decodes encoded messages and encodes them again. `None` if brpc cannot decode them: such a number in a list is an
/// error.
fn rewrite(message: &Message, format: Format, written: &[u8]) -> Option<Vec<u8>> {
    let read = match to_protobuf(message, format, written) {
        Err(_) if matches!(format, Format::Json(Json::Brpc | Json::BrpcLenient)) => return None,
        read => read.expect("what was written can be read"),
    };
    Some(from_protobuf(message, format, &read).expect("what was read can be written"))
}

fn escape(bytes: Option<Vec<u8>>) -> String {
    bytes.unwrap_or_default().escape_ascii().to_string()
}

/// The message type of an input, chosen by its first byte.
fn message(input: &[u8]) -> Option<(Message, &[u8])> {
    static POOL: LazyLock<Pool> = LazyLock::new(|| Pool::decode(RICH).expect("a set that was compiled"));

    let (&choice, bytes) = input.split_first()?;
    let name = ["rich.Rich", "rich.WellKnown", "rich.Scalars"].get(usize::from(choice))?;
    Some((POOL.message(name)?, bytes))
}

/// `payload/transcode/tests/rich.proto` and its imports, compiled: every kind of field, and the messages with
/// a special JSON form.
pub const RICH: &[u8] = include_bytes!("rich.binpb");
