//! Connections within the process, over which requests come to the server.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use polyrpc::server::Connector;

use crate::BoxError;

pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// What sends a request; the counter counts it for as long as it lives.
pub(crate) type Lease = (SendRequest<Body>, Arc<()>);

/// Some connections, made as they are needed.
#[derive(Debug)]
pub(crate) struct Pool {
    connector: Connector,
    connections: Mutex<Vec<Connection>>,
}

#[derive(Debug)]
struct Connection {
    sender: SendRequest<Body>,
    /// What is under way has clones of it.
    under_way: Arc<()>,
}

/// With so many requests under way on each connection a further one is made.
const FULL: usize = 32;

/// No more connections are made; what is more waits for the server's limit of streams on each.
const MOST: usize = 16;

impl Pool {
    pub(crate) fn new(connector: Connector) -> Self {
        Self { connector, connections: Mutex::default() }
    }

    /// What sends the next request.
    pub(crate) async fn lease(&self) -> Result<Lease, BoxError> {
        match self.find() {
            Some(lease) => Ok(lease),
            None => self.connect().await,
        }
    }

    /// The connection that is least busy, unless it should be a new one.
    fn find(&self) -> Option<Lease> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|connection| !connection.sender.is_closed());
        let may_add = connections.len() < MOST;
        let least = connections.iter().min_by_key(|connection| Arc::strong_count(&connection.under_way))?;
        let is_full = Arc::strong_count(&least.under_way) > FULL;
        (!is_full || !may_add).then(|| (least.sender.clone(), least.under_way.clone()))
    }

    async fn connect(&self) -> Result<Lease, BoxError> {
        let stream = TokioIo::new(self.connector.connect()?);
        let (sender, connection) = Builder::new(TokioExecutor::new()).handshake(stream).await?;
        // How it ends is seen by the requests on it.
        drop(tokio::spawn(connection));
        let under_way = Arc::new(());
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.push(Connection { sender: sender.clone(), under_way: under_way.clone() });
        Ok((sender, under_way))
    }
}

/// Whether the server was there.
pub(crate) fn is_gone(error: &BoxError) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::NotConnected)
}
