use bytes::{Bytes, BytesMut};

use crate::http::h1::chunked::Chunked;
use crate::http::h1::frame::{BodyLength, Refusal};

/// The part of a streamed body that has not been received.
#[derive(Debug)]
pub(super) enum RemainingBody {
    Nothing,
    Bytes(usize),
    Chunks(Box<Chunked>),
}

impl RemainingBody {
    pub(super) fn new(body_length: BodyLength, chunked: Chunked) -> Self {
        match body_length {
            BodyLength::Fixed(length) => Self::Bytes(length),
            BodyLength::UntilClose => Self::Nothing,
            BodyLength::Chunked => Self::Chunks(Box::new(chunked)),
        }
    }

    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }

    /// Returns the part of the body that is in the inbox; `None` if there is nothing new. Chunk framing may add
    /// `overhead` bytes.
    pub(super) fn pull(&mut self, inbox: &mut BytesMut, overhead: usize) -> Result<Option<Bytes>, Refusal> {
        match self {
            Self::Nothing => Ok(None),
            Self::Bytes(left) => {
                let here = (*left).min(inbox.len());
                *left -= here;
                let over = *left == 0;
                if over {
                    *self = Self::Nothing;
                }
                Ok((here > 0 || over).then(|| inbox.split_to(here).freeze()))
            }
            Self::Chunks(chunked) => {
                if let Some(last) = chunked.read(inbox, usize::MAX, overhead)? {
                    *self = Self::Nothing;
                    return Ok(Some(last));
                }
                let piece = chunked.take();
                Ok((!piece.is_empty()).then_some(piece))
            }
        }
    }
}
