use bytes::Bytes;
use polyrpc_core::{Format, Status};
use polyrpc_payload::flatbuffers::{Message, Table};
use polyrpc_payload::schema;
use polyrpc_wire::fb_rpc;

use super::{Body, Codec, unsupported};

/// Messages generated from a `.fbs` by `polyrpc-build`.
///
/// Received messages are verified and then read in place; sent messages were encoded when they were built. If a
/// protocol has no format for FlatBuffers (rpcx), they are sent as raw bytes.
#[derive(Debug, Clone, Copy)]
pub struct FlatBuffers;

impl<T: Table> Codec<Message<T>> for FlatBuffers {
    const PREFERRED: Format = Format::FlatBuffers;

    fn carries(format: Format) -> bool {
        matches!(format, Format::FlatBuffers | Format::Raw)
    }

    fn decode(body: Body, _: Option<&schema::Message>) -> Result<Message<T>, Status> {
        match body.format {
            Format::FlatBuffers | Format::Raw => Message::read(body.bytes).map_err(|invalid| {
                // Status code that brpc's generated code fails with (its `docs/en/flatbuffers.md`, PR #3559).
                Status::invalid_argument(format!("cannot read {}: {invalid}", T::NAME))
                    .with_number(fb_rpc::status::FAILED)
            }),
            format => Err(unsupported(T::NAME, format)),
        }
    }

    fn encode(value: &Message<T>, format: Format, _: Option<&schema::Message>) -> Result<Bytes, Status> {
        match format {
            Format::FlatBuffers | Format::Raw => Ok(value.bytes().clone()),
            format => Err(unsupported(T::NAME, format)),
        }
    }

    fn encode_owned(value: Message<T>, format: Format, _: Option<&schema::Message>) -> Result<Bytes, Status> {
        match format {
            Format::FlatBuffers | Format::Raw => Ok(value.into_bytes()),
            format => Err(unsupported(T::NAME, format)),
        }
    }
}
