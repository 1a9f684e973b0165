//! Room for the responses of calls that a proxy forwards, reserved before they are forwarded.
//!
//! Most protocols cannot cancel a call, and their responses share a connection: what a proxy has requested it must
//! receive, whether the caller reads or not, before the responses that other callers wait for. So it requests no more
//! than it has room for. All expected responses may take a quarter of the budget, and half of it together with what is
//! held already; those of one connection a quarter of the rest ("dynamic thresholds", as for held bytes). A connection
//! whose peer does not read gets no more, and one that has nothing unread may always expect one response.
//!
//! Unread responses wait for the socket, or in the session: for the windows of their streams, or for earlier responses.
//! The other callers of a proxy's HTTP/2 connection may read fast, so what waits in the session only counts as memory
//! while the peer reads anything.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::{Account, Quotas, SharedUsage};
use crate::contention::Mutex;

/// Responses that the calls of one connection will have. Created with the first reservation: most connections never
/// have any.
#[derive(Debug, Default)]
pub(super) struct ExpectedResponses {
    /// Bytes that are reserved for them.
    bytes: AtomicUsize,
    /// Bytes of earlier responses that wait for the socket, as the connection's task last reported.
    unwritten: AtomicUsize,
    /// Bytes of earlier responses that wait in the session.
    unsent: AtomicUsize,
    /// Bytes written to the peer, as the task last reported, and as it had when room was last reserved.
    written: AtomicU64,
    written_before: AtomicU64,
    progress: Mutex<Progress>,
    /// Calls that wait for room.
    waiting: AtomicUsize,
    /// Held by the call whose turn it is to wait for room; others wait for their turns in the order of their arrival.
    turn: tokio::sync::Mutex<()>,
    /// Notified when there may be more room.
    changed: Notify,
    /// Notified when responses that the peer did not read were given up.
    given_up: Notify,
}

/// When the peer has last read something.
#[derive(Debug, Default)]
struct Progress {
    /// Bytes that had been written by then.
    written: u64,
    at: Option<Instant>,
}

/// Bytes of responses that a peer may leave unread before its calls get no more room. That is enough to send until the
/// next responses arrive.
const MAX_UNREAD_BYTES: usize = 1 << 20;

/// Bytes that show that a peer reads responses: more than the heads of those whose bodies it does not read.
const MIN_PROGRESS_BYTES: u64 = 64 << 10;

/// Interval between a waiting call's checks for memory that other connections have released.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

impl Account {
    /// Reports the bytes that were written to the peer so far, and those of responses that wait for the socket and in
    /// the session.
    #[inline]
    pub(crate) fn report_output(&self, written: u64, unwritten: usize, unsent: usize) {
        if let Some(expected) = self.expected.get() {
            expected.report_output(written, unwritten, unsent);
        }
    }

    /// Reports a response before it is written. The next [`report_output`](Self::report_output) includes it.
    #[inline]
    pub(crate) fn add_unread(&self, bytes: usize) {
        if let Some(expected) = self.expected.get() {
            expected.unwritten.fetch_add(bytes, Relaxed);
        }
    }

    /// Reports that responses were given up because the peer did not read them. Calls that have waited for room behind
    /// them fail, since otherwise each would wait for the end of the one before it.
    #[cold]
    pub(crate) fn responses_given_up(&self) {
        if let Some(expected) = self.expected.get() {
            expected.given_up.notify_waiters();
        }
    }

    /// Returns the number of calls that wait for room for their responses, so that they are no reason to wait for a peer
    /// that reads nothing.
    pub(crate) fn calls_without_room(&self) -> usize {
        self.expected.get().map_or(0, |expected| expected.waiting.load(Relaxed))
    }

    fn expected_responses(&self) -> &ExpectedResponses {
        self.expected.get_or_init(Box::default)
    }

    /// Reserves room for a response, if there is some.
    fn reserve_response(self: &Arc<Self>, bytes: usize, patience: Duration) -> Option<ReservedResponse> {
        let expected = self.expected_responses();
        if bytes > 0 && !expected.is_read(patience) {
            return None;
        }
        let (own, unsent) = (expected.bytes.load(Relaxed), expected.unsent.load(Relaxed));
        let unread = unsent.saturating_add(expected.unwritten.load(Relaxed));
        let fits = || self.has_room_for(own.saturating_add(bytes), unread);
        (bytes == 0 || own == 0 && unsent < MAX_UNREAD_BYTES || fits()).then(|| {
            expected.written_before.store(expected.written.load(Relaxed), Relaxed);
            ReservedResponse::new(self.clone(), bytes)
        })
    }

    /// Returns whether the connection's responses may have so many bytes: those that are expected, and the unread ones.
    fn has_room_for(&self, expected: usize, unread: usize) -> bool {
        let Quotas { server, peer, .. } = *self.quotas;
        let has_room = |usage: &SharedUsage, quota: usize| {
            let all_expected = usage.held.expected.load(Relaxed);
            let used = usage.bytes().saturating_add(all_expected);
            expected <= (quota / 4).saturating_sub(all_expected) / 4
                && expected.saturating_add(unread) <= (quota / 2).saturating_sub(used) / 4
        };
        has_room(&self.server, server.bytes) && has_room(&self.peer, peer.bytes)
    }
}

impl ExpectedResponses {
    fn report_output(&self, written: u64, unwritten: usize, unsent: usize) {
        let before = self.unwritten.load(Relaxed).saturating_add(self.unsent.load(Relaxed));
        self.written.store(written, Relaxed);
        self.unwritten.store(unwritten, Relaxed);
        self.unsent.store(unsent, Relaxed);
        if unwritten.saturating_add(unsent) < before {
            self.changed.notify_one();
        }
    }

    /// Whether the peer reads its responses.
    fn is_read(&self, patience: Duration) -> bool {
        let written = self.written.load(Relaxed);
        // A stream may keep the connection's output full, though its peer reads fast.
        let read = written.saturating_sub(self.written_before.load(Relaxed));
        let most_unwritten = usize::try_from(read).unwrap_or(usize::MAX).saturating_add(MAX_UNREAD_BYTES);
        self.unwritten.load(Relaxed) < most_unwritten
            && (self.unsent.load(Relaxed) < MAX_UNREAD_BYTES || self.has_read_within(patience / 2, written))
    }

    fn has_read_within(&self, time: Duration, written: u64) -> bool {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if written.saturating_sub(progress.written) >= MIN_PROGRESS_BYTES {
            *progress = Progress { written, at: Some(Instant::now()) };
        }
        progress.at.is_some_and(|at| at.elapsed() < time)
    }
}

/// Where the responses to one connection get room.
#[derive(Debug, Clone)]
pub(crate) struct ResponseRoom {
    account: Arc<Account>,
    /// How long a peer may read nothing.
    patience: Duration,
}

impl ResponseRoom {
    pub(crate) fn new(account: Arc<Account>, patience: Duration) -> Self {
        Self { account, patience }
    }

    /// Reserves room for a response, if there is some and no other call of the connection waits for it.
    pub(crate) fn try_reserve(&self, bytes: usize) -> Option<ReservedResponse> {
        let _turn = self.account.expected_responses().turn.try_lock().ok()?;
        self.account.reserve_response(bytes, self.patience)
    }

    /// Waits until there is room for a response of as many bytes as `expected` then returns, and reserves it. Returns
    /// `None` if the peer does not read its earlier responses.
    pub(crate) async fn reserve(&self, expected: impl Fn() -> usize) -> Option<ReservedResponse> {
        let _waiting = WaitingCall::new(&self.account);
        tokio::select! {
            biased;
            () = self.wait_for_given_up() => None,
            reserved = self.room(expected) => Some(reserved),
        }
    }

    /// Waits until responses are given up that were not read for most of the time that this waits. Not for all of it:
    /// the calls of a flood are taken later than the first responses come.
    async fn wait_for_given_up(&self) {
        let started = Instant::now();
        loop {
            self.account.expected_responses().given_up.notified().await;
            if started.elapsed() >= self.patience / 2 {
                return;
            }
        }
    }

    async fn room(&self, expected: impl Fn() -> usize) -> ReservedResponse {
        let ExpectedResponses { turn, changed, .. } = self.account.expected_responses();
        let _turn = turn.lock().await;
        loop {
            if let Some(reserved) = self.account.reserve_response(expected(), self.patience) {
                return reserved;
            }
            let _ = timeout(RETRY_INTERVAL, changed.notified()).await;
        }
    }
}

/// A call that waits for room for as long as this lives.
struct WaitingCall<'a>(&'a ExpectedResponses);

impl<'a> WaitingCall<'a> {
    fn new(account: &'a Account) -> Self {
        let expected = account.expected_responses();
        expected.waiting.fetch_add(1, Relaxed);
        Self(expected)
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

/// Room that is reserved for a response for as long as this lives.
#[derive(Debug)]
pub(crate) struct ReservedResponse {
    account: Arc<Account>,
    bytes: usize,
}

impl ReservedResponse {
    fn new(account: Arc<Account>, bytes: usize) -> Self {
        account.expected_responses().bytes.fetch_add(bytes, Relaxed);
        for usage in [&account.server, &account.peer] {
            usage.held.expected.fetch_add(bytes, Relaxed);
        }
        Self { account, bytes }
    }
}

impl Drop for ReservedResponse {
    fn drop(&mut self) {
        let Self { account, bytes } = self;
        for usage in [&account.server, &account.peer] {
            usage.held.expected.fetch_sub(*bytes, Relaxed);
        }
        let expected = account.expected_responses();
        expected.bytes.fetch_sub(*bytes, Relaxed);
        expected.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MemoryBudget, Quota};
    use super::*;

    const MIB: usize = 1 << 20;
    const PATIENCE: Duration = Duration::from_secs(1);

    /// Connections to a server with this budget.
    fn connections(n: usize, budget: &MemoryBudget) -> Vec<ResponseRoom> {
        let server = Quota { bytes: budget.bytes(), ..Quota::NONE };
        let quotas = Arc::new(Quotas { server, peer: Quota::NONE, connection: Quota::NONE });
        let (server, peer) = (Arc::new(budget.server_usage()), Arc::<SharedUsage>::default());
        let account = || Arc::new(Account::new(quotas.clone(), server.clone(), peer.clone()));
        let rooms: Vec<_> = (0..n).map(|_| ResponseRoom::new(account(), PATIENCE)).collect();
        // From now on the reports of their tasks count.
        rooms.iter().for_each(|room| assert!(room.try_reserve(0).is_some()));
        rooms
    }

    fn fill(room: &ResponseRoom) -> Vec<ReservedResponse> {
        std::iter::from_fn(|| room.try_reserve(MIB)).collect()
    }

    #[test]
    fn all_expected_responses_take_at_most_a_quarter_of_the_budget() {
        let budget = MemoryBudget::new(64 * MIB);
        let rooms = connections(20, &budget);
        let reserved: Vec<_> = rooms.iter().map(fill).collect();
        let counts: Vec<_> = reserved.iter().map(Vec::len).collect();
        assert!((2..=4).contains(&counts[0]), "{counts:?}");
        assert!(counts.is_sorted_by(|one, next| one >= next), "{counts:?}");
        assert!(counts.iter().all(|count| *count >= 1), "{counts:?}");
        // Besides, one for each connection that came too late.
        let beyond = counts.iter().filter(|count| **count == 1).count();
        assert!(counts.iter().sum::<usize>() <= 16 + beyond, "{counts:?}");
        drop(reserved);
        assert_eq!(rooms[0].account.server.held.expected.load(Relaxed), 0);
        assert_eq!(fill(&rooms[19]).len(), counts[0]);
    }

    #[test]
    fn unread_responses_leave_no_room_for_more() {
        let budget = MemoryBudget::new(64 * MIB);
        let rooms = connections(2, &budget);
        rooms[0].account.report_output(0, MAX_UNREAD_BYTES, 0);
        assert!(rooms[0].try_reserve(1).is_none());
        assert!(rooms[0].try_reserve(0).is_some(), "a small response needs no room");
        assert!(rooms[1].try_reserve(1).is_some());
        rooms[0].account.report_output(0, MAX_UNREAD_BYTES - 1, 0);
        assert!(rooms[0].try_reserve(100 * MIB).is_some(), "one may always be expected");
    }

    #[test]
    fn peer_that_reads_a_full_output_gets_room_for_one_response_after_the_other() {
        let budget = MemoryBudget::new(64 * MIB);
        let room = connections(1, &budget).remove(0);
        room.account.report_output(0, 4 * MIB, 0);
        for read in 1..=3 {
            assert!(room.try_reserve(20 * MIB).is_none());
            room.account.report_output(read * (3 * MIB as u64 + 1), 4 * MIB, 0);
            let reserved = room.try_reserve(20 * MIB);
            assert!(reserved.is_some(), "after {read} times 3 MiB");
            assert!(room.try_reserve(20 * MIB).is_none());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn responses_that_wait_for_windows_leave_room_while_the_peer_reads_others() {
        let budget = MemoryBudget::new(64 * MIB);
        let room = connections(1, &budget).remove(0);
        room.account.report_output(MIN_PROGRESS_BYTES - 1, 0, 4 * MIB);
        assert_eq!(fill(&room).len(), 0, "it has read no more than heads");
        room.account.report_output(MIN_PROGRESS_BYTES, 0, 4 * MIB);
        assert_eq!(fill(&room).len(), 3);
        room.account.report_output(2 * MIN_PROGRESS_BYTES, 0, 20 * MIB);
        assert!(room.try_reserve(MIB).is_none(), "they fill the connection's room");
        room.account.report_output(2 * MIN_PROGRESS_BYTES, 0, 4 * MIB);
        assert!(room.try_reserve(MIB).is_some());
        tokio::time::sleep(PATIENCE / 2).await;
        assert!(room.try_reserve(MIB).is_none(), "it has stopped reading");
    }

    #[test]
    fn held_bytes_leave_less_room() {
        let budget = MemoryBudget::new(64 * MIB);
        let rooms = connections(2, &budget);
        rooms[1].account.report_held(40 * MIB);
        assert_eq!(fill(&rooms[0]).len(), 1);
        rooms[1].account.report_held(0);
        assert!(fill(&rooms[0]).len() > 1);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_get_room_in_the_order_of_their_arrival() {
        let budget = MemoryBudget::new(8 * MIB);
        let room = connections(1, &budget).remove(0);
        let mut first = room.try_reserve(4 * MIB);
        assert!(first.is_some());
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let mut waiting = tokio::task::JoinSet::new();
        for n in 0..3 {
            let (room, order) = (room.clone(), order.clone());
            waiting.spawn(async move {
                let reserved = room.reserve(|| 4 * MIB).await;
                order.lock().unwrap().push(n);
                reserved
            });
            tokio::task::yield_now().await;
        }
        for done in 1..=3 {
            assert!(room.try_reserve(1).is_none(), "a later call would overtake");
            drop(first.take());
            first = waiting.join_next().await.and_then(Result::unwrap);
            assert!(first.is_some());
            assert_eq!(order.lock().unwrap().len(), done);
        }
        assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
    }

    /// Lets others run for this long, and reports then that responses were given up.
    async fn give_up_after(room: &ResponseRoom, time: Duration) {
        tokio::time::sleep(time).await;
        room.account.report_output(0, 0, 0);
        room.account.responses_given_up();
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_have_waited_for_responses_that_are_given_up_fail_together() {
        const CALLS: usize = 20;
        let budget = MemoryBudget::new(64 * MIB);
        let room = connections(1, &budget).remove(0);
        room.account.report_output(0, 0, 2 * MIB);
        let calls = futures_util::future::join_all((0..CALLS).map(|_| room.reserve(|| MIB)));
        let watch = async {
            give_up_after(&room, PATIENCE).await;
            assert_eq!(room.account.calls_without_room(), CALLS);
        };
        let (reserved, ()) = tokio::join!(calls, watch);
        assert!(reserved.iter().all(Option::is_none), "{reserved:?}");
        assert_eq!(room.account.calls_without_room(), 0);
        assert!(room.try_reserve(MIB).is_some(), "none keeps its turn");
    }

    #[tokio::test(start_paused = true)]
    async fn call_that_came_when_responses_were_nearly_given_up_gets_their_room() {
        let budget = MemoryBudget::new(64 * MIB);
        let room = connections(1, &budget).remove(0);
        room.account.report_output(0, 0, 2 * MIB);
        let (reserved, ()) = tokio::join!(room.reserve(|| MIB), give_up_after(&room, PATIENCE / 4));
        assert!(reserved.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_call_gets_room_once_its_response_turns_out_to_be_small() {
        let budget = MemoryBudget::new(64 * MIB);
        let room = connections(1, &budget).remove(0);
        room.account.report_output(0, 2 * MIB, 0);
        let expected = AtomicUsize::new(MIB);
        let learn = async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            expected.store(0, Relaxed);
        };
        let (reserved, ()) = tokio::join!(room.reserve(|| expected.load(Relaxed)), learn);
        assert!(reserved.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn call_waits_for_those_before_it_as_long_as_they_take() {
        let budget = MemoryBudget::new(8 * MIB);
        let room = connections(1, &budget).remove(0);
        let first = room.try_reserve(4 * MIB);
        let answered = async {
            tokio::time::sleep(Duration::from_secs(600)).await;
            drop(first);
        };
        let (reserved, ()) = tokio::join!(room.reserve(|| 4 * MIB), answered);
        assert!(reserved.is_some());
    }
}
