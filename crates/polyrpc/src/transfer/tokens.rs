use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use polyrpc_core::Status;
use tokio::time::Instant;

use super::messages::{Grant, Token};
use super::{ByteStream, Work};
use crate::call::Context;
use crate::contention::{Mutex, MutexGuard};
use crate::transport::Address;

/// Handlers that wait for data connections.
///
/// ```text
///  0          8           16                32
///  +----------+-----------+-----------------+
///  |  prefix  |  number   |  secret         |   a token
///  +----------+-----------+-----------------+
/// ```
///
/// The prefix distinguishes a data connection from a connection for calls; the number identifies the waiting handler,
/// oldest first.
#[derive(Debug)]
pub(crate) struct DataConnections {
    waiting: Mutex<PendingTransfers>,
    max: usize,
    timeout: Duration,
    /// Addresses that accept data connections, once the server listens.
    addresses: OnceLock<Vec<Address>>,
}

#[derive(Debug, Default)]
struct PendingTransfers {
    next: u64,
    by_number: BTreeMap<u64, PendingTransfer>,
}

struct PendingTransfer {
    secret: [u8; 16],
    until: Instant,
    start: Start,
}

/// Starts the work on a data connection.
pub(crate) type Start = Box<dyn FnOnce(ByteStream) -> Work + Send>;

/// Result of matching the first bytes of a connection.
pub(crate) enum TokenMatch {
    /// It is not a data connection.
    No,
    /// It may be a data connection.
    NeedMore,
    /// It is a data connection; `None` if its token is invalid or expired.
    Token(Option<Start>),
}

impl DataConnections {
    pub(super) fn new(max: usize, timeout: Duration) -> Self {
        Self { waiting: Mutex::default(), max: max.max(1), timeout, addresses: OnceLock::new() }
    }

    /// Sets the addresses at which the server accepts data connections.
    pub(crate) fn listens(&self, addresses: Vec<Address>) {
        // A server starts listening only once.
        let _ = self.addresses.set(addresses);
    }

    /// Grants a token. If there are too many, the oldest one is revoked, as in rpcx.
    pub(super) fn grant(
        &self,
        cx: &Context,
        advertised: Option<&Arc<str>>,
        start: Start,
    ) -> Result<Grant, Status> {
        let mut secret = [0; 16];
        getrandom::fill(&mut secret)
            .map_err(|error| Status::internal(format!("the system gives no random numbers: {error}")))?;
        let addr = match advertised {
            Some(address) => address.to_string(),
            None => self.address(cx)?,
        };
        let number = self.insert(PendingTransfer { secret, until: Instant::now() + self.timeout, start });
        let token = [&PREFIX[..], &number.to_be_bytes(), &secret].concat();
        Ok(Grant { token: Token(token), addr })
    }

    /// Whether a connection that starts with these bytes is a data connection.
    pub(crate) fn recognise(&self, first_bytes: &[u8]) -> TokenMatch {
        let common = first_bytes.len().min(PREFIX.len());
        if first_bytes.is_empty() || first_bytes.get(..common) != PREFIX.get(..common) {
            return TokenMatch::No;
        }
        let Some((number, secret)) = parts(first_bytes) else { return TokenMatch::NeedMore };
        TokenMatch::Token(self.redeem(u64::from_be_bytes(number), secret))
    }

    /// Returns the local address of the caller's own connection, which it can reach again.
    fn address(&self, cx: &Context) -> Result<String, Status> {
        let addresses = self.addresses.get().map(Vec::as_slice).unwrap_or_default();
        if let Some(local) = cx.local().filter(|local| addresses.iter().any(|bound| is_at(bound, local))) {
            return Ok(local.to_string());
        }
        let over_tcp = addresses.iter().find(|address| matches!(address, Address::Tcp(_)));
        let address = over_tcp.or_else(|| addresses.first());
        address
            .map(Address::to_string)
            .ok_or_else(|| Status::unavailable("the server has no listener for data connections"))
    }

    fn insert(&self, entry: PendingTransfer) -> u64 {
        let now = Instant::now();
        let mut waiting = self.lock();
        let number = waiting.next;
        waiting.next += 1;
        let waits = &mut waiting.by_number;
        let mut over = Vec::new();
        while let Some(oldest) = waits.first_entry()
            && (oldest.get().until <= now || waits.len() >= self.max)
        {
            over.extend(waits.pop_first());
        }
        waits.insert(number, entry);
        drop(waiting);
        // Dropped outside of the lock, since it runs arbitrary code.
        drop(over);
        number
    }

    fn redeem(&self, number: u64, secret: [u8; 16]) -> Option<Start> {
        let mut waiting = self.lock();
        let known = waiting.by_number.get(&number)?;
        if !is_same(&known.secret, &secret) {
            return None;
        }
        let entry = waiting.by_number.remove(&number)?;
        drop(waiting);
        (Instant::now() < entry.until).then_some(entry.start)
    }

    fn lock(&self) -> MutexGuard<'_, PendingTransfers> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the listener with this bound address accepts connections at this local address.
fn is_at(bound: &Address, local: &SocketAddr) -> bool {
    let Address::Tcp(bound) = bound else { return false };
    bound.parse().is_ok_and(|bound: SocketAddr| {
        bound.port() == local.port() && (bound.ip().is_unspecified() || bound.ip() == local.ip())
    })
}

/// Splits a token into number and secret.
fn parts(token: &[u8]) -> Option<([u8; 8], [u8; 16])> {
    let (number, rest) = token.get(PREFIX.len()..)?.split_first_chunk()?;
    Some((*number, *rest.first_chunk()?))
}

/// Compares in constant time.
fn is_same(a: &[u8; 16], b: &[u8; 16]) -> bool {
    u128::from_ne_bytes(*a) ^ u128::from_ne_bytes(*b) == 0
}

/// Starts with a byte that occurs neither in UTF-8 nor in MessagePack, so that no protocol starts with it.
const PREFIX: [u8; 8] = *b"\xc1polyrpc";

/// Length of a token, as in rpcx.
pub(crate) const LENGTH: usize = 32;

const _: () = assert!(PREFIX.len() + 8 + 16 == LENGTH);

impl fmt::Debug for PendingTransfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The secret is not printed.
        f.debug_struct("PendingTransfer").field("until", &self.until).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(tokens: usize) -> DataConnections {
        let data = DataConnections::new(tokens, Duration::from_secs(30));
        data.listens(vec!["127.0.0.1:1".parse().unwrap()]);
        data
    }

    fn token(data: &DataConnections) -> Vec<u8> {
        let start: Start = Box::new(|_| Box::pin(async { Ok(()) }));
        data.grant(&Context::for_test(), None, start).unwrap().token.0
    }

    fn is_good(data: &DataConnections, token: &[u8]) -> bool {
        matches!(data.recognise(token), TokenMatch::Token(Some(_)))
    }

    #[tokio::test(start_paused = true)]
    async fn token_is_valid_once_and_expires() {
        let data = data(10);
        let (first, second) = (token(&data), token(&data));
        assert_eq!((first.len(), first != second), (LENGTH, true));
        assert!(is_good(&data, &first));
        assert!(!is_good(&data, &first));
        tokio::time::advance(data.timeout).await;
        assert!(!is_good(&data, &second));
    }

    #[tokio::test(start_paused = true)]
    async fn oldest_token_is_evicted_beyond_the_limit() {
        let data = data(2);
        let tokens: Vec<_> = (0..3).map(|_| token(&data)).collect();
        let good: Vec<_> = tokens.iter().map(|token| is_good(&data, token)).collect();
        assert_eq!(good, [false, true, true]);
    }

    #[tokio::test]
    async fn wrong_secret_does_not_invalidate_the_token() {
        let data = data(2);
        let right = token(&data);
        for bit in 64..LENGTH * 8 {
            let mut wrong = right.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_good(&data, &wrong));
        }
        assert!(is_good(&data, &right));
    }

    #[tokio::test]
    async fn bytes_with_another_prefix_are_not_a_token() {
        let data = data(1);
        let token = token(&data);
        assert!(matches!(data.recognise(b""), TokenMatch::No));
        assert!(matches!(data.recognise(b"PRPC"), TokenMatch::No));
        assert!(matches!(data.recognise(b"\xc1polyrpd"), TokenMatch::No));
        for end in 1..LENGTH {
            assert!(matches!(data.recognise(&token[..end]), TokenMatch::NeedMore));
        }
    }
}
