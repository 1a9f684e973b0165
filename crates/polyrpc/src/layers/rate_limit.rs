use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, PoisonError};
use std::time::{Duration, Instant};

use polyrpc_core::Status;
use tokio::time::sleep;

use crate::call::{Connection, Outcome, Peer};
use crate::contention::Mutex;
use crate::layer::hook::Hook;
use crate::layer::{Call, Layer, Next};
use crate::runtime::now;

/// Rate limit of calls: a number per second, with bursts after idle time (a token bucket).
///
/// A call above the rate is rejected with the text that rpcx's clients know, `request reached rate limit`
/// ([`ResourceExhausted`](polyrpc_core::Code::ResourceExhausted); it may be retried elsewhere), or [waits](Self::max_wait)
/// for its turn.
///
/// ```
/// use std::time::Duration;
///
/// use polyrpc::Server;
/// use polyrpc::layers::RateLimit;
///
/// let server = Server::new()
///     .function("search", |word: String| async move { word })
///     // A thousand calls a second from everybody together, of which up to 200 may come at once.
///     .layer(RateLimit::new(1000.0, 200))
///     .layer(RateLimit::new(20.0, 5).per_peer())
///     .layer_on("search", RateLimit::new(50.0, 1).max_wait(Duration::from_millis(100)))
///     // New connections too.
///     .hook(RateLimit::new(100.0, 100).for_connections());
/// ```
pub struct RateLimit {
    pace: Gcra,
    per: Key,
    wait: Duration,
    began: Instant,
    /// The bucket, if all calls share one.
    shared: AtomicU64,
    /// The other buckets, sharded to reduce lock contention.
    parts: [Mutex<Buckets>; PARTS],
}

/// Which calls share a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Server,
    Connection,
    Method,
    Peer,
}

impl RateLimit {
    /// Limits calls to this rate per second, with bursts of up to `burst` calls, at least one.
    ///
    /// # Panics
    ///
    /// If the rate is not a positive number.
    pub fn new(per_second: f64, burst: u32) -> Self {
        Self {
            pace: Gcra::new(per_second, burst),
            per: Key::Server,
            wait: Duration::ZERO,
            began: now(),
            shared: AtomicU64::new(0),
            parts: Default::default(),
        }
    }

    /// Applies the rate to each connection separately.
    #[must_use]
    pub fn per_connection(self) -> Self {
        Self { per: Key::Connection, ..self }
    }

    /// Applies the rate to each method separately. On a server all subscriptions share one rate, whatever the topic, as
    /// do all calls of a [fallback](crate::Server::fallback).
    #[must_use]
    pub fn per_method(self) -> Self {
        Self { per: Key::Method, ..self }
    }

    /// Applies the rate to each caller's address separately, whatever the port; for IPv6 to each /64 network, since one
    /// caller owns as much. Peers without an address share one rate. If more than 65,536 peers use up their rate at a
    /// time, further ones share one.
    #[must_use]
    pub fn per_peer(self) -> Self {
        Self { per: Key::Peer, ..self }
    }

    /// Lets a call wait up to this long for its turn, but no longer than its caller's deadline. Waiting calls are calls
    /// in flight, and bounded as these are.
    #[must_use]
    pub fn max_wait(mut self, longest: Duration) -> Self {
        self.wait = longest;
        self
    }

    /// Limits connections instead of calls: a connection above the rate is closed (rpcx's `RateLimitingPlugin`).
    /// Applies to all callers together, or [per peer](Self::per_peer).
    pub fn for_connections(self) -> impl Hook {
        ConnectionRate(self)
    }

    /// Takes a token at `now`, or one that will be available within `longest`; returns how long that is.
    fn take(&self, key: Option<u128>, longest: Duration, now: Instant) -> Option<Duration> {
        let now = nanoseconds(now.saturating_duration_since(self.began));
        let longest = nanoseconds(longest);
        let taken = match key {
            None => self.take_shared(now, longest),
            Some(key) => {
                let mut buckets = self.part(key).lock().unwrap_or_else(PoisonError::into_inner);
                let empty_until = buckets.bucket(key, now);
                let taken = self.pace.take(*empty_until, now, longest);
                if let Some((until, _)) = taken {
                    *empty_until = until;
                }
                taken
            }
        };
        taken.map(|(_, wait)| Duration::from_nanos(wait))
    }

    fn take_shared(&self, now: u64, longest: u64) -> Option<(u64, u64)> {
        let mut empty_until = self.shared.load(Ordering::Relaxed);
        loop {
            let taken = self.pace.take(empty_until, now, longest)?;
            match self.shared.compare_exchange_weak(
                empty_until,
                taken.0,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(taken),
                Err(changed) => empty_until = changed,
            }
        }
    }

    fn part(&self, key: u128) -> &Mutex<Buckets> {
        // Neighbours in a network differ in the lowest bits, networks in the bits above.
        let mixed = (key ^ key >> 64) as u64;
        &self.parts[(mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize % PARTS]
    }

    fn key(&self, call: &Call) -> Option<u128> {
        let Some(cx) = call.context() else {
            return (self.per == Key::Method).then(|| u128::from(hash(call.service(), call.method())));
        };
        match self.per {
            Key::Server => None,
            Key::Connection => Some(cx.connection_id().into()),
            Key::Method => Some(cx.method_index() as u128),
            Key::Peer => Some(peer_key(cx.peer())),
        }
    }
}

/// A client's calls share one rate, or have one for each method; rates per connection or per peer are for servers.
impl Layer for RateLimit {
    async fn call(self: Arc<Self>, mut call: Call, next: Next) -> Outcome {
        let longest = call.remaining().map_or(self.wait, |remaining| remaining.min(self.wait));
        match self.take(self.key(&call), longest, now()) {
            None => Outcome::failed(too_soon()),
            Some(Duration::ZERO) => next.call(call).await,
            Some(wait) => {
                let deadline = call.remaining().and_then(|remaining| now().checked_add(remaining));
                sleep(wait).await;
                call.set_deadline(deadline);
                next.call(call).await
            }
        }
    }
}

/// Methods with the same hash share a rate.
fn hash(service: &str, method: &str) -> u64 {
    static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    HASHER.hash_one((service, method))
}

/// rpcx `server/errors.go`, `ErrReqReachLimit`.
#[cold]
fn too_soon() -> Status {
    Status::resource_exhausted("request reached rate limit")
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("pace", &self.pace)
            .field("per", &self.per)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

/// Rate limit of connections; see [`RateLimit::for_connections`].
struct ConnectionRate(RateLimit);

impl Hook for ConnectionRate {
    fn on_accept(&self, connection: &Connection) -> Result<(), Status> {
        let key = (self.0.per == Key::Peer).then(|| peer_key(&connection.peer));
        match self.0.take(key, Duration::ZERO, now()) {
            Some(_) => Ok(()),
            None => Err(Status::resource_exhausted("too many connections at a time")),
        }
    }
}

/// The generic cell rate algorithm: a bucket is one number, the time at which all its tokens are restored.
#[derive(Debug, Clone, Copy)]
struct Gcra {
    /// Nanoseconds from one token to the next.
    interval: u64,
    /// Nanoseconds' worth of tokens that may be missing.
    tolerance: u64,
}

impl Gcra {
    fn new(per_second: f64, burst: u32) -> Self {
        assert!(per_second > 0.0, "a rate is a positive number, not {per_second}");
        // A float's conversion to an integer saturates.
        let interval = ((1e9 / per_second) as u64).max(1);
        Self { interval, tolerance: interval.saturating_mul(u64::from(burst.max(1) - 1)) }
    }

    /// Takes a token out of the bucket that is full at `whole`. Returns when the bucket will then be full, and the time
    /// until the token is available.
    fn take(self, whole: u64, now: u64, longest: u64) -> Option<(u64, u64)> {
        let begin = whole.max(now);
        let wait = begin.saturating_sub(now.saturating_add(self.tolerance));
        (wait <= longest).then(|| (begin.saturating_add(self.interval), wait))
    }
}

/// Buckets that are not full; a full one need not be stored.
#[derive(Debug, Default)]
struct Buckets {
    whole_at: HashMap<u128, u64>,
    swept: u64,
}

impl Buckets {
    fn bucket(&mut self, key: u128, now: u64) -> &mut u64 {
        if self.whole_at.len() >= MAX_BUCKETS && !self.whole_at.contains_key(&key) {
            if now.saturating_sub(self.swept) >= MIN_SWEEP_INTERVAL_NANOS {
                self.swept = now;
                self.whole_at.retain(|_, whole_at| *whole_at > now);
            }
            if self.whole_at.len() >= MAX_BUCKETS {
                return self.whole_at.entry(OVERFLOW_KEY).or_default();
            }
        }
        self.whole_at.entry(key).or_default()
    }
}

/// Returns the key of callers from one address.
fn peer_key(peer: &Peer) -> u128 {
    match peer.address().map(|address| address.ip().to_canonical()) {
        Some(IpAddr::V4(address)) => address.to_ipv6_mapped().to_bits(),
        Some(IpAddr::V6(address)) => address.to_bits() & (u128::MAX << 64),
        None => OVERFLOW_KEY,
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

const PARTS: usize = 16;
/// Maximum number of buckets per shard.
const MAX_BUCKETS: usize = 4096;
/// Nanoseconds between two sweeps of full buckets.
const MIN_SWEEP_INTERVAL_NANOS: u64 = 100_000_000;
/// Key of the bucket that all callers without a bucket of their own share. No address or connection id equals it.
const OVERFLOW_KEY: u128 = u128::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;

    #[tokio::test(start_paused = true)]
    async fn calls_over_the_rate_are_rejected_or_delayed() {
        let client = Client::mock(|call| Ok(call.body));
        let limited = client.layered(RateLimit::new(0.001, 1).per_method());
        limited.call::<()>("S/a", &()).await.unwrap();
        limited.call::<()>("S/b", &()).await.unwrap();
        let refused = limited.call::<()>("S/a", &()).await.unwrap_err();
        assert_eq!(refused.message(), "request reached rate limit");
        let waiting = client.layered(RateLimit::new(1.0, 1).max_wait(ms(5000)));
        let began = tokio::time::Instant::now();
        waiting.call::<()>("S/a", &()).await.unwrap();
        waiting.call::<()>("S/a", &()).await.unwrap();
        assert_eq!(began.elapsed(), ms(1000));
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_are_restored_by_the_clock_of_the_runtime() {
        let limited = Client::mock(|call| Ok(call.body)).layered(RateLimit::new(1.0, 1));
        for _ in 0..3 {
            limited.call::<()>("S/a", &()).await.unwrap();
            limited.call::<()>("S/a", &()).await.unwrap_err();
            tokio::time::advance(ms(1000)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_a_token_is_part_of_the_timeout() {
        let (sender, mut left) = tokio::sync::mpsc::unbounded_channel();
        let client = Client::mock(move |call| {
            let _ = sender.send(call.options.timeout);
            Ok(call.body)
        });
        let limited = client.layered(RateLimit::new(1.0 / 0.6, 1).max_wait(ms(5000)));
        let call = || async {
            let request = crate::client::Request::new(()).with_timeout(ms(1000));
            limited.call_with::<()>("S/a", request).await
        };
        call().await.unwrap();
        call().await.unwrap();
        assert_eq!(left.recv().await.unwrap(), Some(ms(1000)));
        assert_eq!(left.recv().await.unwrap(), Some(ms(400)));
    }

    #[tokio::test(start_paused = true)]
    async fn call_that_cannot_wait_long_enough_is_rejected_at_once() {
        let limited = Client::mock(|call| Ok(call.body)).layered(RateLimit::new(1.0, 1).max_wait(ms(10_000)));
        limited.call::<()>("S/a", &()).await.unwrap();
        let began = tokio::time::Instant::now();
        let request = crate::client::Request::new(()).with_timeout(ms(100));
        let error = limited.call_with::<()>("S/a", request).await.unwrap_err();
        assert_eq!(error.message(), "request reached rate limit");
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Returns how many of this many simultaneous calls are accepted.
    fn count_taken(limit: &RateLimit, key: Option<u128>, calls: usize, now: Instant) -> usize {
        (0..calls).filter(|_| limit.take(key, Duration::ZERO, now).is_some()).count()
    }

    #[test]
    fn burst_is_admitted_and_then_one_call_per_interval() {
        for key in [None, Some(7)] {
            let (limit, now) = (RateLimit::new(100.0, 5), Instant::now());
            assert_eq!(count_taken(&limit, key, 9, now), 5);
            assert_eq!(count_taken(&limit, key, 9, now + ms(9)), 0);
            assert_eq!(count_taken(&limit, key, 9, now + ms(10)), 1);
            assert_eq!(count_taken(&limit, key, 9, now + ms(35)), 2);
            // However long there are no calls, at most the burst is saved.
            assert_eq!(count_taken(&limit, key, 9, now + ms(60_000)), 5);
        }
    }

    #[test]
    fn waiting_calls_are_admitted_in_order_within_their_patience() {
        let (limit, now) = (RateLimit::new(100.0, 1), Instant::now());
        let waits: Vec<_> = (0..5).map(|_| limit.take(None, ms(30), now)).collect();
        assert_eq!(waits, [Some(ms(0)), Some(ms(10)), Some(ms(20)), Some(ms(30)), None]);
        assert_eq!(limit.take(None, ms(30), now + ms(10)), Some(ms(30)));
    }

    #[test]
    fn each_key_has_its_own_limit() {
        let (limit, now) = (RateLimit::new(1.0, 2), Instant::now());
        assert_eq!([1, 2, 1, 2].map(|key| count_taken(&limit, Some(key), 2, now)), [2, 2, 0, 0]);
    }

    #[test]
    fn flood_of_new_keys_is_bounded_and_keeps_known_keys() {
        let (limit, now) = (RateLimit::new(1.0, 2), Instant::now());
        assert_eq!(count_taken(&limit, Some(1), 1, now), 1);
        let keys = (PARTS * MAX_BUCKETS * 2) as u128;
        let admitted = (2..keys).filter(|key| limit.take(Some(*key), Duration::ZERO, now).is_some());
        let admitted = admitted.count();
        let kept: usize = limit.parts.iter().map(|part| part.lock().unwrap().whole_at.len()).sum();
        assert!(kept <= PARTS * (MAX_BUCKETS + 1), "{kept}");
        assert!(admitted <= kept + 2 * PARTS, "{admitted}");
        assert_eq!(count_taken(&limit, Some(1), 9, now), 1);
        // When the flood is over, its buckets are removed.
        assert_eq!(count_taken(&limit, Some(keys), 9, now + ms(2_000)), 2);
    }

    #[test]
    fn callers_are_keyed_by_ipv4_address_or_ipv6_network() {
        let key = |text: &str| peer_key(&Peer::Tcp(text.parse().unwrap()));
        assert_eq!(key("1.2.3.4:1"), key("1.2.3.4:2"));
        assert_eq!(key("1.2.3.4:1"), key("[::ffff:1.2.3.4]:1"));
        assert_ne!(key("1.2.3.4:1"), key("1.2.3.5:1"));
        assert_eq!(key("[2001:db8::1]:1"), key("[2001:db8::ffff:2]:1"));
        assert_ne!(key("[2001:db8::1]:1"), key("[2001:db8:0:1::1]:1"));
    }

    #[test]
    #[should_panic(expected = "a rate is a positive number")]
    fn invalid_rate_panics() {
        let _ = RateLimit::new(f64::NAN, 1);
    }
}
