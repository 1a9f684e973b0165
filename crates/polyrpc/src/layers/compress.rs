use futures_util::future::BoxFuture;
use polyrpc_wire::payload::Format;
use polyrpc_wire::{Compression, Status};

use crate::client::{self, Outgoing, Response};
use crate::codec::Body;
use crate::service::{self, Context, Ending, Handling};

/// Compresses messages that are worth it: a client's requests, a server's answers.
///
/// ```
/// use polyrpc::Compression;
/// use polyrpc::layers::Compress;
///
/// let server = polyrpc::Server::new().layer(Compress::by(Compression::Gzip).from(4096));
/// ```
///
/// What a call or a handler says itself counts. Where the protocol has no such compression for a request, the call fails as
/// it would if it had asked for it; an answer is then sent as it is, also to callers that do not accept it where
/// the protocol lets them say so (gRPC, HTTP). Messages of calls with several of them are left as they are.
#[derive(Debug, Clone)]
pub struct Compress {
    by: Compression,
    from: usize,
    not: Vec<Format>,
}

impl Compress {
    /// Compresses messages of a kilobyte and more, whatever they are written in.
    pub fn by(compression: Compression) -> Self {
        Self { by: compression, from: 1024, not: Vec::new() }
    }

    /// Compresses messages of so many bytes and more.
    #[must_use]
    pub fn from(self, bytes: usize) -> Self {
        Self { from: bytes, ..self }
    }

    /// Leaves messages as they are that are written like this: raw bytes, say, if they are pictures.
    #[must_use]
    pub fn except(mut self, format: Format) -> Self {
        self.not.push(format);
        self
    }

    fn is_worth_it(&self, format: Format, bytes: usize) -> bool {
        bytes >= self.from && !self.not.contains(&format)
    }
}

impl client::Layer for Compress {
    fn call<'a>(
        &'a self,
        mut call: Outgoing<'a>,
        next: client::Next<'a>,
    ) -> BoxFuture<'a, Result<Response<Body>, Status>> {
        if call.options.compression.is_none() && self.is_worth_it(call.body.format, call.body.bytes.len()) {
            call.options.compression = Some(self.by);
        }
        next.call(call)
    }
}

impl service::Layer for Compress {
    fn call(&self, cx: Context, body: Body, next: service::Next<'_>) -> Result<Handling, Status> {
        let unary = next.shape().is_unary();
        let handling = next.call(cx, body)?;
        if !unary {
            return Ok(handling);
        }
        let policy = self.clone();
        Ok(Box::pin(async move {
            let mut ending = handling.await;
            if let Ending::Reply(reply) = &mut ending
                && let Ok(body) = &reply.result
                && reply.head.compression == Compression::None
                && policy.is_worth_it(reply.head.format, body.len())
            {
                reply.head.compression = policy.by;
            }
            ending
        }))
    }
}
