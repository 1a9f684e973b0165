use crate::Limits;
use crate::session::Handover;

/// What a server knows of a connection when it creates the session.
#[derive(Debug)]
pub struct SessionContext<'a> {
    /// Limits for the session.
    pub limits: &'a Limits,
    /// Bytes by which the protocol was recognised. The first call of [`next_event`](super::Server::next_event) receives
    /// them again.
    pub start: &'a [u8],
    /// Whether the connection uses TLS.
    pub is_secured: bool,
    /// State that the previous session of the connection left for this one.
    pub handover: Option<Handover>,
}
