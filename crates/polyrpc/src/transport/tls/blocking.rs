use std::{io, mem};

use polyrpc_core::Outbox;

use super::session::Session;
use super::{Connector, failure};

/// TLS over a socket that the calling thread itself reads and writes.
pub(crate) struct Blocking {
    session: Session,
    /// Records that have not been decrypted yet.
    incoming: Vec<u8>,
    /// Bytes that were read while a write was pending.
    ahead: Vec<u8>,
}

/// A blocking socket.
pub(crate) trait Socket {
    /// Writes once.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Appends what has arrived to `into`, within its free capacity; 0 at the end of the stream.
    fn receive(&mut self, into: &mut Vec<u8>) -> io::Result<usize>;
}

impl Blocking {
    /// Does the handshake. `hurry` is called before each wait, and fails when the time is over.
    pub(crate) fn connect<S: Socket>(
        connector: &Connector,
        socket: &mut S,
        mut expedite: impl FnMut(&mut S) -> io::Result<()>,
    ) -> io::Result<Self> {
        if connector.current().is_due() {
            connector.current().refresh();
        }
        let session = connector.session()?;
        let mut tls = Self { session, incoming: Vec::new(), ahead: Vec::new() };
        let mut received = 0;
        loop {
            expedite(socket)?;
            let opened = tls.open(Target::Ahead);
            tls.write_own(socket)?;
            opened?;
            if !tls.session.is_handshaking() {
                return Ok(tls);
            }
            match tls.receive_records(socket) {
                Ok(0) => return Err(failure::cut_off(received)),
                Ok(bytes) => received += bytes,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(failure::cut_off(received));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes once from `out`.
    pub(crate) fn write(&mut self, socket: &mut impl Socket, out: &mut Outbox) -> io::Result<()> {
        while !self.session.seal(out)? {
            // A message of the peer must be complete first.
            if self.receive_records(socket)? == 0 {
                return Err(failure::truncated());
            }
            self.open(Target::Ahead)?;
        }
        match socket.write(self.session.outgoing())? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            written => {
                self.session.advance(written, out);
                Ok(())
            }
        }
    }

    /// Appends plaintext to `into`; 0 after the peer's close_notify.
    pub(crate) fn receive(&mut self, socket: &mut impl Socket, into: &mut Vec<u8>) -> io::Result<usize> {
        if !self.ahead.is_empty() {
            let ahead = mem::take(&mut self.ahead);
            into.extend_from_slice(&ahead);
            return Ok(ahead.len());
        }
        loop {
            let plain = self.open(Target::Into(into))?;
            if plain > 0 || self.session.peer_closed() {
                return Ok(plain);
            }
            if self.receive_records(socket)? == 0 {
                return Err(failure::truncated());
            }
        }
    }

    /// Sends the close_notify, if that is possible at once: `send` does not wait.
    pub(crate) fn close(&mut self, send: impl FnOnce(&[u8])) {
        self.session.close();
        if self.session.has_pending_records() {
            send(self.session.outgoing());
        }
    }

    /// Returns whether all received bytes were consumed.
    pub(crate) fn is_empty(&self) -> bool {
        self.incoming.is_empty() && self.ahead.is_empty()
    }

    fn open(&mut self, target: Target<'_>) -> io::Result<usize> {
        let plain = match target {
            Target::Ahead => &mut self.ahead,
            Target::Into(into) => into,
        };
        let room = plain.capacity() - plain.len();
        let opened = self.session.open(&mut self.incoming, plain, room)?;
        self.incoming.drain(..opened.discard);
        Ok(opened.plain)
    }

    fn receive_records(&mut self, socket: &mut impl Socket) -> io::Result<usize> {
        self.incoming.reserve(READ_SIZE);
        socket.receive(&mut self.incoming)
    }

    fn write_own(&mut self, socket: &mut impl Socket) -> io::Result<()> {
        while self.session.has_pending_records() {
            match socket.write(self.session.outgoing())? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => self.session.advance_own(written),
            }
        }
        Ok(())
    }
}

/// Where plaintext is appended.
enum Target<'a> {
    Ahead,
    Into(&'a mut Vec<u8>),
}

/// Room for one read: a record of full length.
const READ_SIZE: usize = 17 << 10;
