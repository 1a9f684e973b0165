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
/// [`open`](Self::open) decrypts records in place, in the caller's buffer, and appends their content to another buffer
/// of the caller. [`seal`](Self::seal) encrypts plaintext out of an [`Outbox`] into records in `outgoing`. Plaintext
/// stays in the outbox until the last of its records was sent, so that the outbox's length is the true amount that the
/// peer has yet to receive, and a full socket needs no further memory.
pub(super) struct Session {
    end: End,
    outgoing: Outgoing,
    /// How many bytes at the front of the outbox are already in `outgoing`.
    covered: usize,
    /// The caller's buffer begins with a part of a handshake message. Until the rest has arrived, rustls refers to
    /// positions in that buffer and must not be called without it.
    fragment: bool,
    /// A message of TLS's own is in `outgoing`, and rustls was not notified yet that it counts as sent.
    unsent_own_records: bool,
    /// The peer has sent its close_notify.
    peer_closed: bool,
}

enum End {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// Result of [`Session::open`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DecryptedRecords {
    /// Number of input bytes that are consumed.
    pub(super) discard: usize,
    /// Number of plaintext bytes that were appended.
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
            unsent_own_records: false,
            peer_closed: false,
        }
    }

    /// Decrypts records until no complete one is left, or about `room` bytes, give or take a record, were appended to
    /// `plain`.
    ///
    /// # Errors
    ///
    /// If the peer violates TLS or cannot be trusted. The alert for it is in `outgoing`.
    pub(super) fn open(
        &mut self,
        incoming: &mut [u8],
        plain: &mut impl BufMut,
        room: usize,
    ) -> io::Result<DecryptedRecords> {
        let mut opened = DecryptedRecords { discard: 0, plain: 0 };
        self.fragment = false;
        while opened.plain < room.max(1) && !self.peer_closed {
            let step = self.step(&mut incoming[opened.discard..], plain);
            opened.discard += step.discard;
            match step.result {
                Ok(StepResult::Read(bytes)) => opened.plain += bytes,
                Ok(StepResult::Encoded | StepResult::Sent) => {}
                Ok(StepResult::Nothing) => {
                    // A complete record that is kept can only be a part of a message that continues in the next one.
                    let kept = &incoming[opened.discard..];
                    self.fragment = record_length(kept).is_some_and(|length| length <= kept.len());
                    break;
                }
                Ok(StepResult::End) => self.peer_closed = true,
                Err(error) => return Err(self.fail(&error)),
            }
        }
        Ok(opened)
    }

    /// Encrypts data from the front of `out`, as much as is worth one write. Returns whether there are records to be
    /// written now.
    ///
    /// # Errors
    ///
    /// If nothing more may be sent.
    pub(super) fn seal(&mut self, out: &Outbox) -> io::Result<bool> {
        if self.outgoing.is_empty() && !out.is_empty() && !self.fragment {
            self.mark_own_records_sent();
            let mut slices = [IoSlice::new(&[]); MAX_PIECES];
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

    /// Queues the close_notify: nothing more will be sent.
    pub(super) fn close(&mut self) {
        if self.fragment {
            return;
        }
        self.mark_own_records_sent();
        match &mut self.end {
            End::Client(end) => queue_close_notify(end.process_tls_records(&mut []), &mut self.outgoing),
            End::Server(end) => queue_close_notify(end.process_tls_records(&mut []), &mut self.outgoing),
        }
    }

    /// Returns the records to be written.
    pub(super) fn outgoing(&self) -> &[u8] {
        self.outgoing.bytes()
    }

    /// Marks this many bytes of records as written. The plaintext in them leaves `out` with the last of them.
    pub(super) fn advance(&mut self, bytes: usize, out: &mut Outbox) {
        self.advance_own(bytes);
        if self.outgoing.is_empty() {
            out.advance(std::mem::take(&mut self.covered));
        }
    }

    /// As [`advance`](Self::advance), if none of the records contains data of an outbox.
    pub(super) fn advance_own(&mut self, bytes: usize) {
        self.outgoing.advance(bytes);
    }

    /// Returns whether there are records of TLS's own messages to be written.
    pub(super) fn has_pending_records(&self) -> bool {
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

    /// Returns the protocol that was negotiated in the handshake, if any.
    pub(super) fn alpn(&self) -> Option<&[u8]> {
        self.state().alpn_protocol()
    }

    /// Returns the certificate that the peer has presented, and its chain.
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

    /// Notifies rustls that its own messages count as sent, without which it does not encrypt.
    fn mark_own_records_sent(&mut self) {
        while self.unsent_own_records
            && matches!(
                self.step(&mut [], &mut Vec::new()).result,
                Ok(StepResult::Encoded | StepResult::Sent)
            )
        {}
    }

    /// Puts the alert for an error into `outgoing`.
    #[cold]
    fn fail(&mut self, error: &Error) -> io::Error {
        // Only encode what rustls has queued; do not process more input.
        while self.state().wants_write() && self.step(&mut [], &mut Vec::new()).result.is_ok() {}
        failure::explain(error, self.is_handshaking(), !self.is_server())
    }

    fn step(&mut self, incoming: &mut [u8], plain: &mut impl BufMut) -> Step {
        let step = match &mut self.end {
            End::Client(end) => step(end.process_tls_records(incoming), &mut self.outgoing, plain),
            End::Server(end) => step(end.process_tls_records(incoming), &mut self.outgoing, plain),
        };
        match step.result {
            Ok(StepResult::Encoded) => self.unsent_own_records = true,
            Ok(StepResult::Sent) => self.unsent_own_records = false,
            _ => {}
        }
        step
    }
}

/// Returns the length of the record at the start of these bytes, if it is known yet.
pub(super) fn record_length(bytes: &[u8]) -> Option<usize> {
    let [_, _, _, high, low, ..] = *bytes else { return None };
    Some(HEADER + usize::from(u16::from_be_bytes([high, low])))
}

/// Result of one step of rustls.
struct Step {
    discard: usize,
    result: Result<StepResult, Error>,
}

enum StepResult {
    /// This many bytes of plaintext were appended.
    Read(usize),
    /// A message of TLS's own was put into `outgoing`.
    Encoded,
    /// The queued messages count as sent.
    Sent,
    /// More bytes are needed.
    Nothing,
    /// The peer has sent its close_notify.
    End,
}

fn step<D>(status: UnbufferedStatus<'_, '_, D>, outgoing: &mut Outgoing, plain: &mut impl BufMut) -> Step {
    let mut discard = status.discard;
    let result = status.state.and_then(|state| match state {
        ConnectionState::ReadTraffic(mut traffic) => {
            let mut bytes = 0;
            while let Some(record) = traffic.next_record() {
                let record = record?;
                plain.put_slice(record.payload);
                discard += record.discard;
                bytes += record.payload.len();
            }
            Ok(StepResult::Read(bytes))
        }
        ConnectionState::EncodeTlsData(data) => {
            encode(data, outgoing);
            Ok(StepResult::Encoded)
        }
        // Bytes in `outgoing` are sent in order, so they count as sent.
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok(StepResult::Sent)
        }
        ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) => Ok(StepResult::Nothing),
        ConnectionState::PeerClosed | ConnectionState::Closed => Ok(StepResult::End),
        // Early data is offered by neither end.
        _ => Err(Error::HandshakeNotComplete),
    });
    Step { discard, result }
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

/// Encrypts as much as there is room for; returns the number of plaintext bytes.
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

fn queue_close_notify<D>(status: UnbufferedStatus<'_, '_, D>, outgoing: &mut Outgoing) {
    if let Ok(ConnectionState::WriteTraffic(mut traffic)) = status.state {
        outgoing.reserve(ALERT_RESERVE);
        write_close_notify(&mut traffic, outgoing);
    }
}

fn write_close_notify<D>(traffic: &mut WriteTraffic<'_, D>, outgoing: &mut Outgoing) {
    // There is always room for it; without, it would be omitted.
    if let Ok(bytes) = traffic.queue_close_notify(outgoing.room()) {
        outgoing.fill(bytes);
    }
}

/// Bytes before a record's content: its type, a version, its length.
const HEADER: usize = 5;

/// How many pieces of the outbox are encrypted at once. Each piece has records of its own, since a record is made of
/// one piece; all but the last are large or runs of small ones.
const MAX_PIECES: usize = 16;

/// More than an alert needs, with what may have to precede it.
const ALERT_RESERVE: usize = 256;
