use std::time::Duration;

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::Client as _;
use polyrpc_core::session::Server as _;
use polyrpc_core::session::client::Streaming as _;
use polyrpc_core::session::server::{Housekeeping as _, Streaming as _, Ticket as _};
use polyrpc_core::session::{ClientEvent, ServerEvent};
use polyrpc_core::testing::{Pair, sole_reply};
use polyrpc_core::{
    Call, CallId, Code, Compression, Format, Head, Metadata, Outbox, Reply, Status, StreamId,
};

use super::*;
use crate::grpc::{Client, ClientConfig};

mod browser;
mod clocks;
mod http;
mod limits;
mod malformed_responses;
mod streams;
mod unary;
mod web;

fn client() -> Client {
    Client::new(ClientConfig {
        limits: Default::default(),
        http: Default::default(),
        authority: "localhost".into(),
        tls: false,
        web: false,
        credential: None,
        framing: None,
    })
}

fn server() -> Server {
    Server::new(Default::default())
}

fn call(body: &'static [u8]) -> Call<'static> {
    Call::new("example.EchoService", "Echo", Format::Protobuf, Bytes::from_static(body))
}

fn echo(call: &Call<'_>) -> Reply {
    let head = Head { metadata: call.head.metadata.clone(), ..Head::default() };
    Reply::new(Ok(call.body.clone()), head)
}
