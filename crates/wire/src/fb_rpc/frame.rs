//! Frame layout: a header of 12 bytes like baidu_std's, a meta of fixed-position numbers instead of protobuf, a
//! message, an attachment (brpc `policy/flatbuffers_protocol.cpp` of PR #3559).

use bytes::{Buf, Bytes, BytesMut};

use polyrpc_core::{Outbox, Violation};

use crate::oversized::MAX_DISCARDED;

/// Magic of a frame, its first four bytes; the protocol's proposals differ in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Magic {
    /// `FRPC`: apache/brpc#3559, and the current version of #3197.
    #[default]
    Frpc,
    /// `BRPC`: apache/brpc#3197 of January 2026.
    Brpc,
}

impl Magic {
    pub(super) const fn letters(self) -> &'static [u8; 4] {
        match self {
            Self::Frpc => b"FRPC",
            Self::Brpc => b"BRPC",
        }
    }

    fn from_bytes(magic: &[u8]) -> Option<Self> {
        [Self::Frpc, Self::Brpc].into_iter().find(|known| known.letters() == magic)
    }
}

/// A complete frame without its header.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) magic: Magic,
    pub(super) meta: Bytes,
    /// The message, followed by the attachment.
    pub(super) payload: Bytes,
}

/// Result of parsing the start of the inbox.
#[derive(Debug)]
pub(super) enum NextFrame {
    /// A complete frame, removed from the inbox.
    Whole(Frame),
    /// The start of a frame, with its total length in bytes; 0 while that is unknown.
    Partial(usize),
    /// Not a frame of this protocol; the inbox is unchanged.
    Foreign,
}

/// Removes the next frame from `inbox`, if it is complete.
///
/// `limit` bounds the bytes after the header, like brpc's `max_body_size`. If `only` names a magic, a frame with the
/// other one is a violation: if it were foreign, detection would select this protocol again.
pub(super) fn take_frame(
    inbox: &mut BytesMut,
    limit: usize,
    only: Option<Magic>,
) -> Result<NextFrame, Violation> {
    if let (Some(magic), Some(only)) = (inbox.first_chunk::<4>(), only)
        && Magic::from_bytes(magic).is_some_and(|magic| magic != only)
    {
        return Err(wrong_magic());
    }
    let Some(header) = inbox.first_chunk() else {
        return Ok(if may_begin_a_frame(inbox) { NextFrame::Partial(0) } else { NextFrame::Foreign });
    };
    let Some(header) = Header::read(header) else {
        return Ok(NextFrame::Foreign);
    };
    header.check(limit)?;
    let whole = HEADER + header.body;
    if inbox.len() < whole {
        return Ok(NextFrame::Partial(whole));
    }
    inbox.advance(HEADER);
    let meta = inbox.split_to(header.meta).freeze();
    let payload = inbox.split_to(header.body - header.meta).freeze();
    Ok(NextFrame::Whole(Frame { magic: header.magic, meta, payload }))
}

/// The start of a frame that exceeds the limit.
#[derive(Debug)]
pub(super) enum OversizedFrame<M> {
    /// The meta, removed from the inbox together with the header.
    Head {
        magic: Magic,
        meta: M,
        /// Bytes after the header: the meta and the payload.
        body: usize,
        /// Bytes after the fields of the meta.
        rest: usize,
    },
    /// The meta is incomplete; the inbox must hold this many bytes.
    Partial(usize),
}

/// Removes the start of a request that exceeds the limit, so that it can be answered. `None` if the connection cannot
/// go on: the frame has no whole meta, or the rest of it is too long to skip.
#[cold]
pub(super) fn take_oversized_request(inbox: &mut BytesMut) -> Option<OversizedFrame<Request>> {
    take_oversized(inbox, REQUEST, Request::read)
}

/// Removes the start of a response that exceeds the limit, so that its call can fail. `None` as for a request.
#[cold]
pub(super) fn take_oversized_response(inbox: &mut BytesMut) -> Option<OversizedFrame<Response>> {
    take_oversized(inbox, RESPONSE, Response::read)
}

fn take_oversized<M>(
    inbox: &mut BytesMut,
    fields: usize,
    read: impl FnOnce(&[u8]) -> Option<M>,
) -> Option<OversizedFrame<M>> {
    let header = Header::read(inbox.first_chunk()?)?;
    if header.body > MAX_DISCARDED || !(fields..=header.body).contains(&header.meta) {
        return None;
    }
    let head = HEADER + fields;
    let Some(meta) = inbox.get(HEADER..head) else { return Some(OversizedFrame::Partial(head)) };
    let meta = read(meta)?;
    inbox.advance(head);
    let (body, rest) = (header.body, header.body - fields);
    Some(OversizedFrame::Head { magic: header.magic, meta, body, rest })
}

fn may_begin_a_frame(start: &[u8]) -> bool {
    let n = start.len().min(4);
    [Magic::Frpc, Magic::Brpc].into_iter().any(|magic| magic.letters()[..n] == start[..n])
}

#[cold]
fn wrong_magic() -> Violation {
    Violation::new("the frame has the other magic of fb_rpc")
}

/// Length of a header in bytes: magic, body size, meta size; the sizes are big-endian.
const HEADER: usize = 12;

#[derive(Debug)]
struct Header {
    magic: Magic,
    /// Bytes after the header: the meta and the payload.
    body: usize,
    meta: usize,
}

impl Header {
    /// Parses a header; `None` if the magic does not match.
    fn read(bytes: &[u8; HEADER]) -> Option<Self> {
        let [magic @ .., b0, b1, b2, b3, m0, m1, m2, m3] = bytes;
        Some(Self {
            magic: Magic::from_bytes(magic)?,
            body: u32::from_be_bytes([*b0, *b1, *b2, *b3]) as usize,
            meta: u32::from_be_bytes([*m0, *m1, *m2, *m3]) as usize,
        })
    }

    fn check(&self, limit: usize) -> Result<(), Violation> {
        if self.body > limit {
            return Err(Violation::body_too_large(self.body, limit));
        }
        if self.meta > self.body {
            return Err(meta_past_body(self.meta, self.body));
        }
        Ok(())
    }
}

#[cold]
fn meta_past_body(meta: usize, body: usize) -> Violation {
    Violation::new(format!("a meta of {meta} bytes exceeds its body of {body}"))
}

/// Meta of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) service: u32,
    pub(super) method: i32,
    pub(super) sizes: Sizes,
    pub(super) correlation_id: u64,
}

/// Meta of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) error_code: i32,
    pub(super) sizes: Sizes,
    pub(super) correlation_id: u64,
}

/// Sizes of message and attachment, as announced by the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) message: i32,
    pub(super) attachment: i32,
}

impl Request {
    /// Parses the meta; `None` if it is too short. Additional bytes belong to a newer version and are ignored.
    pub(super) fn read(mut meta: &[u8]) -> Option<Self> {
        (meta.len() >= REQUEST).then(|| Self {
            service: meta.get_u32_le(),
            method: meta.get_i32_le(),
            sizes: Sizes::read(&mut meta),
            correlation_id: meta.get_u64_le(),
        })
    }

    /// Appends header and meta of a frame with this request; its payload follows.
    pub(super) fn write(&self, magic: Magic, out: &mut Outbox) {
        let mut frame = [0; HEADER + REQUEST];
        write_header(&mut frame, magic, self.sizes);
        frame[12..16].copy_from_slice(&self.service.to_le_bytes());
        frame[16..20].copy_from_slice(&self.method.to_le_bytes());
        frame[20..24].copy_from_slice(&self.sizes.message.to_le_bytes());
        frame[24..28].copy_from_slice(&self.sizes.attachment.to_le_bytes());
        frame[28..].copy_from_slice(&self.correlation_id.to_le_bytes());
        out.extend_from_slice(&frame);
    }
}

impl Response {
    /// Like [`Request::read`].
    pub(super) fn read(mut meta: &[u8]) -> Option<Self> {
        (meta.len() >= RESPONSE).then(|| Self {
            error_code: meta.get_i32_le(),
            sizes: Sizes::read(&mut meta),
            correlation_id: meta.get_u64_le(),
        })
    }

    /// Like [`Request::write`].
    pub(super) fn write(&self, magic: Magic, out: &mut Outbox) {
        let mut frame = [0; HEADER + RESPONSE];
        write_header(&mut frame, magic, self.sizes);
        frame[12..16].copy_from_slice(&self.error_code.to_le_bytes());
        frame[16..20].copy_from_slice(&self.sizes.message.to_le_bytes());
        frame[20..24].copy_from_slice(&self.sizes.attachment.to_le_bytes());
        frame[24..].copy_from_slice(&self.correlation_id.to_le_bytes());
        out.extend_from_slice(&frame);
    }
}

fn write_header(frame: &mut [u8], magic: Magic, sizes: Sizes) {
    let meta = (frame.len() - HEADER) as u32;
    let body = meta + sizes.message.cast_unsigned() + sizes.attachment.cast_unsigned();
    frame[..4].copy_from_slice(magic.letters());
    frame[4..8].copy_from_slice(&body.to_be_bytes());
    frame[8..12].copy_from_slice(&meta.to_be_bytes());
}

impl Sizes {
    pub(super) const NONE: Self = Self { message: 0, attachment: 0 };

    /// Returns the sizes; `None` if a frame with a `meta` of this length cannot hold both: the bytes after its header
    /// are limited to `limit`, and to less than 2 GiB.
    pub(super) fn new(message: &Bytes, attachment: &Bytes, meta: usize, limit: usize) -> Option<Self> {
        let body = message.len().checked_add(attachment.len())?.checked_add(meta)?;
        i32::try_from(body).ok().filter(|_| body <= limit)?;
        Some(Self { message: message.len() as i32, attachment: attachment.len() as i32 })
    }

    fn read(meta: &mut &[u8]) -> Self {
        Self { message: meta.get_i32_le(), attachment: meta.get_i32_le() }
    }

    /// Splits a payload; `None` if its length is not the sum of the two sizes, or if it has no message.
    ///
    /// A negative attachment size means none with #3197's first magic, and is an error in #3559.
    pub(super) fn split_payload(self, mut payload: Bytes, magic: Magic) -> Option<(Bytes, Bytes)> {
        let attachment = match magic {
            Magic::Frpc => self.attachment,
            Magic::Brpc => self.attachment.max(0),
        };
        let (message, attachment) = (usize::try_from(self.message).ok()?, usize::try_from(attachment).ok()?);
        if message == 0 || message.checked_add(attachment)? != payload.len() {
            return None;
        }
        let attachment = payload.split_off(message);
        Some((payload, attachment))
    }
}

/// Length of a request's meta in bytes.
pub(super) const REQUEST: usize = 24;

/// Length of a response's meta in bytes.
pub(super) const RESPONSE: usize = 20;
