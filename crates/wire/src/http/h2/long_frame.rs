//! Reading of frames of more than 16 KiB.

use std::mem;

use bytes::{Buf, BytesMut};
use polyrpc_core::Outbox;

use super::connection::{Connection, FrameOutcome};
use super::frame::{self, Header};
use super::long_frame_state::{LONG_READ, LongFrame};
use super::receive::block_too_long;
use super::settings::DEFAULT_FRAME;
use super::status::{ErrorCode, Fault, connection_error};

/// A long frame arrives slowly if a read brings fewer bytes of it. Its data are then reported as they arrive.
const SLOW_READ: usize = 4 << 10;

/// Most bytes of a HEADERS frame besides its header block: padding with its length, and a priority.
const MAX_HEADERS_OVERHEAD: usize = 256 + 5;

impl<T: Default> Connection<T> {
    /// Whether a frame of more than 16 KiB has arrived in part. No other frame can arrive before its end.
    pub fn is_reading_long_frame(&self) -> bool {
        self.long_frame.is_within_frame() || self.bytes_needed > frame::HEADER + DEFAULT_FRAME
    }

    /// Checks the header of a frame of more than 16 KiB before its payload is buffered. Returns `true` if the frame is
    /// ignored.
    #[cold]
    pub(super) fn check_long(&mut self, header: Header, inbox: &mut BytesMut) -> Result<bool, Fault> {
        let longest = self.longest_frame();
        if header.length > longest {
            return Err(too_long(header.length, longest));
        }
        match header.kind {
            frame::DATA => self.check_window(header)?,
            frame::HEADERS | frame::CONTINUATION => self.check_block(header)?,
            kind if kind < frame::CONTINUATION => {
                // Stricter than RFC 9113: it lets SETTINGS and the debug data of GOAWAY be as long as any frame.
                let why = "a control frame of more than 16 KiB";
                return Err(connection_error(ErrorCode::FRAME_SIZE_ERROR, why));
            }
            // It may belong to an extension (RFC 9113, §5.5).
            _ => {
                inbox.advance(frame::HEADER);
                self.long_frame.current = Some(LongFrame::Ignored(header.length));
                self.guard.burst += 1;
                return Ok(true);
            }
        }
        if inbox.len() >= frame::HEADER + header.length {
            self.long_frame.inbox_len_at_last_check = 0;
        }
        Ok(false)
    }

    /// Checks that a header block does not become too long. Longer frames do not allow longer blocks.
    fn check_block(&self, header: Header) -> Result<(), Fault> {
        let longest = self.config.longest_block();
        if self.buffered() + header.length > longest.max(DEFAULT_FRAME) + MAX_HEADERS_OVERHEAD {
            return Err(block_too_long(longest, self.config.header_list));
        }
        Ok(())
    }

    /// Handles a long frame that is incomplete. It is usually waited for, since a message in one piece is not copied:
    /// the buffered part counts as memory of the connection. If it arrives slowly, its data are reported in pieces,
    /// since they may contain messages that are complete.
    #[cold]
    pub(super) fn wait_for_long(
        &mut self,
        header: Header,
        inbox: &mut BytesMut,
        out: &mut Outbox,
    ) -> Result<Option<FrameOutcome>, Fault> {
        let before = mem::replace(&mut self.long_frame.inbox_len_at_last_check, inbox.len());
        let more = inbox.len().saturating_sub(before);
        let is_slow = before > 0 && (1..SLOW_READ).contains(&more);
        if header.kind == frame::DATA && !header.has(frame::PADDED) && is_slow {
            self.bytes_needed = 0;
            self.long_frame.inbox_len_at_last_check = 0;
            inbox.advance(frame::HEADER);
            return self.take_data(header, inbox, out);
        }
        self.long_frame.inbox_is_long_buffer |= self.bytes_needed > LONG_READ;
        Ok(None)
    }

    /// Continues with the rest of a long frame; `None` if nothing more of it has arrived.
    #[cold]
    pub(super) fn take_rest(
        &mut self,
        inbox: &mut BytesMut,
        out: &mut Outbox,
    ) -> Result<Option<FrameOutcome>, Fault> {
        match self.long_frame.current {
            _ if inbox.is_empty() => Ok(None),
            Some(LongFrame::Data(rest)) => self.take_data(rest, inbox, out),
            Some(LongFrame::Ignored(rest)) => {
                let length = inbox.len().min(rest);
                inbox.advance(length);
                self.long_frame.current = (length < rest).then_some(LongFrame::Ignored(rest - length));
                Ok(Some(FrameOutcome::Nothing))
            }
            None => Ok(Some(FrameOutcome::Nothing)),
        }
    }

    /// Takes what has arrived of the data of a long frame, as if the peer had sent it as a frame of its own.
    fn take_data(
        &mut self,
        rest: Header,
        inbox: &mut BytesMut,
        out: &mut Outbox,
    ) -> Result<Option<FrameOutcome>, Fault> {
        let length = inbox.len().min(rest.length);
        let is_last = length == rest.length;
        self.long_frame.current =
            (!is_last).then_some(LongFrame::Data(Header { length: rest.length - length, ..rest }));
        let piece = Header { length, flags: if is_last { rest.flags } else { 0 }, ..rest };
        let payload = self.take_payload(length, inbox);
        self.data_event(piece, payload, out).map(Some)
    }
}

#[cold]
fn too_long(length: usize, limit: usize) -> Fault {
    let why = format!("a frame of {length} bytes exceeds the limit of {limit}");
    Fault::TooLarge(ErrorCode::FRAME_SIZE_ERROR, why)
}
