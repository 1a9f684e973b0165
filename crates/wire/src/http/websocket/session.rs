//! A connection after the handshake: [`Receiver`] parses the input, and [`Endpoint`] adds the responses that this side
//! must send.

use bytes::{Buf, Bytes, BytesMut};

use super::CloseCode;
use super::frame::{Header, MAX_CONTROL, Mask, Opcode};
use super::utf8::Utf8;

/// Side of the connection. Only a client masks what it sends, with unpredictable keys (RFC 6455 §10.3).
#[derive(Debug, Clone, Copy)]
pub enum Role {
    /// The side that accepted the connection.
    Server,
    /// The side that opened the connection, with its source of masking keys.
    Client(Random),
}

/// Source of unpredictable numbers.
pub type Random = fn() -> u64;

/// Limits of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Maximum length of a message in bytes, all fragments together.
    pub message: u64,
    /// Whether text messages must be UTF-8 (§8.1).
    pub utf8: bool,
}

impl Config {
    /// For messages that are arbitrary pieces of a byte stream: their boundaries have no meaning, so that they need no
    /// limit; and rpcx's Go client marks binary data as text (golang.org/x/net `websocket/hybi.go`, `newHybiConn`).
    pub const BYTES: Self = Self { message: u64::MAX, utf8: false };
}

impl Default for Config {
    fn default() -> Self {
        Self { message: 64 << 20, utf8: true }
    }
}

/// Parser for the peer's frames.
///
/// ```text
/// Header ──▶ Payload ──▶ Header      a part of a message, passed on as it arrives
///    └─────▶ Control ──▶ Header      a ping or a pong, complete
///               └──────▶ Ended       the peer has closed, or violated the protocol
/// ```
#[derive(Debug)]
pub struct Receiver {
    config: Config,
    /// Whether the peer must mask its frames, or must not.
    masked: bool,
    reading: Reading,
    /// The current fragmented message.
    message: Option<Fragments>,
}

#[derive(Debug)]
enum Reading {
    Header,
    Payload { fin: bool, mask: Option<Mask>, left: u64 },
    Control { opcode: Opcode, mask: Option<Mask>, length: usize },
    Ended,
}

/// State of an incomplete message.
#[derive(Debug)]
struct Fragments {
    kind: Kind,
    length: u64,
    /// UTF-8 validation of the text so far, if it is enabled.
    text: Option<Utf8>,
}

/// Type of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Text,
    /// Binary data.
    Binary,
}

/// Event of a [`Receiver`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Bytes of a message, which were appended; possibly none.
    Data {
        /// Type of the message.
        kind: Kind,
        /// The message is complete.
        ended: bool,
    },
    /// A ping, to be answered with the same payload.
    Ping(Bytes),
    /// A pong.
    Pong(Bytes),
    /// The peer closes the connection, optionally with a code.
    Close(Option<CloseCode>),
}

impl Receiver {
    /// Creates the state of a connection after the handshake.
    pub fn new(role: Role, config: Config) -> Self {
        let masked = matches!(role, Role::Server);
        Self { config, masked, reading: Reading::Header, message: None }
    }

    /// Reads the next event from `raw`; `None` if more bytes are needed or the connection has ended. Bytes of messages
    /// are appended to `plain` as they arrive.
    ///
    /// # Errors
    ///
    /// The close code with which the connection must end; nothing is read after that.
    pub fn next(&mut self, raw: &mut BytesMut, plain: &mut BytesMut) -> Result<Option<Event>, CloseCode> {
        let next = self.step(raw, plain);
        if matches!(next, Err(_) | Ok(Some(Event::Close(_)))) {
            self.reading = Reading::Ended;
        }
        if matches!(self.reading, Reading::Ended) {
            raw.clear();
        }
        next
    }

    fn step(&mut self, raw: &mut BytesMut, plain: &mut BytesMut) -> Result<Option<Event>, CloseCode> {
        if matches!(self.reading, Reading::Header) {
            let Some((header, length)) = Header::read(raw)? else { return Ok(None) };
            raw.advance(length);
            self.start_message(header)?;
        }
        match self.reading {
            Reading::Header | Reading::Ended => Ok(None),
            Reading::Payload { .. } => self.read_payload(raw, plain),
            Reading::Control { opcode, mask, length } => self.read_control(opcode, mask, length, raw),
        }
    }

    /// Handles a header, whose payload follows.
    fn start_message(&mut self, header: Header) -> Result<(), CloseCode> {
        let Header { fin, opcode, mask, length } = header;
        if mask.is_some() != self.masked {
            return Err(CloseCode::PROTOCOL_ERROR);
        }
        let kind = match opcode {
            Opcode::Text => Kind::Text,
            Opcode::Binary => Kind::Binary,
            Opcode::Continuation => return self.continue_message(fin, mask, length),
            Opcode::Close | Opcode::Ping | Opcode::Pong => {
                // The header parser limits control frames to this length.
                let length = usize::try_from(length).unwrap_or(MAX_CONTROL).min(MAX_CONTROL);
                self.reading = Reading::Control { opcode, mask, length };
                return Ok(());
            }
        };
        if self.message.is_some() {
            return Err(CloseCode::PROTOCOL_ERROR);
        }
        let text = (kind == Kind::Text && self.config.utf8).then(Utf8::default);
        self.message = Some(Fragments { kind, length: 0, text });
        self.continue_message(fin, mask, length)
    }

    fn continue_message(&mut self, fin: bool, mask: Option<Mask>, length: u64) -> Result<(), CloseCode> {
        let message = self.message.as_mut().ok_or(CloseCode::PROTOCOL_ERROR)?;
        message.length = message.length.saturating_add(length);
        if message.length > self.config.message {
            return Err(CloseCode::TOO_BIG);
        }
        self.reading = Reading::Payload { fin, mask, left: length };
        Ok(())
    }

    fn read_payload(&mut self, raw: &mut BytesMut, plain: &mut BytesMut) -> Result<Option<Event>, CloseCode> {
        let (Reading::Payload { fin, mask, left }, Some(message)) = (&mut self.reading, &mut self.message)
        else {
            return Ok(None);
        };
        if raw.is_empty() && *left > 0 {
            return Ok(None);
        }
        let n = usize::try_from(*left).unwrap_or(usize::MAX).min(raw.len());
        let start = plain.len();
        plain.extend_from_slice(raw.get(..n).unwrap_or_default());
        raw.advance(n);
        let arrived = plain.get_mut(start..).unwrap_or_default();
        if let Some(mask) = mask {
            mask.apply(arrived);
        }
        if let Some(text) = &mut message.text
            && !text.take(arrived)
        {
            return Err(CloseCode::INVALID_DATA);
        }
        *left -= n as u64;
        let (kind, ended) = (message.kind, *left == 0 && *fin);
        if ended && message.text.as_ref().is_some_and(|text| !text.is_complete()) {
            return Err(CloseCode::INVALID_DATA);
        }
        if *left == 0 {
            self.reading = Reading::Header;
        }
        if ended {
            self.message = None;
        }
        Ok(Some(Event::Data { kind, ended }))
    }

    fn read_control(
        &mut self,
        opcode: Opcode,
        mask: Option<Mask>,
        length: usize,
        raw: &mut BytesMut,
    ) -> Result<Option<Event>, CloseCode> {
        if raw.len() < length {
            return Ok(None);
        }
        let mut payload = raw.split_to(length);
        if let Some(mut mask) = mask {
            mask.apply(&mut payload);
        }
        self.reading = Reading::Header;
        Ok(Some(match opcode {
            Opcode::Ping => Event::Ping(payload.freeze()),
            Opcode::Close => Event::Close(read_close(&payload)?),
            _ => Event::Pong(payload.freeze()),
        }))
    }
}

/// Returns the code in a close frame, which a reason text may follow (§5.5.1).
fn read_close(payload: &[u8]) -> Result<Option<CloseCode>, CloseCode> {
    let Some((number, reason)) = payload.split_first_chunk() else {
        return if payload.is_empty() { Ok(None) } else { Err(CloseCode::PROTOCOL_ERROR) };
    };
    let code = CloseCode::read(u16::from_be_bytes(*number)).ok_or(CloseCode::PROTOCOL_ERROR)?;
    match std::str::from_utf8(reason) {
        Ok(_) => Ok(Some(code)),
        Err(_) => Err(CloseCode::INVALID_DATA),
    }
}

/// One side of a connection whose messages carry a byte stream.
///
/// Its driver passes the input to it, writes its [responses](Self::answer), and ends with [`close`](Self::close).
#[derive(Debug)]
pub struct Endpoint {
    role: Role,
    receiver: Receiver,
    /// The ping to answer. Of several pings only the last needs an answer (§5.5.3), so that a flood of them costs
    /// nothing.
    pong: Option<Bytes>,
    end: CloseState,
}

/// Progress of the closing handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CloseState {
    Open,
    /// The peer has ended the connection; this code is to be sent.
    Received(CloseCode),
    /// This side has sent its close frame.
    Said,
}

impl Endpoint {
    /// Creates the state of a connection after the handshake.
    pub fn new(role: Role) -> Self {
        Self { role, receiver: Receiver::new(role, Config::BYTES), pong: None, end: CloseState::Open }
    }

    /// Reads all of `raw` and appends the carried bytes to `plain`. Returns whether a pong was received.
    pub fn receive(&mut self, raw: &mut BytesMut, plain: &mut BytesMut) -> bool {
        let mut ponged = false;
        loop {
            let close_code = match self.receiver.next(raw, plain) {
                Ok(None) => return ponged,
                Ok(Some(Event::Data { .. })) => continue,
                Ok(Some(Event::Ping(payload))) => {
                    self.pong = Some(payload);
                    continue;
                }
                Ok(Some(Event::Pong(_))) => {
                    ponged = true;
                    continue;
                }
                // The response to a close repeats its code (§5.5.1).
                Ok(Some(Event::Close(code))) => code.unwrap_or(CloseCode::NORMAL),
                Err(code) => code,
            };
            if self.end == CloseState::Open {
                self.end = CloseState::Received(close_code);
            }
            return ponged;
        }
    }

    /// Whether data may still be received and sent.
    pub fn is_open(&self) -> bool {
        self.end == CloseState::Open
    }

    /// Writes pending responses. Must not be called in the middle of a frame.
    pub fn answer(&mut self, out: &mut Vec<u8>) {
        if let Some(payload) = self.pong.take()
            && self.end != CloseState::Said
        {
            self.write_control(Opcode::Pong, &payload, out);
        }
    }

    /// Sends a ping.
    pub fn ping(&mut self, out: &mut Vec<u8>) {
        self.write_control(Opcode::Ping, b"", out);
    }

    /// Writes the header of a message of `length` bytes, which must follow unmasked. Only a server may send unmasked
    /// data.
    pub fn write_header(&mut self, length: usize, out: &mut Vec<u8>) {
        self.header(Opcode::Binary, length, out);
    }

    /// Writes the header of a message, and masks its bytes in place if required.
    pub fn wrap(&mut self, message: &mut [u8], out: &mut Vec<u8>) {
        if let Some(mut mask) = self.header(Opcode::Binary, message.len(), out) {
            mask.apply(message);
        }
    }

    /// Sends a close frame: with the received code, else with this one. Nothing may follow it.
    pub fn close(&mut self, code: CloseCode, out: &mut Vec<u8>) {
        let code = match self.end {
            CloseState::Open => code,
            CloseState::Received(code) => code,
            CloseState::Said => return,
        };
        self.write_control(Opcode::Close, &code.number().to_be_bytes(), out);
        self.end = CloseState::Said;
    }

    fn write_control(&mut self, opcode: Opcode, payload: &[u8], out: &mut Vec<u8>) {
        let mask = self.header(opcode, payload.len(), out);
        let start = out.len();
        out.extend_from_slice(payload);
        if let (Some(mut mask), Some(written)) = (mask, out.get_mut(start..)) {
            mask.apply(written);
        }
    }

    fn header(&mut self, opcode: Opcode, length: usize, out: &mut Vec<u8>) -> Option<Mask> {
        let mask = match self.role {
            Role::Server => None,
            Role::Client(random) => {
                let [a, b, c, d, ..] = random().to_ne_bytes();
                Some(Mask([a, b, c, d]))
            }
        };
        Header { fin: true, opcode, mask, length: length as u64 }.write(out);
        mask
    }
}
