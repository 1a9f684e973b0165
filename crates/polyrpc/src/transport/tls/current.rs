use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use polyrpc_core::Status;
use polyrpc_wire::Protocol;
use rustls::ClientConfig;
use tokio::task::spawn_blocking;

use super::Client;
use super::last_error::LastError;
use super::pem::Stamp;
use crate::Error;

/// TLS configuration of a client's connections, from the files as they were last read.
///
/// No task watches the files: they are checked when a connection is made, once per interval.
pub(crate) struct Current {
    settings: Client,
    protocol: Protocol,
    read: Mutex<Read>,
}

struct Read {
    config: Arc<ClientConfig>,
    /// Stamps of the files, taken just before they were read.
    stamps: Vec<Option<Stamp>>,
    /// When the files were last checked.
    looked: Instant,
    /// The error of that check.
    last_error: LastError,
}

impl Current {
    pub(super) fn new(settings: Client, protocol: Protocol) -> Result<Self, Status> {
        let stamps = settings.stamps();
        let config = Arc::new(settings.config(protocol)?);
        let read =
            Mutex::new(Read { config, stamps, looked: Instant::now(), last_error: LastError::default() });
        Ok(Self { settings, protocol, read })
    }

    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        self.lock().config.clone()
    }

    /// Returns whether the files are to be [checked](Self::refresh): `true` once per interval.
    pub(super) fn is_due(&self) -> bool {
        let Some(every) = self.settings.watch_interval() else { return false };
        let (mut read, now) = (self.lock(), Instant::now());
        let is_due = now.duration_since(read.looked) >= every;
        if is_due {
            read.looked = now;
        }
        is_due
    }

    /// Checks the files if that is due, without blocking the runtime.
    pub(crate) async fn refresh_if_due(self: &Arc<Self>) {
        if self.is_due() {
            let current = self.clone();
            // It fails only if the runtime ends, and the new connection with it.
            let _ = spawn_blocking(move || current.refresh()).await;
        }
    }

    /// Reloads the files if one has changed. The file system may block.
    pub(super) fn refresh(&self) {
        let stamps = self.settings.stamps();
        if stamps == self.lock().stamps {
            return;
        }
        let config = self.settings.config(self.protocol);
        let mut read = self.lock();
        let result = config.map_err(Error::from).map(|config| {
            (read.config, read.stamps) = (Arc::new(config), stamps);
        });
        let is_new = read.last_error.is_new(&result);
        drop(read);
        if is_new {
            self.settings.report().report(&result);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
