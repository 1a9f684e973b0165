//! Calls by PolyRPC's clients.

mod methods;
mod streams;

use std::sync::Arc;

use polyrpc::{Client, Error, Scope, Status};

pub(crate) use self::methods::Methods;
use self::streams::OpenStreams;
use crate::engine::call_error::CallError;
use crate::plan::{CallKind, Method};

/// Clients of one thread, and the methods that they call.
pub(crate) struct Connections {
    clients: Vec<Client>,
    methods: Arc<Methods>,
    streams: OpenStreams,
}

impl Connections {
    pub(crate) fn new(clients: Vec<Client>, methods: Arc<Methods>) -> Arc<Self> {
        Arc::new(Self { clients, methods, streams: OpenStreams::default() })
    }

    /// Makes one unary call with each client, so that connections are open before the run. One-way calls and streams
    /// open them during the warm-up: their outcome does not show whether there is a connection.
    ///
    /// # Errors
    ///
    /// If there is no connection. Other failures are counted during the run.
    pub(crate) async fn open(&self) -> Result<(), Error> {
        let (method, body) = self.methods.call(0);
        if method.kind != CallKind::Unary {
            return Ok(());
        }
        for client in &self.clients {
            let called = client.call_raw(&method.target, body.clone(), method.options.clone()).await;
            if let Err(error) = called
                && error.status().scope() == Scope::Connection
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Makes call number `index` for caller `slot`.
    pub(crate) async fn call(self: Arc<Self>, index: u64, slot: u32) -> Result<(), Box<CallError>> {
        let (method, body) = self.methods.call(index);
        let client = &self.clients[slot as usize % self.clients.len()];
        let called = match method.kind {
            CallKind::Unary | CallKind::Oneway => {
                let called = client.call_raw(&method.target, body.clone(), method.options.clone()).await;
                match called {
                    Ok(response) => return method.check(&response.message.bytes).map_err(Box::new),
                    Err(error) => Err(error),
                }
            }
            // Boxed, so that unary calls do not pay for the size.
            _ => Box::pin(self.streams.call(client, method, body, slot)).await,
        };
        called.map_err(|error| Box::new(call_error(error.status())))
    }
}

impl Method {
    /// Compares a reply with the expected one.
    pub(crate) fn check(&self, reply: &[u8]) -> Result<(), CallError> {
        match &self.expected {
            Some(expected) if self.kind == CallKind::Unary && **expected != *reply => {
                Err(wrong_reply(expected, reply))
            }
            _ => Ok(()),
        }
    }
}

#[cold]
fn wrong_reply(expected: &[u8], reply: &[u8]) -> CallError {
    let reason = match expected.len() == reply.len() {
        true => "the reply has other bytes than expected".to_owned(),
        false => format!("the reply has {} bytes instead of {}", reply.len(), expected.len()),
    };
    CallError { name: WRONG_REPLY.to_owned(), reason, is_lost: false }
}

/// Name under which wrong replies are counted.
pub(crate) const WRONG_REPLY: &str = "wrong reply";

/// Converts an error to the form in which it is counted.
#[cold]
pub(crate) fn call_error(status: &Status) -> CallError {
    let name = match status.number() {
        Some(number) => format!("{} ({number})", status.code()),
        None => status.code().to_string(),
    };
    CallError { name, reason: status.to_string(), is_lost: status.scope() == Scope::Connection }
}
