use std::future::poll_fn;
use std::io;
use std::time::Duration;

use buffa::Message;
use bytes::{Bytes, BytesMut};
use polyrpc_core::session::{Client as Session, ClientEvent};
use polyrpc_core::{Call, Format, Outbox};
use polyrpc_grpc_messages::health::v1::health_check_response::ServingStatus;
use polyrpc_grpc_messages::health::v1::{HealthCheckRequest, HealthCheckResponse};
use tokio::time::{Instant, timeout};

use crate::client::connection::call_slot::{self, CallSlot};
use crate::client::pool::Pool;
use crate::transport::{Source, Stream};

/// Kind of a health check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::client::cluster) enum HealthProbe {
    /// A connection can be established.
    Connect,
    /// The service is serving.
    Grpc(String),
    Heartbeat,
    /// `GET` of this path succeeds.
    Http(String),
}

impl HealthProbe {
    /// Checks a server over this connection.
    ///
    /// # Errors
    ///
    /// The reason why it is unhealthy.
    pub(in crate::client::cluster) async fn run(
        &self,
        pool: &Pool,
        slot: &CallSlot,
        time_limit: Duration,
    ) -> io::Result<()> {
        let asking = async {
            match self {
                Self::Connect => Ok(()),
                Self::Grpc(service) => check(slot, service, time_limit).await,
                Self::Heartbeat => match pool.connect_detached().await? {
                    (stream, Some(session)) => heartbeat(stream, session).await,
                    (_, None) => Ok(()),
                },
                Self::Http(path) => {
                    let (host, (stream, _)) = (pool.authority(), pool.connect_detached().await?);
                    check_http(stream, &host, path).await
                }
            }
        };
        timeout(time_limit, asking).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// grpc `doc/health-checking.md`, "Service Definition".
async fn check(slot: &CallSlot, service: &str, timeout: Duration) -> io::Result<()> {
    let request = HealthCheckRequest { service: service.to_owned(), ..HealthCheckRequest::default() };
    let body = Bytes::from(request.encode_to_vec());
    let call = Call::new("grpc.health.v1.Health", "Check", Format::Protobuf, body);
    let deadline = Instant::now().into_std().checked_add(timeout);
    let mut call = Some(Call { timeout: Some(timeout), ..call });
    let reply = call_slot::call(slot, &mut call, deadline).await.map_err(io::Error::other)?;
    let reply = reply.ok_or(io::ErrorKind::UnexpectedEof)?.result.map_err(io::Error::other)?;
    let answer = HealthCheckResponse::decode(&mut &*reply).map_err(io::Error::other)?;
    match answer.status == ServingStatus::SERVING {
        true => Ok(()),
        false => Err(io::Error::other(format!("the server reports the status {:?}", answer.status))),
    }
}

/// Sends the protocol's own heartbeat.
async fn heartbeat(mut stream: Stream, mut session: Box<dyn Session + Send>) -> io::Result<()> {
    let mut out = Outbox::new();
    if !session.heartbeat(&mut out) {
        return Ok(());
    }
    poll_fn(|cx| stream.poll_flush(cx, &mut out)).await?;
    let mut inbox = BytesMut::with_capacity(MAX_RESPONSE_SIZE);
    loop {
        read(&mut stream, &mut inbox).await?;
        // Other events do not matter.
        while let Some(answer) = session.next_event(&mut inbox, &mut out).map_err(io::Error::other)? {
            if matches!(answer, ClientEvent::Alive) {
                return Ok(());
            }
        }
        poll_fn(|cx| stream.poll_flush(cx, &mut out)).await?;
    }
}

async fn check_http(mut stream: Stream, host: &str, path: &str) -> io::Result<()> {
    let mut out = Outbox::new();
    out.extend_from_slice(
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes(),
    );
    poll_fn(|cx| stream.poll_flush(cx, &mut out)).await?;
    let mut head = BytesMut::with_capacity(MAX_RESPONSE_SIZE);
    while !head.contains(&b'\n') {
        read(&mut stream, &mut head).await?;
    }
    match *head {
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', _, b' ', b'2', _, _, ..] => Ok(()),
        _ => {
            let line = (*head).split(|&byte| byte == b'\n').next().unwrap_or_default();
            Err(io::Error::other(format!("GET {path}: {}", String::from_utf8_lossy(line.trim_ascii_end()))))
        }
    }
}

async fn read(stream: &mut Stream, inbox: &mut BytesMut) -> io::Result<()> {
    // The answer is limited to the buffer.
    if inbox.len() >= MAX_RESPONSE_SIZE {
        return Err(io::Error::other("the response is too long"));
    }
    inbox.reserve(MAX_RESPONSE_SIZE - inbox.len());
    match poll_fn(|cx| stream.poll_read(cx, inbox)).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// Limit of the answer, in bytes.
const MAX_RESPONSE_SIZE: usize = 1024;
