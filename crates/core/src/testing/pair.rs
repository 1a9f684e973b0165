//! A client and a server without sockets.

use bytes::BytesMut;

use crate::session::{Client, ClientEvent, Server, ServerEvent};
use crate::{Call, CallId, Outbox, Reply};

use crate::testing::tell_part;

/// A client and a server of one protocol joined without sockets.
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
    /// Joins two sessions.
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

    /// Sends a call, lets `handler` answer what arrives, and returns every answer the client finds.
    ///
    /// # Panics
    ///
    /// When a side cannot understand the other.
    pub fn call(
        &mut self,
        id: CallId,
        call: &Call<'_>,
        mut handler: impl FnMut(&Call<'_>) -> Reply,
    ) -> Vec<ClientEvent> {
        self.client.send(id, call.clone(), &mut self.client_out).expect("the protocol can express the call");
        self.to_server.extend_from_slice(&self.client_out.take());
        loop {
            let event = self.server.next_event(&mut self.to_server, &mut self.server_out);
            match event.expect("the server understands the client") {
                Some(ServerEvent::Call(call, ticket)) => {
                    let reply = handler(&call);
                    drop(call);
                    self.server.reply(ticket, reply, &mut self.server_out);
                }
                Some(
                    ServerEvent::Foreign
                    | ServerEvent::Connect
                    | ServerEvent::Upgrade(_)
                    | ServerEvent::WebSocket,
                ) => {
                    panic!("the server takes the client for another protocol")
                }
                Some(_) => panic!("a unary call arrives as one"),
                None => break,
            }
        }
        self.to_client.extend_from_slice(&self.server_out.take());
        self.answers()
    }

    /// Where the client's bytes wait to be sent, for a test that gives commands of its own.
    pub fn client_parts(&mut self) -> (&mut C, &mut Outbox) {
        (&mut self.client, &mut self.client_out)
    }

    /// Lets the server hear what the client sent, without answering; what it finds, as text.
    ///
    /// # Panics
    ///
    /// When it cannot understand the client.
    pub fn heard(&mut self) -> Vec<String> {
        self.to_server.extend_from_slice(&self.client_out.take());
        let mut heard = Vec::new();
        while let Some(event) = self
            .server
            .next_event(&mut self.to_server, &mut self.server_out)
            .expect("the server understands the client")
        {
            heard.push(tell_part(&event));
        }
        self.to_client.extend_from_slice(&self.server_out.take());
        heard
    }

    /// What the client finds in its inbox.
    ///
    /// # Panics
    ///
    /// When it cannot understand the server.
    pub fn answers(&mut self) -> Vec<ClientEvent> {
        let mut answers = Vec::new();
        while let Some(answer) = self
            .client
            .next_event(&mut self.to_client, &mut self.client_out)
            .expect("the client understands the server")
        {
            answers.push(answer);
        }
        answers
    }
}

/// The only answer among `answers`, which must be a reply.
///
/// # Panics
///
/// When there is not exactly one.
pub fn sole_reply(answers: Vec<ClientEvent>) -> (CallId, Reply) {
    match <[ClientEvent; 1]>::try_from(answers) {
        Ok([ClientEvent::Reply(id, reply)]) => (id, reply),
        other => panic!("want one reply, got {other:?}"),
    }
}
