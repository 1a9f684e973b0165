//! The payload after the meta: a message, optionally compressed and with a checksum, and an attachment that is never
//! compressed.
//!
//! The order is brpc's: serialize, compress, compute the checksum, append the attachment; the reverse for decoding.

use std::fmt;

use bytes::Bytes;
use polyrpc_core::{Checksum, Compression, Format, Head, Json, Outbox};
use polyrpc_payload::compress;

use super::meta::Meta;

/// An encoded message and its attachment.
#[derive(Debug)]
pub(super) struct Body {
    message: Bytes,
    attachment: Bytes,
    compress_type: i32,
    content_type: i32,
    checksum: Option<[u8; 4]>,
    covers_attachment: bool,
}

impl Body {
    /// Encodes `message` as described by `head`.
    pub(super) fn encode(message: Bytes, attachment: Bytes, head: &Head) -> Result<Self, EncodeError> {
        let content_type = content_type(head.format).ok_or(EncodeError::Format(head.format))?;
        let compress_type =
            compress_type(head.compression).ok_or(EncodeError::Compression(head.compression))?;
        let message = match head.compression {
            Compression::None => message,
            compression => compress::compress(compression, &message).map_err(EncodeError::Compress)?.into(),
        };
        if message.len() + attachment.len() > MAX_PAYLOAD {
            return Err(EncodeError::Length(message.len() + attachment.len()));
        }
        let checksum = match head.checksum {
            Checksum::None => None,
            Checksum::Message => Some(crc32c(&message, b"")),
            Checksum::MessageAndAttachment => Some(crc32c(&message, &attachment)),
        };
        let covers_attachment = head.checksum == Checksum::MessageAndAttachment;
        Ok(Self { message, attachment, compress_type, content_type, checksum, covers_attachment })
    }

    /// Returns the meta fields that describe this body.
    pub(super) fn meta(&self) -> Meta<'_> {
        Meta {
            compress_type: Some(self.compress_type),
            // `encode` ensures that it is below 2 GiB.
            attachment_size: (!self.attachment.is_empty()).then_some(self.attachment.len() as i32),
            content_type: Some(self.content_type),
            checksum_type: Some(if self.checksum.is_some() { CRC32C } else { NO_CHECKSUM }),
            checksum_value: Some(self.checksum.as_ref().map_or(b"", |value| value)),
            checksum_with_attachment: self.covers_attachment,
            ..Meta::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.message.len() + self.attachment.len()
    }

    pub(super) fn append(self, out: &mut Outbox) {
        out.body(self.message);
        out.body(self.attachment);
    }
}

/// Returns the meta fields of a body without message and attachment.
pub(super) fn empty_meta() -> Meta<'static> {
    Meta {
        compress_type: Some(0),
        content_type: Some(0),
        checksum_type: Some(NO_CHECKSUM),
        checksum_value: Some(b""),
        ..Meta::default()
    }
}

/// Splits a frame's payload into message and attachment and verifies the checksum.
pub(super) fn split(payload: Bytes, meta: &Meta<'_>) -> Result<(Bytes, Bytes), DecodeError> {
    let (size, mut message) = (payload.len(), payload);
    let attachment = match meta.attachment_size.unwrap_or_default() {
        0 => Bytes::new(),
        announced => {
            let length = usize::try_from(announced).ok().and_then(|announced| size.checked_sub(announced));
            message.split_off(length.ok_or(DecodeError::Attachment { announced, size })?)
        }
    };
    if meta.checksum_type == Some(CRC32C) {
        let covered = if meta.checksum_with_attachment { &attachment[..] } else { b"" };
        // brpc asserts four bytes; any other length is treated as a mismatch here.
        if meta.checksum_value != Some(&crc32c(&message, covered)[..]) {
            return Err(DecodeError::Checksum { size });
        }
    }
    Ok((message, attachment))
}

/// Returns the format, compression and checksum of a frame's message.
pub(super) fn head(meta: &Meta<'_>) -> Head {
    Head {
        format: format(meta.content_type.unwrap_or_default()),
        compression: compression(meta.compress_type.unwrap_or_default()),
        checksum: match (meta.checksum_type, meta.checksum_with_attachment) {
            (Some(CRC32C), true) => Checksum::MessageAndAttachment,
            (Some(CRC32C), false) => Checksum::Message,
            _ => Checksum::None,
        },
        ..Head::default()
    }
}

/// Why a message cannot be sent over baidu_std.
#[derive(Debug)]
pub(super) enum EncodeError {
    /// There is no content type for the format.
    Format(Format),
    /// There is no compress type for the compression.
    Compression(Compression),
    /// Compression failed.
    Compress(compress::Error),
    /// The message is longer than a frame allows.
    Length(usize),
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format(format) => write!(f, "baidu_std has no content type for {}", format.as_str()),
            Self::Compression(compression) => {
                write!(f, "baidu_std has no compress type for {}", compression.as_str())
            }
            Self::Compress(error) => write!(f, "cannot compress the message: {error}"),
            Self::Length(length) => write!(f, "{length} bytes are more than a frame can hold"),
        }
    }
}

/// Why a received payload is malformed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DecodeError {
    /// The attachment does not fit into the payload.
    Attachment { announced: i32, size: usize },
    /// The checksum does not match.
    Checksum { size: usize },
}

/// brpc counts payload bytes in an `int` (`PackRpcHeader`).
const MAX_PAYLOAD: usize = i32::MAX as usize;

const NO_CHECKSUM: i32 = 0;
const CRC32C: i32 = 1;

/// CRC-32C masked as LevelDB does, big-endian (brpc `policy/crc32c_checksum.cpp`).
fn crc32c(message: &[u8], attachment: &[u8]) -> [u8; 4] {
    let sum = crc32c::crc32c_append(crc32c::crc32c(message), attachment);
    sum.rotate_right(15).wrapping_add(0xa282_ead8).to_be_bytes()
}

/// Returns the number of a format. Bytes that are opaque to the framework are sent under the default number.
fn content_type(format: Format) -> Option<i32> {
    match format {
        Format::Protobuf | Format::Raw | Format::Other(_) => Some(0),
        Format::Json(Json::Brpc | Json::BrpcLenient | Json::Go) => Some(1),
        Format::Json(Json::Proto3) => Some(2),
        Format::ProtoText => Some(3),
        Format::MessagePack
        | Format::MessagePackArray
        | Format::RestRpc
        | Format::StructPack
        | Format::Gob
        | Format::FlatBuffers => None,
    }
}

fn format(content_type: i32) -> Format {
    match content_type {
        1 => Format::Json(Json::Brpc),
        2 => Format::Json(Json::Proto3),
        3 => Format::ProtoText,
        _ => Format::Protobuf,
    }
}

/// Returns the number of a compression. 4 is reserved for LZ4, but brpc does not implement it.
fn compress_type(compression: Compression) -> Option<i32> {
    match compression {
        Compression::None => Some(0),
        Compression::Snappy => Some(1),
        Compression::Gzip => Some(2),
        Compression::Zlib => Some(3),
        Compression::SnappyFrames | Compression::Lz4 | Compression::Zstd | Compression::Other(_) => None,
    }
}

fn compression(compress_type: i32) -> Compression {
    match compress_type {
        0 => Compression::None,
        1 => Compression::Snappy,
        2 => Compression::Gzip,
        3 => Compression::Zlib,
        other => Compression::Other(u8::try_from(other).unwrap_or(u8::MAX)),
    }
}
