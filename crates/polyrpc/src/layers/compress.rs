use std::sync::Arc;

use polyrpc_core::{Compression, Format};

use crate::call::Outcome;
use crate::layer::{Call, Layer, Next};

/// Compresses messages that are worth it: a client's requests, a server's answers.
///
/// ```
/// use polyrpc::Compression;
/// use polyrpc::layers::Compress;
///
/// let server = polyrpc::Server::new().layer(Compress::new(Compression::Gzip).min_size(4096));
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
    pub fn new(compression: Compression) -> Self {
        Self { by: compression, from: 1024, not: Vec::new() }
    }

    /// Compresses messages of so many bytes and more.
    #[must_use]
    pub fn min_size(self, bytes: usize) -> Self {
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

impl Layer for Compress {
    async fn call(self: Arc<Self>, mut call: Call, next: Next) -> Outcome {
        let is_unary = call.shape().is_unary();
        let is_worth_it = self.is_worth_it(call.body().format, call.body().bytes.len());
        if let Some(options) = call.options_mut() {
            if is_unary && is_worth_it {
                options.compression.get_or_insert(self.by);
            }
            return next.call(call).await;
        }
        let mut ending = next.call(call).await;
        if is_unary
            && let Outcome::Reply(reply) = &mut ending
            && let Ok(body) = &reply.result
            && reply.head.compression == Compression::None
            && self.is_worth_it(reply.head.format, body.len())
        {
            reply.head.compression = self.by;
        }
        ending
    }
}
