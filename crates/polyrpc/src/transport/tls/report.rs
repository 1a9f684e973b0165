use std::fmt;
use std::sync::Arc;

use super::TARGET;
use crate::error::ClientResult as Result;

/// Callback for reloads of files.
#[derive(Clone, Default)]
pub(super) struct Report(Option<Arc<Listener>>);

type Listener = dyn Fn(&Result<()>) + Send + Sync;

impl Report {
    pub(super) fn new(listener: impl Fn(&Result<()>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listener)))
    }

    pub(super) fn report(&self, result: &Result<()>) {
        match (&self.0, result) {
            (Some(listener), result) => listener(result),
            // Without a callback it is logged: a certificate that expires unnoticed would end all service.
            (None, Err(error)) => {
                tracing::warn!(
                    target: TARGET,
                    error = error.message(),
                    "the TLS certificates were not reloaded; the old ones stay"
                );
            }
            (None, Ok(())) => tracing::info!(target: TARGET, "the TLS certificates were reloaded"),
        }
    }
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "told" } else { "logged" })
    }
}
