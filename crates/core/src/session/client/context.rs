use std::fmt;

use bytes::Bytes;

use crate::Limits;
use crate::protocol::Dialect;

/// What a client knows when it creates the sessions of its connections.
#[derive(Clone)]
pub struct SessionContext {
    /// Limits for the session.
    pub limits: Limits,
    /// Credential of the caller, which is used by calls without one of their own.
    pub credential: Option<Bytes>,
    /// Dialect of the protocol that the URL selects.
    pub dialect: Dialect,
    /// Name of the server in the URL; `localhost` for a Unix socket.
    pub authority: String,
    /// Whether connections use TLS.
    pub is_secured: bool,
    /// Path of the `CONNECT` that the session must start with, if the URL requests one.
    pub connect: Option<String>,
}

impl fmt::Debug for SessionContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let credential = self.credential.as_ref().map(|_| format_args!("<redacted>"));
        f.debug_struct("SessionContext")
            .field("limits", &self.limits)
            .field("credential", &credential)
            .field("dialect", &self.dialect)
            .field("authority", &self.authority)
            .finish_non_exhaustive()
    }
}
