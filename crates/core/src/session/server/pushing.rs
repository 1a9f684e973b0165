use bytes::Bytes;

use crate::{Outbox, Push, Status};

/// Unsolicited messages, on a server.
///
/// The driver uses it between calls, when a handler or a publisher has queued messages for this client. That they can
/// be sent is checked before they are queued, by the descriptor of the protocol
/// ([`Capabilities::push`](crate::protocol::Capabilities::push)).
///
/// Implemented by rpcx (pushed messages) and rest_rpc (published messages).
pub trait Pushing {
    /// Sends a message that belongs to no call.
    ///
    /// # Errors
    ///
    /// A [`Status`] if the protocol cannot express it; nothing was appended then.
    fn push(&mut self, push: Push, out: &mut Outbox) -> Result<(), Status>;

    /// Sends a published message of a topic to which the peer has
    /// [subscribed](crate::session::ServerEvent::Subscribe).
    ///
    /// # Errors
    ///
    /// See [`push`](Self::push).
    fn publish(&mut self, _topic: &[u8], _data: Bytes, _out: &mut Outbox) -> Result<(), Status> {
        Err(Status::unimplemented("this protocol has no topics"))
    }
}
