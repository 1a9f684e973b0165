//! A client and a server without sockets.

use bytes::BytesMut;

use crate::session::{Client, ClientEvent, Server, ServerEvent};
use crate::{Call, CallId, Outbox, Reply};

use crate::testing::describe_event;

/// A client and a server session of one protocol, connected without sockets.
#[derive(Debug)]
pub struct Pair<C, S> {
    /// The client's session.
    pub client: C,
    /// The server's session.
    pub server: S,
    to_server: BytesMut,
    to_client: BytesMut,
    client_out: Outbox,
    server_out: Outbox,
}

impl<C: Client, S: Server> Pair<C, S> {
    /// Connects two sessions.
    pub fn new(client: C, server: S) -> Self {
        Self {
            client,
            server,
            to_server: BytesMut::new(),
            to_client: BytesMut::new(),
            client_out: Outbox::new(),
            server_out: Outbox::new(),
        }
    }

    /// Sends a call, lets `handler` answer received calls, and returns every response that the client receives.
    ///
    /// # Panics
    ///
    /// If a side reports a violation.
    pub fn call(
        &mut self,
        id: CallId,
        call: &Call<'_>,
        mut handler: impl FnMut(&Call<'_>) -> Reply,
    ) -> Vec<ClientEvent> {
        self.call_with_ticket(id, call, |call, _| handler(call))
    }

    /// Does the same for a handler that uses the ticket.
    ///
    /// # Panics
    ///
    /// If a side reports a violation.
    pub fn call_with_ticket(
        &mut self,
        id: CallId,
        call: &Call<'_>,
        mut handler: impl FnMut(&Call<'_>, &S::Ticket) -> Reply,
    ) -> Vec<ClientEvent> {
        self.client.send(id, call.clone(), &mut self.client_out).expect("the protocol can express the call");
        self.to_server.extend_from_slice(&self.client_out.take());
        loop {
            let event = self.server.next_event(&mut self.to_server, &mut self.server_out);
            match event.expect("the server accepts the client's bytes") {
                Some(ServerEvent::Call(call, ticket)) => {
                    let reply = handler(&call, &ticket);
                    drop(call);
                    self.server.reply(ticket, reply, &mut self.server_out);
                }
                Some(
                    ServerEvent::Foreign
                    | ServerEvent::Connect
                    | ServerEvent::Upgrade(_)
                    | ServerEvent::WebSocket,
                ) => {
                    panic!("the server detected another protocol")
                }
                Some(_) => panic!("a unary call arrives as a unary call"),
                None => break,
            }
        }
        self.to_client.extend_from_slice(&self.server_out.take());
        self.answers()
    }

    /// Returns the client's session and its outbox, for a test that sends commands itself.
    pub fn client_parts(&mut self) -> (&mut C, &mut Outbox) {
        (&mut self.client, &mut self.client_out)
    }

    /// Delivers the client's bytes to the server without answering; returns the server's events as text.
    ///
    /// # Panics
    ///
    /// If the server reports a violation.
    pub fn deliver(&mut self) -> Vec<String> {
        self.to_server.extend_from_slice(&self.client_out.take());
        let mut recorded = Vec::new();
        while let Some(event) = self
            .server
            .next_event(&mut self.to_server, &mut self.server_out)
            .expect("the server accepts the client's bytes")
        {
            recorded.push(describe_event(&event));
        }
        self.to_client.extend_from_slice(&self.server_out.take());
        recorded
    }

    /// Returns the client's events from its inbox.
    ///
    /// # Panics
    ///
    /// If the client reports a violation.
    pub fn answers(&mut self) -> Vec<ClientEvent> {
        let mut answers = Vec::new();
        while let Some(answer) = self
            .client
            .next_event(&mut self.to_client, &mut self.client_out)
            .expect("the client accepts the server's bytes")
        {
            answers.push(answer);
        }
        answers
    }
}

/// Returns the only response among `answers`, which must be a reply.
///
/// # Panics
///
/// If there is not exactly one.
pub fn sole_reply(answers: Vec<ClientEvent>) -> (CallId, Reply) {
    match <[ClientEvent; 1]>::try_from(answers) {
        Ok([ClientEvent::Reply(id, reply)]) => (id, reply),
        other => panic!("expected one reply, got {other:?}"),
    }
}
