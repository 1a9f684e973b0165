use std::io::{self, IoSlice};
use std::ops::Deref;
use std::sync::Arc;

use bytes::{BufMut, Bytes};
use polyrpc_core::Outbox;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{ClientConfig, CommonState, Error, ProtocolVersion, ServerConfig};

use super::failure;
use super::outgoing::{Outgoing, RECORD};

/// One end of a TLS connection, without its socket.
///
/// Records go in by [`open`](Self::open), in the caller's buffer, where they are decrypted in place; what they carry is
/// appended to a buffer of the caller's. Plaintext goes in by [`seal`](Self::seal), out of an [`Outbox`]; records
/// come out in `outgoing`. Plaintext stays in the outbox until the last of its records has left: so whoever asks the
/// outbox how much the peer has yet to take gets a true answer, and a full socket needs no memory of ours.
pub(super) struct Session {
    end: End,
    outgoing: Outgoing,
    /// How many bytes at the front of the outbox are in `outgoing` already.
    covered: usize,
    /// The caller's buffer begins with a part of a message of the handshake. Until the rest is here, rustls goes by
    /// places in that buffer and must not be asked without it.
    fragment: bool,
    /// Something of TLS's own was put into `outgoing`, and rustls was not told yet that it counts as sent.
    unsettled: bool,
    /// The peer has said that it sends no more.
    peer_closed: bool,
}

enum End {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// What [`Session::open`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Opened {
    /// So many bytes of the incoming ones are done with.
    pub(super) discard: usize,
    /// So many bytes of plaintext were appended.
    pub(super) plain: usize,
}

impl Session {
    pub(super) fn client(config: Arc<ClientConfig>, name: ServerName<'static>) -> io::Result<Self> {
        UnbufferedClientConnection::new(config, name)
            .map(|end| Self::new(End::Client(end)))
            .map_err(io::Error::other)
    }

    pub(super) fn server(config: Arc<ServerConfig>) -> io::Result<Self> {
        UnbufferedServerConnection::new(config)
            .map(|end| Self::new(End::Server(end)))
            .map_err(io::Error::other)
    }

    fn new(end: End) -> Self {
        Self {
            end,
            outgoing: Outgoing::default(),
            covered: 0,
            fragment: false,
            unsettled: false,
            peer_closed: false,
        }
    }

    /// Decrypts records until there is no whole one any more, or `room` bytes were appended to `plain`, give or take
    /// a record.
    ///
    /// # Errors
    ///
    /// When the peer cannot be talked to. What it shall be told of that is in `outgoing`.
    pub(super) fn open(
        &mut self,
        incoming: &mut [u8],
        plain: &mut impl BufMut,
        room: usize,
    ) -> io::Result<Opened> {
        let mut opened = Opened { discard: 0, plain: 0 };
        self.fragment = false;
        while opened.plain < room.max(1) && !self.peer_closed {
            let step = self.step(&mut incoming[opened.discard..], plain);
            opened.discard += step.discard;
            match step.did {
                Ok(Did::Read(bytes)) => opened.plain += bytes,
                Ok(Did::Encoded | Did::Sent) => {}
                Ok(Did::Nothing) => {
                    // A whole record that is kept for later can only be of a message that goes on in the next.
                    let kept = &incoming[opened.discard..];
                    self.fragment = record_length(kept).is_some_and(|length| length <= kept.len());
                    break;
                }
                Ok(Did::End) => self.peer_closed = true,
                Err(error) => return Err(self.fail(&error)),
            }
        }
        Ok(opened)
    }

    /// Encrypts what is at the front of `out`, as much as is worth one write. Returns whether there are records to be
    /// written now.
    ///
    /// # Errors
    ///
    /// When nothing more may be sent.
    pub(super) fn seal(&mut self, out: &Outbox) -> io::Result<bool> {
        if self.outgoing.is_empty() && !out.is_empty() && !self.fragment {
            self.settle();
            let mut slices = [IoSlice::new(&[]); PIECES];
            let filled = out.slices(&mut slices);
            self.covered = match &mut self.end {
                End::Client(end) => {
                    seal(end.process_tls_records(&mut []), &slices[..filled], &mut self.outgoing)
                }
                End::Server(end) => {
                    seal(end.process_tls_records(&mut []), &slices[..filled], &mut self.outgoing)
                }
            }?;
        }
        Ok(!self.outgoing.is_empty())
    }

    /// Says that nothing more will be sent.
    pub(super) fn close(&mut self) {
        if self.fragment {
            return;
        }
        self.settle();
        match &mut self.end {
            End::Client(end) => say_good_bye(end.process_tls_records(&mut []), &mut self.outgoing),
            End::Server(end) => say_good_bye(end.process_tls_records(&mut []), &mut self.outgoing),
        }
    }

    /// Records that are to be written.
    pub(super) fn outgoing(&self) -> &[u8] {
        self.outgoing.bytes()
    }

    /// So many bytes of records were written. The plaintext in them leaves `out` with the last of them.
    pub(super) fn advance(&mut self, bytes: usize, out: &mut Outbox) {
        self.advance_own(bytes);
        if self.outgoing.is_empty() {
            out.advance(std::mem::take(&mut self.covered));
        }
    }

    /// As [`advance`](Self::advance), where none of the records holds anything of an outbox.
    pub(super) fn advance_own(&mut self, bytes: usize) {
        self.outgoing.advance(bytes);
    }

    /// Whether there are records to be written that TLS itself has to say.
    pub(super) fn owes(&self) -> bool {
        !self.outgoing.is_empty() && self.covered == 0
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.state().is_handshaking()
    }

    pub(super) fn is_server(&self) -> bool {
        matches!(self.end, End::Server(_))
    }

    pub(super) fn peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// The protocol that was settled on in the handshake, if one was.
    pub(super) fn alpn(&self) -> Option<&[u8]> {
        self.state().alpn_protocol()
    }

    /// The certificate that the peer has shown, and those behind it.
    pub(super) fn certificates(&self) -> Vec<Bytes> {
        let certificates = self.state().peer_certificates().unwrap_or_default();
        certificates.iter().map(|certificate| Bytes::copy_from_slice(certificate)).collect()
    }

    pub(super) fn version(&self) -> &'static str {
        match self.state().protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "TLS 1.2",
            _ => "TLS 1.3",
        }
    }

    fn state(&self) -> &CommonState {
        match &self.end {
            End::Client(end) => end.deref(),
            End::Server(end) => end.deref(),
        }
    }

    /// Tells rustls that what it had to say itself counts as sent, without which it does not encrypt.
    fn settle(&mut self) {
        while self.unsettled
            && matches!(self.step(&mut [], &mut Vec::new()).did, Ok(Did::Encoded | Did::Sent))
        {}
    }

    /// Puts the alert that tells the peer what was wrong into `outgoing`.
    #[cold]
    fn fail(&mut self, error: &Error) -> io::Error {
        // More than to encode what rustls has in store must not be asked of it now.
        while self.state().wants_write() && self.step(&mut [], &mut Vec::new()).did.is_ok() {}
        failure::explain(error, self.is_handshaking(), !self.is_server())
    }

    fn step(&mut self, incoming: &mut [u8], plain: &mut impl BufMut) -> Step {
        let step = match &mut self.end {
            End::Client(end) => step(end.process_tls_records(incoming), &mut self.outgoing, plain),
            End::Server(end) => step(end.process_tls_records(incoming), &mut self.outgoing, plain),
        };
        match step.did {
            Ok(Did::Encoded) => self.unsettled = true,
            Ok(Did::Sent) => self.unsettled = false,
            _ => {}
        }
        step
    }
}

/// How long the record is that these bytes begin, if that can be told.
pub(super) fn record_length(bytes: &[u8]) -> Option<usize> {
    let [_, _, _, high, low, ..] = *bytes else { return None };
    Some(HEADER + usize::from(u16::from_be_bytes([high, low])))
}

/// What one look at the incoming bytes led to.
struct Step {
    discard: usize,
    did: Result<Did, Error>,
}

enum Did {
    /// So many bytes of plaintext were appended.
    Read(usize),
    /// Something of TLS's own was put into `outgoing`.
    Encoded,
    /// That counts as sent.
    Sent,
    /// More bytes are needed.
    Nothing,
    /// The peer sends no more.
    End,
}

fn step<D>(status: UnbufferedStatus<'_, '_, D>, outgoing: &mut Outgoing, plain: &mut impl BufMut) -> Step {
    let mut discard = status.discard;
    let did = status.state.and_then(|state| match state {
        ConnectionState::ReadTraffic(mut traffic) => {
            let mut bytes = 0;
            while let Some(record) = traffic.next_record() {
                let record = record?;
                plain.put_slice(record.payload);
                discard += record.discard;
                bytes += record.payload.len();
            }
            Ok(Did::Read(bytes))
        }
        ConnectionState::EncodeTlsData(data) => {
            encode(data, outgoing);
            Ok(Did::Encoded)
        }
        // What is in `outgoing` leaves in order, so that it is as good as sent.
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok(Did::Sent)
        }
        ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) => Ok(Did::Nothing),
        ConnectionState::PeerClosed | ConnectionState::Closed => Ok(Did::End),
        // Early data is offered by neither end.
        _ => Err(Error::HandshakeNotComplete),
    });
    Step { discard, did }
}

fn encode<D>(mut data: EncodeTlsData<'_, D>, outgoing: &mut Outgoing) {
    loop {
        match data.encode(outgoing.room()) {
            Ok(bytes) => return outgoing.fill(bytes),
            Err(EncodeError::InsufficientSize(error)) => outgoing.reserve(error.required_size),
            Err(EncodeError::AlreadyEncoded) => return,
        }
    }
}

/// Encrypts as much as there is room for; returns how many bytes of plaintext that were.
fn seal<D>(
    status: UnbufferedStatus<'_, '_, D>,
    slices: &[IoSlice<'_>],
    outgoing: &mut Outgoing,
) -> io::Result<usize> {
    let Ok(ConnectionState::WriteTraffic(mut traffic)) = status.state else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let mut covered = 0;
    for piece in slices.iter().flat_map(|slice| slice.chunks(RECORD)) {
        match traffic.encrypt(piece, outgoing.room()) {
            Ok(bytes) => outgoing.fill(bytes),
            Err(EncryptError::InsufficientSize(_)) if covered > 0 => break,
            Err(EncryptError::InsufficientSize(error)) => {
                outgoing.reserve(error.required_size);
                let sealed = traffic.encrypt(piece, outgoing.room()).map_err(io::Error::other)?;
                outgoing.fill(sealed);
            }
            Err(error @ EncryptError::EncryptExhausted) => return Err(io::Error::other(error)),
        }
        covered += piece.len();
    }
    Ok(covered)
}

fn say_good_bye<D>(status: UnbufferedStatus<'_, '_, D>, outgoing: &mut Outgoing) {
    if let Ok(ConnectionState::WriteTraffic(mut traffic)) = status.state {
        outgoing.reserve(ALERT);
        say(&mut traffic, outgoing);
    }
}

fn say<D>(traffic: &mut WriteTraffic<'_, D>, outgoing: &mut Outgoing) {
    // Without room for it, which there is, the end would go unsaid.
    if let Ok(bytes) = traffic.queue_close_notify(outgoing.room()) {
        outgoing.fill(bytes);
    }
}

/// Bytes before a record's content: its kind, a version, its length.
const HEADER: usize = 5;

/// How many pieces of the outbox become records at once. Each piece has records of its own, since a record is made of
/// one piece; all but the last are large or runs of small ones.
const PIECES: usize = 16;

/// More than an alert takes, and what may have to go before it.
const ALERT: usize = 256;
