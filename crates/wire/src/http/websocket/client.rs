//! Client's side of a WebSocket connection that carries another protocol.

use std::fmt;

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::client::Streaming;
use polyrpc_core::session::{Client as Session, ClientEvent};
use polyrpc_core::{Call, CallId, Limits, Outbox, Status, Violation};

use super::session::{Endpoint, Random, Role};
use super::{CloseCode, handshake};
use crate::http::h1::frame::head_end;

/// Settings of a client's WebSocket.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Limits. Only [`Limits::header`] applies: it bounds the head of the server's handshake response.
    pub limits: Limits,
    /// The server's authority, as `host:port`.
    pub authority: String,
    /// Path on the server: rpcx uses `/_rpcx_`.
    pub path: String,
    /// Source of random masking keys.
    pub random: Random,
}

/// Client of any protocol within a WebSocket.
///
/// ```text
/// New ──▶ Handshaking ──▶ Open       handshake starts with the first call; calls are buffered until it ends
/// ```
///
/// Calls that are made before the handshake is complete are sent in one message, each later call in its own. The inner
/// protocol is type-erased, so that the connection code exists once for all protocols within a WebSocket.
pub struct Client {
    config: ClientConfig,
    inner: Box<dyn Session + Send>,
    state: State,
    /// Output of the inner protocol, before it is wrapped.
    outgoing: Outbox,
    /// Unwrapped input for the inner protocol.
    arrived: BytesMut,
    /// Bytes left in the inbox as the start of an incomplete frame.
    left: usize,
    /// A one-way call has been sent.
    sent_oneway: bool,
}

#[derive(Debug)]
enum State {
    New,
    Handshaking { key: String, scanned: usize },
    Open { endpoint: Endpoint, ponged: bool, close_reported: bool },
}

impl Client {
    /// Creates the state of a new connection.
    pub fn new(config: ClientConfig, inner: Box<dyn Session + Send>) -> Self {
        let (outgoing, arrived) = (Outbox::new(), BytesMut::new());
        Self { config, inner, state: State::New, outgoing, arrived, left: 0, sent_oneway: false }
    }

    /// Starts the handshake if it has not started; once it is complete, sends pongs and the inner protocol's output.
    fn send_inner(&mut self, out: &mut Outbox) {
        match &mut self.state {
            State::New => {
                let key = handshake::key([(self.config.random)(), (self.config.random)()]);
                out.extend_from_slice(
                    handshake::request(&self.config.authority, &self.config.path, &key).as_bytes(),
                );
                self.state = State::Handshaking { key, scanned: 0 };
            }
            State::Handshaking { .. } => {}
            State::Open { endpoint, .. } => {
                endpoint.answer(out.buffer());
                if !self.outgoing.is_empty() && endpoint.is_open() {
                    let mut message = self.outgoing.take();
                    endpoint.wrap(&mut message, out.buffer());
                    out.body(message.into());
                }
            }
        }
    }

    /// Reads the server's handshake response, once it is complete.
    fn read_handshake(&mut self, inbox: &mut BytesMut) -> Result<(), Violation> {
        let State::Handshaking { key, scanned } = &mut self.state else { return Ok(()) };
        let end = head_end(inbox, scanned);
        let limit = self.config.limits.header;
        if end.unwrap_or(inbox.len()) > limit {
            return Err(Violation::new("the response to the WebSocket request is too long"));
        }
        let Some(end) = end else { return Ok(()) };
        let head = inbox.split_to(end);
        handshake::check(&head, key).map_err(Violation::new)?;
        let endpoint = Endpoint::new(Role::Client(self.config.random));
        self.state = State::Open { endpoint, ponged: false, close_reported: false };
        Ok(())
    }

    /// Returns an event of the WebSocket connection itself.
    fn control_event(&mut self, out: &mut Outbox) -> Option<ClientEvent> {
        let State::Open { endpoint, ponged, close_reported } = &mut self.state else { return None };
        if std::mem::take(ponged) {
            return Some(ClientEvent::Alive);
        }
        if endpoint.is_open() || std::mem::replace(close_reported, true) {
            return None;
        }
        endpoint.close(CloseCode::NORMAL, out.buffer());
        Some(ClientEvent::GoAway)
    }

    /// Checks that another call may be buffered until the handshake is complete.
    fn check_capacity(&self) -> Result<(), Status> {
        match self.outgoing.len() < MAX_WAITING {
            true => Ok(()),
            false => {
                Err(Status::resource_exhausted("too much data waits for the end of the WebSocket handshake"))
            }
        }
    }

    /// Runs a command on the inner session, and sends the resulting output.
    fn command<T>(
        &mut self,
        out: &mut Outbox,
        command: impl FnOnce(&mut dyn Session, &mut Outbox) -> T,
    ) -> T {
        let result = command(&mut *self.inner, &mut self.outgoing);
        self.send_inner(out);
        result
    }

    /// Does the same with the streaming of the inner session, if it has any.
    fn streaming_command<T>(
        &mut self,
        out: &mut Outbox,
        command: impl FnOnce(&mut dyn Streaming, &mut Outbox) -> T,
    ) -> Option<T> {
        let result = command(self.inner.streaming()?, &mut self.outgoing);
        self.send_inner(out);
        Some(result)
    }
}

impl Session for Client {
    fn send(&mut self, id: CallId, call: Call<'_>, out: &mut Outbox) -> Result<(), Status> {
        self.check_capacity()?;
        let oneway = call.oneway;
        self.command(out, |inner, out| inner.send(id, call, out))?;
        self.sent_oneway |= oneway;
        Ok(())
    }

    fn failure_hint(&self) -> Option<String> {
        self.inner.failure_hint()
    }

    fn next_event(
        &mut self,
        inbox: &mut BytesMut,
        out: &mut Outbox,
    ) -> Result<Option<ClientEvent>, Violation> {
        self.read_handshake(inbox)?;
        if let State::Open { endpoint, ponged, .. } = &mut self.state {
            *ponged |= endpoint.receive(inbox, &mut self.arrived);
        }
        self.left = inbox.len();
        let event = self.inner.next_event(&mut self.arrived, &mut self.outgoing);
        self.send_inner(out);
        Ok(event?.or_else(|| self.control_event(out)))
    }

    fn cancel(&mut self, id: CallId, out: &mut Outbox) {
        self.command(out, |inner, out| inner.cancel(id, out));
    }

    fn buffered(&self) -> usize {
        self.arrived.len() + self.inner.buffered()
    }

    fn unsent(&self) -> usize {
        self.outgoing.len() + self.inner.unsent()
    }

    fn bytes_needed(&self) -> usize {
        match self.inner.bytes_needed().saturating_sub(self.arrived.len()) {
            0 => 0,
            missing => self.left + missing,
        }
    }

    /// No caller waits for a one-way call: without this, a connection that is to be closed would drop it. Other calls are
    /// awaited, or were given up: for those, nothing need be sent to a server that never answers the handshake.
    fn has_pending_output(&self) -> bool {
        self.sent_oneway && !self.outgoing.is_empty() || self.inner.has_pending_output()
    }

    fn concurrency(&self) -> usize {
        self.inner.concurrency()
    }

    fn is_reusable(&self) -> bool {
        let ends = matches!(&self.state, State::Open { endpoint, .. } if !endpoint.is_open());
        !ends && self.inner.is_reusable()
    }

    fn end_of_stream(&mut self, _inbox: &mut BytesMut) -> Option<ClientEvent> {
        self.inner.end_of_stream(&mut self.arrived)
    }

    /// If the inner protocol has no heartbeat, WebSocket's ping is used.
    fn heartbeat(&mut self, out: &mut Outbox) -> bool {
        if self.command(out, |inner, out| inner.heartbeat(out)) {
            return true;
        }
        let State::Open { endpoint, .. } = &mut self.state else { return false };
        let open = endpoint.is_open();
        if open {
            endpoint.ping(out.buffer());
        }
        open
    }

    #[inline]
    fn streaming(&mut self) -> Option<&mut dyn Streaming> {
        match self.inner.streaming() {
            Some(_) => Some(self),
            None => None,
        }
    }
}

/// Forwards to the streaming of the inner session. Without one this is never called.
impl Streaming for Client {
    fn open(&mut self, id: CallId, call: Call<'_>, out: &mut Outbox) -> Result<(), Status> {
        self.check_capacity()?;
        let opened = self.streaming_command(out, |inner, out| inner.open(id, call, out));
        opened.unwrap_or_else(|| Err(Status::unimplemented("this protocol has no streams")))
    }

    fn send_message(&mut self, id: CallId, message: Bytes, out: &mut Outbox) {
        self.streaming_command(out, |inner, out| inner.send_message(id, message, out));
    }

    fn end(&mut self, id: CallId, out: &mut Outbox) {
        self.streaming_command(out, |inner, out| inner.end(id, out));
    }

    fn half_closes(&mut self) -> bool {
        self.inner.streaming().is_some_and(|inner| inner.half_closes())
    }

    fn close(&mut self, id: CallId, out: &mut Outbox) {
        self.streaming_command(out, |inner, out| inner.close(id, out));
    }

    fn has_room(&mut self, id: CallId) -> bool {
        self.inner.streaming().is_none_or(|inner| inner.has_room(id))
    }

    fn record_consumed(&mut self, id: CallId, bytes: usize, out: &mut Outbox) {
        self.streaming_command(out, |inner, out| inner.record_consumed(id, bytes, out));
    }

    fn blocks_input(&mut self) -> bool {
        self.inner.streaming().is_some_and(|inner| inner.blocks_input())
    }
}

/// Limit of buffered bytes while the handshake response is awaited.
const MAX_WAITING: usize = 4 << 20;

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("config", &self.config)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
