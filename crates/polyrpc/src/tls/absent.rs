//! What stands in for TLS in a build without it: types that have no value, so that nobody need ask.

use std::future::Ready;
use std::io;
use std::task::{Context, Poll};

use bytes::BytesMut;
use polyrpc_core::{Outbox, Protocol, Status};

use crate::call::Peer;
use crate::net::{self, Inbox, Source};

#[derive(Debug, Clone)]
pub(crate) enum Client {}

#[derive(Debug, Clone)]
pub(crate) enum Server {}

#[derive(Debug, Clone)]
pub(crate) enum Connector {}

#[derive(Debug)]
pub(crate) enum Acceptor {}

#[derive(Debug)]
pub(crate) enum Stream {}

#[derive(Debug)]
pub(crate) enum ReadHalf {}

#[derive(Debug)]
pub(crate) enum WriteHalf {}

#[derive(Debug)]
pub(crate) enum Blocking {}

/// Fails: there is nothing to connect with.
pub(crate) fn connector(_: Option<&Client>, _: Protocol, _: &str) -> Result<Connector, Status> {
    Err(Status::unimplemented("this program was built without TLS (polyrpc's feature `tls`)"))
}

impl Acceptor {
    pub(crate) fn new(server: Server, _: &[Protocol]) -> Self {
        match server {}
    }

    pub(crate) fn recognise(&self, _: &[u8]) -> Option<bool> {
        match *self {}
    }

    pub(crate) fn required(&self) -> bool {
        match *self {}
    }

    pub(crate) fn protocol(&self, _: &[u8]) -> Option<Protocol> {
        match *self {}
    }

    pub(crate) fn watch(&self) -> Ready<()> {
        match *self {}
    }
}

impl Stream {
    pub(crate) fn held(&self) -> usize {
        match *self {}
    }

    pub(crate) fn break_off(&self) {
        match *self {}
    }

    pub(crate) async fn connect(_: net::Stream, connector: &Connector) -> io::Result<Self> {
        match *connector {}
    }

    pub(crate) fn accept(_: net::Stream, acceptor: &Acceptor, _: &mut Inbox) -> io::Result<Self> {
        match *acceptor {}
    }

    pub(crate) fn poll_handshake(&mut self, _: &mut Context<'_>, _: &mut BytesMut) -> Poll<io::Result<()>> {
        match *self {}
    }

    pub(crate) fn poll_farewell(&mut self, _: &mut Context<'_>) -> Poll<()> {
        match *self {}
    }

    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        match *self {}
    }

    pub(crate) fn peer(&self, _: Peer) -> Peer {
        match *self {}
    }

    pub(crate) fn poll_flush(&mut self, _: &mut Context<'_>, _: &mut Outbox) -> Poll<io::Result<()>> {
        match *self {}
    }

    pub(crate) fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }

    #[allow(unreachable_code, reason = "as all that follows from what there is none of")]
    pub(crate) fn split(self) -> (net::ReadHalf, net::WriteHalf) {
        let (read, write): (ReadHalf, WriteHalf) = match self {};
        (net::ReadHalf::Tls(Box::new(read)), net::WriteHalf::Tls(Box::new(write)))
    }
}

impl Source for Stream {
    fn poll_read(&mut self, _: &mut Context<'_>, _: &mut BytesMut) -> Poll<io::Result<usize>> {
        match *self {}
    }
}

impl Source for ReadHalf {
    fn poll_read(&mut self, _: &mut Context<'_>, _: &mut BytesMut) -> Poll<io::Result<usize>> {
        match *self {}
    }
}

impl WriteHalf {
    pub(crate) fn try_flush(&self, _: &mut Outbox) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn poll_writable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }

    pub(crate) fn close(&self) {
        match *self {}
    }
}

/// A socket that waits.
pub(crate) trait Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    fn receive(&mut self, into: &mut Vec<u8>) -> io::Result<usize>;
}

impl Blocking {
    pub(crate) fn connect<S: Socket>(
        connector: &Connector,
        _: &mut S,
        _: impl FnMut(&mut S) -> io::Result<()>,
    ) -> io::Result<Self> {
        match *connector {}
    }

    pub(crate) fn write(&mut self, _: &mut impl Socket, _: &mut Outbox) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn receive(&mut self, _: &mut impl Socket, _: &mut Vec<u8>) -> io::Result<usize> {
        match *self {}
    }

    pub(crate) fn close(&mut self, _: impl FnOnce(&[u8])) {
        match *self {}
    }

    pub(crate) fn is_empty(&self) -> bool {
        match *self {}
    }
}
