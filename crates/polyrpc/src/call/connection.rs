use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use polyrpc_core::{Format, Push, Status};
use polyrpc_payload::schema;
use polyrpc_wire::Protocol;

use super::Peer;
use crate::codec::{Body, Codec, count_unknown};
use crate::memory_budget::ResponseRoom;

/// Queue for messages to push; only protocols that can push have one.
pub(crate) type PushQueue = Box<dyn Fn(Push) -> Result<(), Status> + Send + Sync>;

/// Facts of a connection that are known outside of its task.
pub(crate) struct ConnectionFacts {
    /// The connection's id.
    pub(crate) id: u64,
    pub(crate) protocol: Protocol,
    pub(crate) peer: Peer,
    pub(super) local: Option<SocketAddr>,
    /// Whether callers receive the text of internal errors.
    pub(super) exposes_errors: bool,
    closed: AtomicBool,
    pushes: Option<PushQueue>,
    /// Counter for fields of messages that their types do not have.
    unknown_fields: Arc<AtomicU64>,
    /// Where its responses get room, if they are counted.
    response_room: Option<ResponseRoom>,
}

impl ConnectionFacts {
    pub(crate) fn new(protocol: Protocol, peer: Peer, pushes: Option<PushQueue>) -> Self {
        Self {
            id: 0,
            protocol,
            peer,
            local: None,
            exposes_errors: false,
            closed: AtomicBool::new(false),
            pushes,
            unknown_fields: Arc::default(),
            response_room: None,
        }
    }

    /// Sets the counter for fields of messages that their types do not have.
    pub(crate) fn with_unknown_fields(self, unknown_fields: Arc<AtomicU64>) -> Self {
        Self { unknown_fields, ..self }
    }

    /// Decodes a message, and counts the fields that its type does not have.
    ///
    /// # Errors
    ///
    /// See [`Codec::decode`].
    pub(crate) fn read<C: Codec<T>, T>(
        &self,
        body: Body,
        schema: Option<&schema::Message>,
    ) -> Result<T, Status> {
        match (body.format, schema) {
            // Protobuf keeps unknown fields, and without a schema unknown fields cannot be recognized.
            (Format::Protobuf, _) | (_, None) => C::decode(body, schema),
            (_, Some(_)) => self.read_counted::<C, T>(body, schema),
        }
    }

    #[cold]
    fn read_counted<C: Codec<T>, T>(
        &self,
        body: Body,
        schema: Option<&schema::Message>,
    ) -> Result<T, Status> {
        let (message, unknown) = count_unknown(|| C::decode(body, schema));
        if unknown > 0 {
            self.unknown_fields.fetch_add(unknown, Ordering::Relaxed);
        }
        message
    }

    /// Sets where its responses get room.
    pub(crate) fn with_response_room(self, room: ResponseRoom) -> Self {
        Self { response_room: Some(room), ..self }
    }

    /// Returns where its responses get room; `None` if they are not counted.
    pub(crate) fn response_room(&self) -> Option<&ResponseRoom> {
        self.response_room.as_ref()
    }

    /// Sets the connection's id.
    pub(crate) fn with_id(self, id: u64) -> Self {
        Self { id, ..self }
    }

    /// Sets whether callers receive the text of internal errors.
    pub(crate) fn with_exposed_errors(self, exposes_errors: bool) -> Self {
        Self { exposes_errors, ..self }
    }

    /// Sets this end's address.
    pub(crate) fn with_local_address(self, local: Option<SocketAddr>) -> Self {
        Self { local, ..self }
    }

    /// Marks that the response will not be read.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub(super) fn push(&self, push: Push) -> Result<(), Status> {
        if self.is_closed() {
            return Err(Status::unavailable("the connection is closed"));
        }
        match &self.pushes {
            Some(queue) => queue(push),
            None => Err(Status::unimplemented("this protocol cannot push")),
        }
    }
}

impl fmt::Debug for ConnectionFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionFacts").field("protocol", &self.protocol).field("peer", &self.peer).finish()
    }
}
