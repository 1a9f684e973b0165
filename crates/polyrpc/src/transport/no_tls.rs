//! Replacements of the TLS types in a build without TLS: types without values, so that callers need no `cfg`.

use std::convert::Infallible;
use std::future::Ready;
use std::io;
use std::marker::PhantomData;
use std::task::{Context, Poll};

use bytes::BytesMut;
use polyrpc_core::{Outbox, Status};
use polyrpc_wire::Protocol;

use super::{Inbox, Source};
use crate::call::Peer;

#[derive(Debug, Clone)]
pub(crate) enum Client {}

#[derive(Debug, Clone)]
pub(crate) enum Server {}

#[derive(Debug, Clone)]
pub(crate) enum Connector {}

#[derive(Debug)]
pub(crate) enum Acceptor {}

#[derive(Debug)]
pub(crate) struct Stream<S>(Infallible, PhantomData<S>);

#[derive(Debug)]
pub(crate) struct ReadHalf<R>(Infallible, PhantomData<R>);

#[derive(Debug)]
pub(crate) struct WriteHalf<W>(Infallible, PhantomData<W>);

#[derive(Debug)]
pub(crate) enum Blocking {}

/// Fails: this build has no TLS.
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

    pub(crate) fn is_required(&self) -> bool {
        match *self {}
    }

    pub(crate) fn protocol(&self, _: &[u8]) -> Option<Protocol> {
        match *self {}
    }

    pub(crate) fn watch(&self) -> Ready<()> {
        match *self {}
    }
}

impl<S> Stream<S> {
    pub(crate) fn handshake_bytes(&self) -> usize {
        match self.0 {}
    }

    pub(crate) fn buffered_bytes(&self) -> usize {
        match self.0 {}
    }

    pub(crate) fn break_off(&self) {
        match self.0 {}
    }

    pub(crate) async fn connect(_: S, connector: &Connector) -> io::Result<Self> {
        match *connector {}
    }

    pub(crate) fn accept(_: S, acceptor: &Acceptor, _: &mut Inbox) -> io::Result<Self> {
        match *acceptor {}
    }

    pub(crate) fn poll_handshake(&mut self, _: &mut Context<'_>, _: &mut BytesMut) -> Poll<io::Result<()>> {
        match self.0 {}
    }

    pub(crate) fn poll_close_failed_handshake(&mut self, _: &mut Context<'_>) -> Poll<()> {
        match self.0 {}
    }

    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        match self.0 {}
    }

    pub(crate) fn peer(&self, _: Peer) -> Peer {
        match self.0 {}
    }

    pub(crate) fn poll_flush(&mut self, _: &mut Context<'_>, _: &mut Outbox) -> Poll<io::Result<()>> {
        match self.0 {}
    }

    pub(crate) fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }

    pub(crate) fn split<R, W>(self) -> (ReadHalf<R>, WriteHalf<W>) {
        match self.0 {}
    }
}

impl<S> Source for Stream<S> {
    fn poll_read(&mut self, _: &mut Context<'_>, _: &mut BytesMut) -> Poll<io::Result<usize>> {
        match self.0 {}
    }
}

impl<R> Source for ReadHalf<R> {
    fn poll_read(&mut self, _: &mut Context<'_>, _: &mut BytesMut) -> Poll<io::Result<usize>> {
        match self.0 {}
    }
}

impl<W> WriteHalf<W> {
    pub(crate) fn try_flush(&self, _: &mut Outbox) -> io::Result<()> {
        match self.0 {}
    }

    pub(crate) fn poll_writable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }

    pub(crate) fn close(&self) {
        match self.0 {}
    }
}

/// A blocking socket.
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
