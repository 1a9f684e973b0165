//! Calls by PolyRPC's clients.

mod methods;
mod streams;

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
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

    /// Makes unary calls, so that connections are open before the run: with each client as many as it is to have.
    /// One-way calls and streams open them during the warm-up: their outcome does not show whether there is a
    /// connection.
    ///
    /// # Errors
    ///
    /// If there is no connection. Other failures are counted during the run.
    pub(crate) async fn open(&self, connections_per_client: usize) -> Result<(), Error> {
        if self.methods.call(0).0.kind != CallKind::Unary {
            return Ok(());
        }
        for client in &self.clients {
            // A pool opens a connection for a call if all others are in use. At most as many are opened at once as
            // there are, so that they do not overflow the server's queue of connections.
            let mut open = 0;
            while open < connections_per_client {
                open = (2 * open).clamp(1, connections_per_client);
                self.call_at_once(client, open).await?;
            }
        }
        Ok(())
    }

    /// Makes calls at the same time.
    async fn call_at_once(&self, client: &Client, count: usize) -> Result<(), Error> {
        let (method, body) = self.methods.call(0);
        let call = |_| client.call_raw(&method.target, body.clone(), method.options.clone());
        let mut calls: FuturesUnordered<_> = (0..count).map(call).collect();
        while let Some(called) = calls.next().await {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use polyrpc::client::{CallOptions, ConnectionMode};
    use polyrpc::codec::Body;
    use polyrpc::{Format, Server};

    use super::*;
    use crate::feed::Order;
    use crate::plan::{Pacing, Plan, RunLength};

    const CALLERS: usize = 20;

    fn plan() -> Plan {
        let method = Method {
            name: "echo".to_owned(),
            target: "echo".to_owned(),
            weight: 1,
            kind: CallKind::Unary,
            messages: [Body::new(Format::MessagePack, &b"\xa5hello"[..])].into(),
            expected: None,
            order: Order::Sequence,
            options: CallOptions::default(),
        };
        Plan {
            client: Arc::new(|| Err("it has no server".to_owned())),
            methods: vec![method],
            pacing: Pacing::Closed { callers: CALLERS, blocking: false },
            warmup: Duration::ZERO,
            length: RunLength::Time(Duration::from_secs(1)),
            connection_mode: ConnectionMode::Pooled,
            connections: CALLERS,
            threads: 1,
            max_in_flight: CALLERS,
            drain_timeout: Duration::from_secs(1),
            seed: 1,
            server: None,
        }
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    fn connections(url: &str) -> Arc<Connections> {
        let client =
            Client::builder(url).connection_mode(ConnectionMode::Pooled).max_idle_connections(CALLERS);
        Connections::new(vec![client.build().unwrap()], Methods::new(&plan()))
    }

    #[test]
    fn connections_of_a_pool_are_open_before_the_run() {
        block_on(async {
            let server = Server::new().function("echo", |text: String| async move { text });
            let server = server.bind("127.0.0.1:0").await.unwrap().start();
            let connections = connections(&format!("rpcx://{}", server.address()));
            connections.open(CALLERS).await.unwrap();
            assert_eq!(server.connection_count(), CALLERS);
        });
    }

    #[test]
    fn server_that_is_nowhere_is_an_error_before_the_run() {
        let error = block_on(connections("rpcx://127.0.0.1:1").open(CALLERS)).unwrap_err();
        assert_eq!(error.status().scope(), Scope::Connection);
    }
}
