use bytes::Bytes;
use polyrpc_core::{Format, Status};
use polyrpc_payload::schema;
use polyrpc_wire::rpcx;

use super::{Body, Codec, TypeSchema};

/// Bytes that are opaque to the framework, in any format that the peer names. rpcx's user-defined format numbers (5 to
/// 15) are excluded: they need a codec of their own.
#[derive(Debug, Clone, Copy)]
pub struct Raw;

impl Codec<Bytes> for Raw {
    const PREFERRED: Format = Format::Raw;

    fn carries(format: Format) -> bool {
        is_known(format)
    }

    fn type_schema(_: Option<&schema::Message>) -> TypeSchema {
        TypeSchema::Bytes
    }

    fn decodes_slowly(_: &Body, _: Option<&schema::Message>) -> bool {
        false
    }

    fn decode(body: Body, _: Option<&schema::Message>) -> Result<Bytes, Status> {
        bytes(body)
    }

    fn encode(value: &Bytes, _: Format, _: Option<&schema::Message>) -> Result<Bytes, Status> {
        Ok(value.clone())
    }

    fn encode_owned(value: Bytes, _: Format, _: Option<&schema::Message>) -> Result<Bytes, Status> {
        Ok(value)
    }
}

impl Codec<Vec<u8>> for Raw {
    const PREFERRED: Format = Format::Raw;

    fn carries(format: Format) -> bool {
        is_known(format)
    }

    fn type_schema(_: Option<&schema::Message>) -> TypeSchema {
        TypeSchema::Bytes
    }

    fn decodes_slowly(_: &Body, _: Option<&schema::Message>) -> bool {
        false
    }

    fn decode(body: Body, _: Option<&schema::Message>) -> Result<Vec<u8>, Status> {
        bytes(body).map(Vec::from)
    }

    fn encode(value: &Vec<u8>, _: Format, _: Option<&schema::Message>) -> Result<Bytes, Status> {
        Ok(Bytes::copy_from_slice(value))
    }

    fn encode_owned(value: Vec<u8>, _: Format, _: Option<&schema::Message>) -> Result<Bytes, Status> {
        Ok(value.into())
    }
}

impl Codec<String> for Raw {
    const PREFERRED: Format = Format::Raw;

    fn carries(format: Format) -> bool {
        is_known(format)
    }

    fn type_schema(_: Option<&schema::Message>) -> TypeSchema {
        TypeSchema::String
    }

    fn decodes_slowly(_: &Body, _: Option<&schema::Message>) -> bool {
        false
    }

    fn decode(body: Body, _: Option<&schema::Message>) -> Result<String, Status> {
        String::from_utf8(bytes(body)?.into()).map_err(|_| Status::invalid_argument("the body is not UTF-8"))
    }

    fn encode(value: &String, _: Format, _: Option<&schema::Message>) -> Result<Bytes, Status> {
        Ok(Bytes::copy_from_slice(value.as_bytes()))
    }

    fn encode_owned(value: String, _: Format, _: Option<&schema::Message>) -> Result<Bytes, Status> {
        Ok(value.into())
    }
}

fn bytes(body: Body) -> Result<Bytes, Status> {
    match is_known(body.format) {
        true => Ok(body.bytes),
        false => Err(rpcx::no_codec(body.format)),
    }
}

fn is_known(format: Format) -> bool {
    match format {
        Format::Other(number) => number == rpcx::THRIFT,
        _ => true,
    }
}
