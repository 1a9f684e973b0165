//! Undoes the compression of what a peer sent.
//!
//! A kilobyte may expand to megabytes, which takes a tenth of a second. A server decompresses only short messages in place,
//! where other connections of the thread wait for it, and long ones on blocking threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use polyrpc_core::{Compression, Message, Retry, Status};
use polyrpc_payload::compress;
use polyrpc_wire::grpc;
use tokio::sync::Semaphore;

use crate::memory_budget;
use crate::memory_budget::Account;

/// How many bytes are made in place: less than a millisecond of work.
const IN_PLACE: usize = 256 << 10;

/// How many long messages are decompressed at once. Two stay within the memory budget of a server and 64 MiB beside it,
/// since each asks for the room that is free when it begins.
const AT_ONCE: usize = 2;

static ASIDE: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Arc::new(Semaphore::new((cores / 2).clamp(1, AT_ONCE)))
});

/// Bytes that were made aside, whatever became of them.
static MADE_ASIDE: AtomicUsize = AtomicUsize::new(0);

/// How many bytes were made aside since the process began. They may be gone without having been seen by a budget.
pub(crate) fn made_aside() -> usize {
    MADE_ASIDE.load(Ordering::Relaxed)
}

/// The result of decompression in place.
pub(crate) enum InPlace {
    Done(Bytes),
    /// The body as it was: what comes out of it is too long for that.
    TooLong(Bytes),
}

/// Undoes the compression of a body out of which no more than a short message comes.
pub(crate) fn decompress_in_place(
    compression: Compression,
    body: Bytes,
    limit: usize,
    account: &Account,
) -> Result<InPlace, Status> {
    if compression == Compression::None {
        return Ok(InPlace::Done(body));
    }
    if limit <= IN_PLACE {
        return decompress(compression, &body, limit, Some(account)).map(InPlace::Done);
    }
    let is_long = |length| length > IN_PLACE;
    if body.len() > IN_PLACE || compress::hint(compression, &body).is_some_and(is_long) {
        return Ok(InPlace::TooLong(body));
    }
    match compress::decompress(compression, &body, IN_PLACE.min(account.remaining())) {
        Ok(bytes) => {
            account.charge(bytes.len());
            Ok(InPlace::Done(bytes.into()))
        }
        Err(compress::Error::TooLarge { .. }) => Ok(InPlace::TooLong(body)),
        Err(error) => Err(failure(compression, &error)),
    }
}

/// Undoes the compression of a body of any length. What is long is made aside.
///
/// # Cancel safety
///
/// If the future is dropped, decompression that has begun goes on to its end, within its limit.
pub(crate) async fn decompress_aside(
    compression: Compression,
    body: Bytes,
    limit: usize,
    account: Arc<Account>,
) -> Result<Bytes, Status> {
    let body = match decompress_in_place(compression, body, limit, &account)? {
        InPlace::Done(bytes) => return Ok(bytes),
        InPlace::TooLong(body) => body,
    };
    let permit = ASIDE.clone().acquire_owned().await;
    let made = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let made = decompress(compression, &body, limit, Some(&account));
        MADE_ASIDE.fetch_add(made.as_ref().map_or(limit, Bytes::len), Ordering::Relaxed);
        made
    });
    made.await.unwrap_or_else(|error| Err(Status::internal(error.to_string())))
}

/// A body with its compression undone: `limit` bytes at most.
pub(crate) fn uncompressed(compression: Compression, body: Bytes, limit: usize) -> Result<Bytes, Status> {
    match compression {
        Compression::None => Ok(body),
        _ => decompress(compression, &body, limit, None),
    }
}

/// A message of a stream with its compression undone. Only gRPC compresses these.
pub(crate) fn decompress_message(message: Message, limit: usize) -> Result<Bytes, Status> {
    uncompressed(message.compression, message.body, limit).map_err(grpc::decompression_failed)
}

/// The same for a server: what is long is made aside.
///
/// # Cancel safety
///
/// As [`decompress_aside`].
pub(crate) async fn decompress_message_aside(
    message: Message,
    limit: usize,
    account: Arc<Account>,
) -> Result<Bytes, Status> {
    decompress_aside(message.compression, message.body, limit, account)
        .await
        .map_err(grpc::decompression_failed)
}

/// Decompresses a body to at most `limit` bytes, and to no more than its connection's account, if there is one, has free.
fn decompress(
    compression: Compression,
    body: &[u8],
    limit: usize,
    account: Option<&Account>,
) -> Result<Bytes, Status> {
    let free = account.map_or(usize::MAX, Account::remaining);
    match compress::decompress(compression, body, limit.min(free)) {
        Ok(bytes) => {
            if let Some(account) = account {
                account.charge(bytes.len());
            }
            Ok(bytes.into())
        }
        Err(compress::Error::TooLarge { .. }) if free < limit => Err(memory_budget::exhausted()),
        Err(error) => Err(failure(compression, &error)),
    }
}

#[cold]
fn failure(compression: Compression, error: &compress::Error) -> Status {
    let text = format!("cannot decompress {}: {error}", compression.as_str());
    match error {
        // Another server would not take it either.
        compress::Error::TooLarge { .. } => Status::resource_exhausted(text).with_retry(Retry::Never),
        _ => Status::invalid_argument(text),
    }
}
