use std::sync::Arc;

use polyrpc_core::{Compression, Format};

use crate::call::{Outcome, OutcomeKind};
use crate::layer::{Call, Layer, Next};

/// Compresses messages above a size: a client's requests, a server's responses.
///
/// ```
/// use polyrpc::Compression;
/// use polyrpc::layers::Compress;
///
/// let server = polyrpc::Server::new().layer(Compress::new(Compression::Gzip).min_size(4096));
/// ```
///
/// A setting of the call or the handler itself takes precedence. If the protocol does not support the compression for
/// requests, the call fails as if it had requested that compression itself; a response is then sent uncompressed, also
/// to callers that do not accept the compression where the protocol lets them declare it (gRPC, HTTP). Messages of
/// streaming calls are not compressed.
#[derive(Debug, Clone)]
pub struct Compress {
    by: Compression,
    from: usize,
    not: Vec<Format>,
}

impl Compress {
    /// Compresses messages of a kilobyte and more, in any format.
    pub fn new(compression: Compression) -> Self {
        Self { by: compression, from: 1024, not: Vec::new() }
    }

    /// Sets the minimum size of messages to compress, in bytes.
    #[must_use]
    pub fn min_size(self, bytes: usize) -> Self {
        Self { from: bytes, ..self }
    }

    /// Excludes messages of this format, such as raw bytes if they are pictures.
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
        let is_unary = call.stream_type().is_unary();
        let is_worth_it = self.is_worth_it(call.body().format, call.body().bytes.len());
        if let Some(options) = call.options_mut() {
            if is_unary && is_worth_it {
                options.compression.get_or_insert(self.by);
            }
            return next.call(call).await;
        }
        let mut outcome = next.call(call).await;
        if is_unary
            && let OutcomeKind::Reply(reply) = &mut outcome.0
            && let Ok(body) = &reply.result
            && reply.head.compression == Compression::None
            && self.is_worth_it(reply.head.format, body.len())
        {
            reply.head.compression = self.by;
        }
        outcome
    }
}
