//! In-process connections over which requests reach the server.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use polyrpc::server::Connector;

use crate::BoxError;

pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Sender of a request, and the counter of its connection, which counts the request while it is held.
pub(crate) type PooledSender = (SendRequest<Body>, Arc<()>);

/// Connections that are established on demand.
#[derive(Debug)]
pub(crate) struct Pool {
    connector: Connector,
    connections: Mutex<Vec<Connection>>,
}

#[derive(Debug)]
struct Connection {
    sender: SendRequest<Body>,
    /// Counter: each request in flight holds a clone.
    in_flight: Arc<()>,
}

/// Number of requests in flight per connection from which a further one is made.
const FULL: usize = 32;

/// Maximum number of connections; beyond it, requests wait for the server's stream limit.
const MAX_CONNECTIONS: usize = 16;

impl Pool {
    pub(crate) fn new(connector: Connector) -> Self {
        Self { connector, connections: Mutex::default() }
    }

    /// Returns the sender of the next request.
    pub(crate) async fn acquire(&self) -> Result<PooledSender, BoxError> {
        match self.find() {
            Some(sender) => Ok(sender),
            None => self.connect().await,
        }
    }

    /// Returns the connection with the fewest requests, unless a new one should be made.
    fn find(&self) -> Option<PooledSender> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|connection| !connection.sender.is_closed());
        let may_add = connections.len() < MAX_CONNECTIONS;
        let least = connections.iter().min_by_key(|connection| Arc::strong_count(&connection.in_flight))?;
        let is_full = Arc::strong_count(&least.in_flight) > FULL;
        (!is_full || !may_add).then(|| (least.sender.clone(), least.in_flight.clone()))
    }

    async fn connect(&self) -> Result<PooledSender, BoxError> {
        let stream = TokioIo::new(self.connector.connect()?);
        let (sender, connection) = Builder::new(TokioExecutor::new()).handshake(stream).await?;
        // Its failure is seen by the requests on it.
        drop(tokio::spawn(connection));
        let in_flight = Arc::new(());
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.push(Connection { sender: sender.clone(), in_flight: in_flight.clone() });
        Ok((sender, in_flight))
    }
}

/// Whether the server is gone.
pub(crate) fn is_gone(error: &BoxError) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::NotConnected)
}
