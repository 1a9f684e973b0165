//! The frame: a header of 12 bytes as baidu_std's, a meta that is no protobuf but numbers in their places, a
//! message, an attachment (brpc `policy/flatbuffers_protocol.cpp` of PR #3559).

use bytes::{Buf, Bytes, BytesMut};

use polyrpc_core::{Outbox, Violation};

/// The four letters that a frame begins with, by which the protocol's proposals differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Magic {
    /// `FRPC`: apache/brpc#3559, and #3197 as it is today.
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

    fn of(magic: &[u8]) -> Option<Self> {
        [Self::Frpc, Self::Brpc].into_iter().find(|known| known.letters() == magic)
    }
}

/// A whole frame, its header taken off.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) magic: Magic,
    pub(super) meta: Bytes,
    /// The message and, behind it, the attachment.
    pub(super) payload: Bytes,
}

/// What the inbox begins with.
#[derive(Debug)]
pub(super) enum NextFrame {
    /// A whole frame, taken out of the inbox.
    Whole(Frame),
    /// The beginning of a frame that needs so many bytes in all; 0 while that is unknown.
    Partial(usize),
    /// Something else; the inbox was left as it is.
    Foreign,
}

/// Takes the next frame out of `inbox`, if all of it is there.
///
/// `limit` bounds what follows the header, as brpc's `max_body_size` does. Where `only` names a magic, a frame of
/// the other is a violation: were it foreign, detection would bring it back.
pub(super) fn take_frame(
    inbox: &mut BytesMut,
    limit: usize,
    only: Option<Magic>,
) -> Result<NextFrame, Violation> {
    if let (Some(magic), Some(only)) = (inbox.first_chunk::<4>(), only)
        && Magic::of(magic).is_some_and(|magic| magic != only)
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

fn may_begin_a_frame(start: &[u8]) -> bool {
    let n = start.len().min(4);
    [Magic::Frpc, Magic::Brpc].into_iter().any(|magic| magic.letters()[..n] == start[..n])
}

#[cold]
fn wrong_magic() -> Violation {
    Violation::new("the frame has the other magic of fb_rpc")
}

/// Bytes of a header: magic, body size, meta size; the sizes big-endian.
const HEADER: usize = 12;

#[derive(Debug)]
struct Header {
    magic: Magic,
    /// Bytes behind the header: the meta and the payload.
    body: usize,
    meta: usize,
}

impl Header {
    /// `None` if the magic is not ours.
    fn read(bytes: &[u8; HEADER]) -> Option<Self> {
        let [magic @ .., b0, b1, b2, b3, m0, m1, m2, m3] = bytes;
        Some(Self {
            magic: Magic::of(magic)?,
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

/// What a request's meta says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) service: u32,
    pub(super) method: i32,
    pub(super) sizes: Sizes,
    pub(super) correlation_id: u64,
}

/// What a response's meta says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) error_code: i32,
    pub(super) sizes: Sizes,
    pub(super) correlation_id: u64,
}

/// How the payload is divided, as the peer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) message: i32,
    pub(super) attachment: i32,
}

impl Request {
    /// `None` if the meta is too short. What a longer one holds behind is of a newer version.
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
    /// As [`Request::read`].
    pub(super) fn read(mut meta: &[u8]) -> Option<Self> {
        (meta.len() >= RESPONSE).then(|| Self {
            error_code: meta.get_i32_le(),
            sizes: Sizes::read(&mut meta),
            correlation_id: meta.get_u64_le(),
        })
    }

    /// As [`Request::write`].
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

    /// `None` if a frame with a `meta` of so many bytes has no room for both: what follows its header has at most
    /// `limit` bytes, and less than 2 GiB.
    pub(super) fn of(message: &Bytes, attachment: &Bytes, meta: usize, limit: usize) -> Option<Self> {
        let body = message.len().checked_add(attachment.len())?.checked_add(meta)?;
        i32::try_from(body).ok().filter(|_| body <= limit)?;
        Some(Self { message: message.len() as i32, attachment: attachment.len() as i32 })
    }

    fn read(meta: &mut &[u8]) -> Self {
        Self { message: meta.get_i32_le(), attachment: meta.get_i32_le() }
    }

    /// Divides a payload; `None` if it is not as long as the two say, or has no message.
    ///
    /// A negative attachment is none with #3197's first magic, and a mistake in #3559.
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

/// Bytes of a request's meta.
pub(super) const REQUEST: usize = 24;

/// Bytes of a response's meta.
pub(super) const RESPONSE: usize = 20;
