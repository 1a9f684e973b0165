//! The head of a request: whom it calls, and how (PROTOCOL-HTTP2.md, "Requests").

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{coding, metadata, timeout};
use crate::h2::hpack::Fields;
use crate::payload::Json;
use crate::{Compression, Format, Metadata};

/// A request's head, as it was understood.
#[derive(Debug)]
pub(super) struct Request {
    /// The list it was read from: one that comes again is the same, not only equal.
    pub(super) fields: Arc<Fields>,
    pub(super) service: String,
    pub(super) method: String,
    pub(super) format: Format,
    /// `None`: this side does not know it.
    pub(super) compression: Option<Compression>,
    pub(super) accepts: Accepts,
    pub(super) timeout: Option<Duration>,
    pub(super) credential: Option<Bytes>,
    pub(super) metadata: Metadata,
}

/// Why a request is none of gRPC: the HTTP status that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// Only POST calls a method.
    Method,
    /// Another content type.
    ContentType,
    /// The path names no method.
    Path,
    /// The timeout is none.
    Timeout,
}

impl Request {
    pub(super) fn read(fields: &Arc<Fields>) -> Result<Self, Unfit> {
        let mut request = Self {
            fields: fields.clone(),
            service: String::new(),
            method: String::new(),
            format: Format::Protobuf,
            compression: Some(Compression::None),
            accepts: Accepts::default(),
            timeout: None,
            credential: None,
            metadata: Metadata::new(),
        };
        let (mut post, mut typed) = (false, false);
        for (name, value) in fields.iter() {
            match name {
                b":method" => post = value == b"POST",
                b":path" => request.name(value)?,
                b"content-type" => {
                    request.format = format(value).ok_or(Unfit::ContentType)?;
                    typed = true;
                }
                b"grpc-timeout" => request.timeout = Some(timeout::read(value).ok_or(Unfit::Timeout)?),
                b"grpc-encoding" => request.compression = coding::read(value),
                b"grpc-accept-encoding" => request.accepts = Accepts::read(value),
                b"authorization" => {
                    request.credential = Some(Bytes::copy_from_slice(value));
                    request.field(name, value);
                }
                _ => request.field(name, value),
            }
        }
        match (post, typed) {
            (false, _) => Err(Unfit::Method),
            (true, false) => Err(Unfit::ContentType),
            (true, true) => Ok(request),
        }
    }

    /// `/package.Service/Method`
    fn name(&mut self, path: &[u8]) -> Result<(), Unfit> {
        let path = std::str::from_utf8(path).map_err(|_| Unfit::Path)?;
        let (service, method) =
            path.strip_prefix('/').and_then(|path| path.rsplit_once('/')).ok_or(Unfit::Path)?;
        (self.service, self.method) = (service.to_owned(), method.to_owned());
        Ok(())
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        // Who calls by what library is no metadata of the call.
        if let Ok(name) = std::str::from_utf8(name)
            && !metadata::is_reserved(name)
            && name != "user-agent"
        {
            metadata::read(name, value, &mut self.metadata);
        }
    }
}

/// The format behind `application/grpc`: protobuf when nothing is said. `None` for other content types.
pub(super) fn format(content_type: &[u8]) -> Option<Format> {
    let kind = content_type.split(|&byte| byte == b';').next()?.trim_ascii();
    match kind.strip_prefix(b"application/grpc")? {
        b"" | b"+proto" => Some(Format::Protobuf),
        b"+json" => Some(Format::Json(Json::Proto3)),
        b"+msgpack" => Some(Format::MessagePack),
        b"+raw" | b"+octet-stream" => Some(Format::Raw),
        _ => None,
    }
}

/// The compressions a peer can read, besides none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Accepts(u8);

impl Accepts {
    const KNOWN: [Compression; 4] =
        [Compression::Gzip, Compression::Zlib, Compression::SnappyFrames, Compression::Zstd];

    pub(super) fn read(list: &[u8]) -> Self {
        let known = Self::KNOWN.iter().enumerate();
        Self(known.filter(|(_, known)| coding::accepts(list, **known)).map(|(n, _)| 1 << n).sum())
    }

    pub(super) fn has(self, compression: Compression) -> bool {
        let at = Self::KNOWN.iter().position(|known| *known == compression);
        at.is_some_and(|at| self.0 & 1 << at != 0)
    }
}
