//! The request of a client, for every version of HTTP.

use bytes::Bytes;
use polyrpc_core::protocol::Parameters;
use polyrpc_core::{Call, Compression, Fault, Metadata, Retry, Status};
use polyrpc_payload::compress;

use super::kind::Kind;
use super::query;
use crate::grpc::coding;
use crate::grpc::request_writer::{ClientFraming, FramedRequest, RequestBody, RequestWriter};
use crate::http::h2::hpack::Indexing;
use crate::http::path::check_name;
use crate::timeout_millis::to_millis;

/// HTTP method of a client's unary calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnaryMethod {
    /// POST.
    #[default]
    Post,
    /// GET, which servers accept for methods declared free of side effects. Messages that make the query too long are
    /// sent by POST.
    Get,
}

impl UnaryMethod {
    /// Returns the method that the parameters of a URL select.
    pub fn selected_by(parameters: &Parameters) -> Self {
        if parameters.has("http_method", "get") { Self::Get } else { Self::Post }
    }
}

/// The framing of a client whose unary calls use this HTTP method.
impl From<UnaryMethod> for ClientFraming {
    fn from(method: UnaryMethod) -> Self {
        Self::new(match method {
            UnaryMethod::Post => &UnaryMethod::Post,
            UnaryMethod::Get => &UnaryMethod::Get,
        })
    }
}

impl RequestWriter for UnaryMethod {
    fn request(
        &self,
        call: &Call<'_>,
        is_stream: bool,
        compression: Compression,
    ) -> Result<FramedRequest, Status> {
        check_name(call.service)?;
        check_name(call.method)?;
        check_metadata(&call.head.metadata)?;
        let (kind, body) = match is_stream {
            true => (Kind::Stream, RequestBody::Messages),
            false => (Kind::Unary, RequestBody::Message(body(call, compression)?)),
        };
        let target = ["/", call.service, "/", call.method].concat();
        let framing = kind.framing();
        Ok(match body {
            // Base64 is longer by a third.
            RequestBody::Message(body) if *self == Self::Get && body.len() <= LONGEST_QUERY / 4 * 3 => {
                let query = query::write(call.head.format, compression, &body);
                let target = [&target[..], &query].join("?");
                FramedRequest { framing, method: "GET", target, body: RequestBody::None, compression }
            }
            body => FramedRequest { framing, method: "POST", target, body, compression },
        })
    }

    fn fields(&self, request: &FramedRequest, call: &Call<'_>, add: &mut dyn FnMut(&[u8], &[u8], Indexing)) {
        let is_get = matches!(request.body, RequestBody::None);
        if !is_get {
            add(b"content-type", &request.framing.content_type(call.head.format), Indexing::Likely);
            add(b"connect-protocol-version", b"1", Indexing::Likely);
        }
        let (accepts, encoding): (&[u8], &[u8]) = match request.body {
            RequestBody::Messages => (b"connect-accept-encoding", b"connect-content-encoding"),
            RequestBody::None | RequestBody::Message(_) => (b"accept-encoding", b"content-encoding"),
        };
        add(accepts, coding::ACCEPTED, Indexing::Likely);
        let name = coding::name(request.compression).filter(|_| request.compression != Compression::None);
        if let Some(name) = name.filter(|_| !is_get) {
            add(encoding, name, Indexing::Likely);
        }
        if let Some(time) = call.timeout {
            let millis = to_millis(time).min(LONGEST_TIMEOUT);
            add(b"connect-timeout-ms", millis.to_string().as_bytes(), Indexing::Unlikely);
        }
    }
}

/// Returns the body of a unary call's request.
fn body(call: &Call<'_>, compression: Compression) -> Result<Bytes, Status> {
    if compression == Compression::None {
        return Ok(call.body.clone());
    }
    let compressed = compress::compress(compression, &call.body);
    Ok(compressed.map_err(|error| Status::internal(error.to_string()).with_fault(Fault::Us))?.into())
}

/// Rejects metadata with names reserved by the protocol.
fn check_metadata(metadata: &Metadata) -> Result<(), Status> {
    let is_own = |name: &str| {
        let name = name.to_ascii_lowercase();
        name.starts_with("connect-") || name.starts_with("trailer-") || name == "accept-encoding"
    };
    match metadata.iter().find(|(name, _)| is_own(name)) {
        None => Ok(()),
        Some((name, _)) => Err(Status::invalid_argument(format!("the name {name:?} belongs to Connect"))
            .with_fault(Fault::Caller)
            .with_retry(Retry::Never)),
    }
}

/// Maximum number of message bytes in the query of a GET. Proxies accept heads of 8 KiB.
const LONGEST_QUERY: usize = 4 << 10;

/// Longest timeout: the specification allows ten digits.
const LONGEST_TIMEOUT: u128 = 9_999_999_999;
