//! Headers of a request (PROTOCOL-HTTP2.md, "Requests").

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use polyrpc_core::{Call, Compression, Credential, Format, Head, Json, Metadata, ReceivedMetadata, Status};

use super::dialect::Dialect;
use super::frame::{self, ReceivedMessage};
use super::{coding, metadata, timeout};

/// Parsed request headers.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) service: String,
    pub(crate) method: String,
    pub(crate) dialect: Dialect,
    pub(crate) format: Format,
    pub(crate) compression: Compression,
    pub(crate) accepts: AcceptedCompressions,
    pub(crate) timeout: Option<Duration>,
    pub(crate) credential: Option<Bytes>,
    pub(crate) metadata: Metadata,
    /// The method takes a single message, as far as is known.
    pub(crate) has_unary_request: bool,
    /// Parts of the head that only a dialect with a framing of its own has.
    pub(crate) extra: Option<Box<RequestExtra>>,
}

/// Parts of a request's head that gRPC does not have.
#[derive(Debug, Default)]
pub(crate) struct RequestExtra {
    /// The message, of a request without a body.
    pub(crate) message: Option<Bytes>,
    /// Reason to reject the call, once its method is known to exist.
    pub(crate) refusal: Option<Status>,
}

/// Why a request is not a valid gRPC request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InvalidRequest {
    /// The method is not POST.
    Method,
    /// The content type is not gRPC's.
    ContentType,
    /// The path does not name a method.
    Path,
    /// The timeout is malformed.
    Timeout,
    /// There are more fields than allowed.
    Fields,
    /// The compression is not supported; as with grpc-go, this fails the request even if no message is compressed.
    Encoding,
    /// There are two credentials, one of which a proxy may have checked.
    Credentials,
}

/// Failure of a call with two credentials.
#[cold]
pub(crate) fn two_credentials() -> Status {
    Status::unauthenticated("there are two credentials")
}

impl Request {
    /// Parses the header fields, with names in lower case, `:method` and `:path` among them.
    pub(crate) fn read<'f>(
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
    ) -> Result<Self, InvalidRequest> {
        let mut request = Self::bare(Dialect::Native, Format::Protobuf);
        let (mut post, mut typed) = (false, false);
        let (field_count, mut received) = (fields.size_hint().0, ReceivedMetadata::default());
        for (name, value) in fields {
            match name {
                b":method" => post = value == b"POST",
                b":path" => request.name(value)?,
                b"content-type" => {
                    (request.dialect, request.format) = kind(value).ok_or(InvalidRequest::ContentType)?;
                    typed = true;
                }
                b"grpc-timeout" => {
                    request.timeout = Some(timeout::read(value).ok_or(InvalidRequest::Timeout)?)
                }
                b"grpc-encoding" => {
                    request.compression = coding::read(value).ok_or(InvalidRequest::Encoding)?
                }
                // It may be split over several lines (RFC 9110, §5.3).
                b"grpc-accept-encoding" => request.accepts.add(value),
                b"authorization" => {
                    if request.credential.replace(Bytes::copy_from_slice(value)).is_some() {
                        return Err(InvalidRequest::Credentials);
                    }
                    field(name, value, &mut received);
                }
                _ => {
                    if received.is_empty() && field_count > USUAL {
                        received.reserve(field_count);
                    }
                    field(name, value, &mut received);
                }
            }
        }
        request.metadata = received.into_metadata();
        match (post, typed) {
            (false, _) => Err(InvalidRequest::Method),
            (true, false) => Err(InvalidRequest::ContentType),
            (true, true) => Ok(request),
        }
    }

    /// Creates a request without a name or metadata.
    pub(crate) fn bare(dialect: Dialect, format: Format) -> Self {
        Self {
            service: String::new(),
            method: String::new(),
            dialect,
            format,
            compression: Compression::None,
            accepts: AcceptedCompressions::default(),
            timeout: None,
            credential: None,
            metadata: Metadata::new(),
            has_unary_request: false,
            extra: None,
        }
    }

    /// Takes the only message out of a complete body. If the body holds anything else, it stays as it is.
    pub(crate) fn single_message(&self, body: &mut Bytes, limit: usize) -> Option<ReceivedMessage> {
        match self.dialect {
            Dialect::Native | Dialect::Web => frame::single_message(body, limit),
            Dialect::WebText => None,
            Dialect::Framed(framing) if framing.has_bare_request() => self.bare_message(body, limit),
            Dialect::Framed(_) => frame::single_message(body, limit),
        }
    }

    /// Returns a body that is one message without a prefix, unless it exceeds the limit.
    fn bare_message(&self, body: &Bytes, limit: usize) -> Option<ReceivedMessage> {
        let body = self.extra.as_ref().and_then(|extra| extra.message.as_ref()).unwrap_or(body);
        let compressed = self.compression != Compression::None && !body.is_empty();
        (body.len() <= limit).then(|| ReceivedMessage { compressed, body: body.clone() })
    }

    /// Returns why the call is rejected because of its head.
    pub(crate) fn refusal(&self) -> Option<Status> {
        self.extra.as_ref()?.refusal.clone()
    }

    /// Returns the approximate memory footprint in bytes.
    pub(crate) fn footprint(&self) -> usize {
        let names = self.service.capacity() + self.method.capacity();
        let credential = self.credential.as_ref().map_or(0, Bytes::len);
        let message = self.extra.as_ref().and_then(|extra| extra.message.as_ref()).map_or(0, Bytes::len);
        size_of::<Self>() + names + credential + message + self.metadata.footprint()
    }

    /// Returns the call described by the headers, with this message.
    pub(crate) fn call(&self, body: Bytes, compression: Compression) -> Call<'_> {
        Call {
            credential: Credential::Call(self.credential.clone()),
            malformed: self.refusal(),
            body,
            ..self.call_with(self.metadata.clone(), compression)
        }
    }

    /// Returns the same call with this metadata, and without its message, its credential and its refusal.
    pub(crate) fn call_with(&self, metadata: Metadata, compression: Compression) -> Call<'_> {
        Call {
            head: Head { format: self.format, compression, metadata, ..Head::default() },
            timeout: self.timeout,
            ..Call::new(&self.service, &self.method, self.format, Bytes::new())
        }
    }

    /// Returns the metadata: moved if nothing else refers to the request, as nothing does if its head was not cached.
    pub(crate) fn take_metadata(self: &mut Arc<Self>) -> Metadata {
        if self.metadata.is_empty() {
            return Metadata::new();
        }
        match Arc::get_mut(self) {
            Some(request) => std::mem::take(&mut request.metadata),
            None => self.metadata.clone(),
        }
    }

    /// Parses `/package.Service/Method`.
    pub(crate) fn name(&mut self, path: &[u8]) -> Result<(), InvalidRequest> {
        let path = std::str::from_utf8(path).map_err(|_| InvalidRequest::Path)?;
        let (service, method) =
            path.strip_prefix('/').and_then(|path| path.rsplit_once('/')).ok_or(InvalidRequest::Path)?;
        (self.service, self.method) = (service.to_owned(), method.to_owned());
        Ok(())
    }
}

/// Number of fields that a head without metadata has.
const USUAL: usize = 10;

/// Adds a field of the user.
pub(crate) fn field(name: &[u8], value: &[u8], metadata: &mut ReceivedMetadata) {
    // The client library's name is not metadata of the call.
    if let Ok(name) = std::str::from_utf8(name)
        && !metadata::is_reserved(name)
        && name != "user-agent"
    {
        metadata::read(name, value, metadata);
    }
}

/// Parses a content type; `None` if it is not gRPC's.
pub(crate) fn kind(content_type: &[u8]) -> Option<(Dialect, Format)> {
    let kind = content_type.split(|&byte| byte == b';').next()?.trim_ascii();
    let suffix = kind.strip_prefix(b"application/grpc")?;
    let (dialect, suffix) = Dialect::split(suffix);
    let format = match suffix {
        // Protobuf is the default.
        b"" | b"+proto" => Format::Protobuf,
        b"+json" => Format::Json(Json::Proto3),
        b"+msgpack" => Format::MessagePack,
        b"+flatbuffers" => Format::FlatBuffers,
        b"+gob" => Format::Gob,
        b"+raw" | b"+octet-stream" => Format::Raw,
        _ => return None,
    };
    Some((dialect, format))
}

/// The compressions a peer can read, besides none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AcceptedCompressions(u8);

impl AcceptedCompressions {
    const KNOWN: [Compression; 4] =
        [Compression::Gzip, Compression::Zlib, Compression::SnappyFrames, Compression::Zstd];

    pub(crate) fn read(list: &[u8]) -> Self {
        let known = Self::KNOWN.iter().enumerate();
        Self(known.filter(|(_, known)| coding::accepts(list, **known)).map(|(n, _)| 1 << n).sum())
    }

    /// Adds another list.
    pub(crate) fn add(&mut self, list: &[u8]) {
        self.0 |= Self::read(list).0;
    }

    /// Returns the compression for messages to this peer, given the preferred one.
    pub(crate) fn choose(self, wanted: Compression) -> Compression {
        let wanted = coding::to_message_coding(wanted);
        if self.has(wanted) { wanted } else { Compression::None }
    }

    fn has(self, compression: Compression) -> bool {
        let at = Self::KNOWN.iter().position(|known| *known == compression);
        at.is_some_and(|at| self.0 & 1 << at != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_encodings_may_span_several_header_lines() {
        let fields = [
            (":method", "POST"),
            (":path", "/a/b"),
            ("content-type", "application/grpc"),
            ("grpc-accept-encoding", "identity,gzip"),
            ("grpc-accept-encoding", "deflate"),
        ];
        let request =
            Request::read(fields.map(|(name, value)| (name.as_bytes(), value.as_bytes())).into_iter());
        let accepts = request.expect("it is one of gRPC").accepts;
        for wanted in [Compression::Gzip, Compression::Zlib] {
            assert_eq!(accepts.choose(wanted), wanted);
        }
        assert_eq!(accepts.choose(Compression::SnappyFrames), Compression::None);
    }
}
