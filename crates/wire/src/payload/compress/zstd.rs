//! zstd frames (RFC 8878).

use std::cell::RefCell;

use zstd::bulk::Compressor;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use super::{Error, check, first_room, grow};

pub(super) fn compress(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    thread_local! {
        static STATE: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    }
    STATE.with_borrow_mut(|state| {
        let compressor = match state {
            Some(compressor) => compressor,
            None => state.insert(Compressor::new(LEVEL).map_err(|_| NO_MEMORY)?),
        };
        compressor.compress(bytes).map_err(|_| Error::Broken("zstd failed"))
    })
}

/// One frame after another, as the `zstd` command reads them.
pub(super) fn decompress(bytes: &[u8], limit: usize) -> Result<Vec<u8>, Error> {
    thread_local! {
        static STATE: RefCell<Option<Decoder<'static>>> = const { RefCell::new(None) };
    }
    STATE.with_borrow_mut(|state| {
        let decoder = match state {
            Some(decoder) => decoder,
            None => state.insert(Decoder::new().map_err(|_| NO_MEMORY)?),
        };
        decoder.reinit().map_err(|_| BROKEN)?;
        decoder.set_parameter(DParameter::WindowLogMax(window_log(limit))).map_err(|_| BROKEN)?;
        stream(decoder, bytes, limit)
    })
}

fn stream(decoder: &mut Decoder<'_>, bytes: &[u8], limit: usize) -> Result<Vec<u8>, Error> {
    let mut out = room(bytes, limit)?;
    let mut input = InBuffer::around(bytes);
    loop {
        if out.len() == out.capacity() {
            grow(&mut out, limit)?;
        }
        let (had, taken) = (out.len(), input.pos());
        let mut output = OutBuffer::around_pos(&mut out, had);
        let remaining = decoder.run(&mut input, &mut output).map_err(|_| BROKEN)?;
        check(&out, limit)?;
        let all_taken = input.pos() == bytes.len();
        if remaining == 0 && all_taken {
            return Ok(out);
        }
        if all_taken && out.len() == had && input.pos() == taken && out.len() < out.capacity() {
            return Err(Error::Broken("compressed data is cut short"));
        }
    }
}

/// Room for the output: as much as the frame announces, if so many bytes can come out of so few at all.
/// With all of it at hand zstd decodes in place, without a window of its own.
fn room(bytes: &[u8], limit: usize) -> Result<Vec<u8>, Error> {
    let announced = zstd::zstd_safe::get_frame_content_size(bytes).map_err(|_| BROKEN)?;
    let Some(announced) = announced else { return Ok(first_room(bytes, limit)) };
    match usize::try_from(announced) {
        Ok(length) if length <= limit => Ok(Vec::with_capacity(length.min(most_of(bytes)))),
        _ => Err(Error::TooLarge { limit }),
    }
}

/// The most that can come out of `bytes`: a block takes 4 bytes or more and makes 128 KiB at most.
fn most_of(bytes: &[u8]) -> usize {
    (bytes.len() / 4).saturating_mul(128 << 10)
}

/// The largest window a frame may ask memory for: no larger than what may come out, but always the 8 MiB
/// that every decoder should support (RFC 8878 section 3.1.1.1.2).
fn window_log(limit: usize) -> u32 {
    (usize::BITS - limit.saturating_sub(1).leading_zeros()).clamp(23, 27)
}

/// The fastest: at the sizes of messages the higher levels cost twice the time for a few percent.
const LEVEL: i32 = 1;
const BROKEN: Error = Error::Broken("not a zstd frame");
const NO_MEMORY: Error = Error::Broken("no memory for zstd");
