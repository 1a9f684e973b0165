//! zstd frames (RFC 8878).

use std::cell::RefCell;
use std::io;

use zstd::bulk::Compressor;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use super::{Error, Room, check};

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

/// Decompresses consecutive frames, like the `zstd` command.
pub(super) fn decompress(bytes: &[u8], room: &mut Room<'_>) -> Result<Vec<u8>, Error> {
    thread_local! {
        static STATE: RefCell<Option<Decoder<'static>>> = const { RefCell::new(None) };
    }
    let mut out = first_buffer(bytes, room)?;
    let usual = STATE.with_borrow_mut(|state| {
        let decoder = match state {
            Some(decoder) => decoder,
            None => state.insert(Decoder::new().map_err(|_| NO_MEMORY)?),
        };
        decoder.reinit().map_err(|_| BROKEN)?;
        stream(decoder, bytes, &mut out, room, USUAL_WINDOW)
    });
    match usual {
        Err(NO_MEMORY) => with_large_window(bytes, &mut out, room)?,
        usual => usual?,
    }
    Ok(out)
}

/// Uses a temporary decoder: a decoder keeps the memory of the largest window it ever had.
#[cold]
fn with_large_window(bytes: &[u8], out: &mut Vec<u8>, room: &mut Room<'_>) -> Result<(), Error> {
    let mut decoder = Decoder::new().map_err(|_| NO_MEMORY)?;
    out.clear();
    let window = window_log(room.limit);
    match stream(&mut decoder, bytes, out, room, window) {
        Err(NO_MEMORY) => Err(Error::Broken("the window of a zstd frame is larger than the limit")),
        decompressed => decompressed,
    }
}

/// # Errors
///
/// [`NO_MEMORY`] if a frame requires a window of more than two to the power of `window_log` bytes.
fn stream(
    decoder: &mut Decoder<'_>,
    bytes: &[u8],
    out: &mut Vec<u8>,
    room: &mut Room<'_>,
    window_log: u32,
) -> Result<(), Error> {
    decoder.set_parameter(DParameter::WindowLogMax(window_log)).map_err(|_| BROKEN)?;
    let mut input = InBuffer::around(bytes);
    loop {
        if out.len() == out.capacity() {
            room.grow(out)?;
        }
        let (had, taken) = (out.len(), input.pos());
        let mut output = OutBuffer::around_pos(out, had);
        let remaining = decoder.run(&mut input, &mut output).map_err(|error| failure(&error))?;
        check(out, room.limit)?;
        let all_taken = input.pos() == bytes.len();
        if remaining == 0 && all_taken {
            return Ok(());
        }
        if all_taken && out.len() == had && input.pos() == taken && out.len() < out.capacity() {
            return Err(Error::Broken("compressed data is cut short"));
        }
    }
}

/// The wrapper of zstd identifies errors by their text only (`zstd/lib/common/error_private.c`).
#[cold]
fn failure(error: &io::Error) -> Error {
    if error.to_string().contains("too much memory") { NO_MEMORY } else { BROKEN }
}

/// Returns the length that the first frame announces.
pub(super) fn hint(bytes: &[u8]) -> Option<usize> {
    let announced = zstd::zstd_safe::get_frame_content_size(bytes).ok().flatten()?;
    usize::try_from(announced).ok()
}

/// Allocates the output buffer: the announced length, if the input can produce that many bytes. With the whole buffer
/// available, zstd decodes in place, without a separate window.
fn first_buffer(bytes: &[u8], room: &mut Room<'_>) -> Result<Vec<u8>, Error> {
    let announced = zstd::zstd_safe::get_frame_content_size(bytes).map_err(|_| BROKEN)?;
    let Some(announced) = announced else { return room.first_buffer(bytes) };
    match usize::try_from(announced) {
        Ok(length) if length <= room.limit => {
            let length = length.min(most_of(bytes));
            room.reserve_exact(length)?;
            Ok(Vec::with_capacity(length))
        }
        _ => Err(Error::TooLarge { limit: room.limit }),
    }
}

/// Returns the maximum output of `bytes`: a block takes at least 4 bytes and produces at most 128 KiB.
fn most_of(bytes: &[u8]) -> usize {
    (bytes.len() / 4).saturating_mul(128 << 10)
}

/// Returns the largest allowed window of a frame, as a power of two: no larger than the output limit, but at least the
/// 8 MiB that every decoder should support (RFC 8878 section 3.1.1.1.2).
fn window_log(limit: usize) -> u32 {
    limit.max(1).ilog2().clamp(23, 27)
}

/// Largest window whose memory a thread keeps, as a power of two: 2 MiB, which the usual levels require.
const USUAL_WINDOW: u32 = 21;
/// The fastest level: for messages of typical size, higher levels take twice the time for a few percent.
const LEVEL: i32 = 1;
const BROKEN: Error = Error::Broken("not a zstd frame");
const NO_MEMORY: Error = Error::Broken("no memory for zstd");
