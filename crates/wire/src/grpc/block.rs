//! Header blocks of responses. They do not use the dynamic table, so that the common ones are the same bytes on every
//! connection, encoded once and copied.

use polyrpc_core::digits::put_decimal;
use polyrpc_core::{Compression, Format, Metadata, Status};

use super::{coding, metadata, status};
use crate::http::h2::hpack::{Indexing, encode_stateless, stateless_field};

/// `:status 200`, `content-type: application/grpc`.
pub(crate) const HEAD: &[u8] = b"\x88\x0f\x10\x8b\x1d\x75\xd0\x62\x0d\x26\x3d\x4c\x4d\x65\x64";

/// `grpc-status: 0`.
pub(crate) const OK: &[u8] = b"\0\x88\x9a\xca\xc8\xb2\x12\x34\xda\x8f\x010";

/// Returns the response headers for this format.
pub(crate) fn head(format: Format, compression: Compression, metadata: &Metadata) -> Vec<u8> {
    let mut block = Vec::with_capacity(64);
    encode_stateless([(&b":status"[..], &b"200"[..]), (b"content-type", content_type(format))], &mut block);
    if let Some(name) = coding::name(compression).filter(|_| compression != Compression::None) {
        encode_stateless([(&b"grpc-encoding"[..], name)], &mut block);
    }
    add(metadata, &mut block);
    block
}

/// Returns the trailers with the outcome of the call.
pub(crate) fn trailers(failure: Option<&Status>, metadata: &Metadata) -> Vec<u8> {
    let mut block = Vec::with_capacity(64);
    status::write(failure, metadata, |name, value| {
        stateless_field(name, value, Indexing::Unlikely, &mut block)
    });
    block
}

/// Returns the headers of a response that is plain HTTP.
pub(crate) fn http(code: u16, fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let (mut block, mut text) = (Vec::new(), Vec::new());
    put_decimal(&mut text, code.into());
    encode_stateless([(&b":status"[..], &text[..])], &mut block);
    encode_stateless(fields.iter().copied(), &mut block);
    block
}

/// Returns the content type of a format.
pub(super) fn content_type(format: Format) -> &'static [u8] {
    match format {
        Format::Protobuf | Format::ProtoText | Format::RestRpc | Format::StructPack | Format::Other(_) => {
            b"application/grpc"
        }
        Format::Json(_) => b"application/grpc+json",
        Format::MessagePack | Format::MessagePackArray => b"application/grpc+msgpack",
        Format::Gob => b"application/grpc+gob",
        Format::FlatBuffers => b"application/grpc+flatbuffers",
        Format::Raw => b"application/grpc+raw",
    }
}

fn add(metadata: &Metadata, block: &mut Vec<u8>) {
    metadata::write(metadata, |name, value| stateless_field(name, value, Indexing::Unlikely, block));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_header_blocks_equal_encoded_ones() {
        assert_eq!(head(Format::Protobuf, Compression::None, &Metadata::new()), HEAD);
        let mut block = Vec::new();
        encode_stateless([(&b"grpc-status"[..], &b"0"[..])], &mut block);
        assert_eq!(block, OK);
    }
}
