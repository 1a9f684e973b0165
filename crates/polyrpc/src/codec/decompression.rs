//! Decompression of received messages.
//!
//! A kilobyte may expand to megabytes, which takes a tenth of a second. A server decompresses only short messages in
//! place, where other connections of the thread wait, and long ones on blocking threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use polyrpc_core::{Compression, Message, Retry, Status};
use polyrpc_payload::compress;
use polyrpc_wire::grpc;

use super::long_work::{MAX_IN_PLACE_BYTES, on_blocking_pool};
use crate::memory_budget::{self, Account, GrowingReservation};

/// Bytes that were decompressed on blocking threads, whether they were used or not.
static DECOMPRESSED_ON_BLOCKING_POOL: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of bytes decompressed on blocking threads since the process started. They may have been freed
/// without being counted in a budget.
pub(crate) fn bytes_decompressed_on_blocking_pool() -> usize {
    DECOMPRESSED_ON_BLOCKING_POOL.load(Ordering::Relaxed)
}

/// Result of in-place decompression.
pub(crate) enum InPlace {
    Done(Bytes),
    /// The original body: its output is too long.
    TooLong(Bytes),
}

/// Decompresses a body in place if its output is short.
pub(crate) fn decompress_in_place(
    compression: Compression,
    body: Bytes,
    limit: usize,
    account: &Account,
) -> Result<InPlace, Status> {
    if compression == Compression::None {
        return Ok(InPlace::Done(body));
    }
    if limit <= MAX_IN_PLACE_BYTES {
        return decompress(compression, &body, limit, Some(account)).map(InPlace::Done);
    }
    let is_long = |length| length > MAX_IN_PLACE_BYTES;
    if body.len() > MAX_IN_PLACE_BYTES || compress::hint(compression, &body).is_some_and(is_long) {
        return Ok(InPlace::TooLong(body));
    }
    match compress::decompress(compression, &body, MAX_IN_PLACE_BYTES.min(account.remaining())) {
        Ok(bytes) => {
            account.charge(bytes.len());
            Ok(InPlace::Done(bytes.into()))
        }
        Err(compress::Error::TooLarge { .. }) => Ok(InPlace::TooLong(body)),
        Err(error) => Err(failure(compression, &error)),
    }
}

/// Decompresses a body of any length; a long one on a blocking thread.
///
/// # Cancel safety
///
/// If the future is dropped, decompression that has started runs to its end, within its limit.
pub(crate) async fn decompress_on_blocking_pool(
    compression: Compression,
    body: Bytes,
    limit: usize,
    account: Arc<Account>,
) -> Result<Bytes, Status> {
    let body = match decompress_in_place(compression, body, limit, &account)? {
        InPlace::Done(bytes) => return Ok(bytes),
        InPlace::TooLong(body) => body,
    };
    on_blocking_pool(move || {
        let made = decompress(compression, &body, limit, Some(&account));
        DECOMPRESSED_ON_BLOCKING_POOL.fetch_add(made.as_ref().map_or(limit, Bytes::len), Ordering::Relaxed);
        polyrpc_heap::mark_arena();
        made
    })
    .await
}

/// Decompresses a body to at most `limit` bytes.
pub(crate) fn decompress_body(compression: Compression, body: Bytes, limit: usize) -> Result<Bytes, Status> {
    match compression {
        Compression::None => Ok(body),
        _ => decompress(compression, &body, limit, None),
    }
}

/// Decompresses a message of a stream. Only gRPC compresses these.
pub(crate) fn decompress_message(message: Message, limit: usize) -> Result<Bytes, Status> {
    decompress_body(message.compression, message.body, limit).map_err(grpc::decompression_failed)
}

/// As [`decompress_message`] for a server: long messages use a blocking thread.
///
/// # Cancel safety
///
/// See [`decompress_on_blocking_pool`].
pub(crate) async fn decompress_message_on_blocking_pool(
    message: Message,
    limit: usize,
    account: Arc<Account>,
) -> Result<Bytes, Status> {
    decompress_on_blocking_pool(message.compression, message.body, limit, account)
        .await
        .map_err(grpc::decompression_failed)
}

/// Decompresses a body to at most `limit` bytes, and to no more than is free in its connection's budget, if there is
/// one. Memory counts in the budget before it is used.
fn decompress(
    compression: Compression,
    body: &[u8],
    limit: usize,
    account: Option<&Account>,
) -> Result<Bytes, Status> {
    let made = match account {
        None => compress::decompress(compression, body, limit),
        Some(account) => {
            let mut reserved = GrowingReservation::new(account);
            compress::decompress_reserving(compression, body, limit, &mut |bytes| reserved.grow(bytes))
        }
    };
    match made {
        Ok(bytes) => Ok(bytes.into()),
        Err(compress::Error::NoMemory) => Err(memory_budget::exhausted()),
        Err(error) => Err(failure(compression, &error)),
    }
}

#[cold]
fn failure(compression: Compression, error: &compress::Error) -> Status {
    let text = format!("cannot decompress {}: {error}", compression.as_str());
    match error {
        // Another server would reject it too.
        compress::Error::TooLarge { .. } => Status::resource_exhausted(text).with_retry(Retry::Never),
        _ => Status::invalid_argument(text),
    }
}
