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

/// Sender of a request; the counter counts it while it exists.
pub(crate) type Lease = (SendRequest<Body>, Arc<()>);

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
    under_way: Arc<()>,
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
    pub(crate) async fn lease(&self) -> Result<Lease, BoxError> {
        match self.find() {
            Some(lease) => Ok(lease),
            None => self.connect().await,
        }
    }

    /// Returns the connection with the fewest requests, unless a new one should be made.
    fn find(&self) -> Option<Lease> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|connection| !connection.sender.is_closed());
        let may_add = connections.len() < MAX_CONNECTIONS;
        let least = connections.iter().min_by_key(|connection| Arc::strong_count(&connection.under_way))?;
        let is_full = Arc::strong_count(&least.under_way) > FULL;
        (!is_full || !may_add).then(|| (least.sender.clone(), least.under_way.clone()))
    }

    async fn connect(&self) -> Result<Lease, BoxError> {
        let stream = TokioIo::new(self.connector.connect()?);
        let (sender, connection) = Builder::new(TokioExecutor::new()).handshake(stream).await?;
        // Its failure is seen by the requests on it.
        drop(tokio::spawn(connection));
        let under_way = Arc::new(());
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.push(Connection { sender: sender.clone(), under_way: under_way.clone() });
        Ok((sender, under_way))
    }
}

/// Whether the server is gone.
pub(crate) fn is_gone(error: &BoxError) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::NotConnected)
}
