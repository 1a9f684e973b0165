use bytes::Bytes;
use polyrpc_wire::payload::schema;
use polyrpc_wire::{Format, Status};

use super::{Body, Codec, Outline};

/// Bytes that mean nothing to the framework, in whatever format the peer says they are.
#[derive(Debug, Clone, Copy)]
pub struct Raw;

impl Codec<Bytes> for Raw {
    const PREFERRED: Format = Format::Raw;

    fn carries(_: Format) -> bool {
        true
    }

    fn outline(_: Option<&schema::Message>) -> Outline {
        Outline::Bytes
    }

    fn decode(body: Body, _: Option<&schema::Message>) -> Result<Bytes, Status> {
        Ok(body.bytes)
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

    fn carries(_: Format) -> bool {
        true
    }

    fn outline(_: Option<&schema::Message>) -> Outline {
        Outline::Bytes
    }

    fn decode(body: Body, _: Option<&schema::Message>) -> Result<Vec<u8>, Status> {
        Ok(body.bytes.into())
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

    fn carries(_: Format) -> bool {
        true
    }

    fn outline(_: Option<&schema::Message>) -> Outline {
        Outline::String
    }

    fn decode(body: Body, _: Option<&schema::Message>) -> Result<String, Status> {
        String::from_utf8(body.bytes.into()).map_err(|_| Status::invalid_argument("the body is not UTF-8"))
    }

    fn encode(value: &String, _: Format, _: Option<&schema::Message>) -> Result<Bytes, Status> {
        Ok(Bytes::copy_from_slice(value.as_bytes()))
    }

    fn encode_owned(value: String, _: Format, _: Option<&schema::Message>) -> Result<Bytes, Status> {
        Ok(value.into())
    }
}
