use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use polyrpc_kcp::{EndReason, OpenedDatagram, Session};
use tokio::net::UdpSocket;

use super::timers::{SetTimers, Timers};
use crate::contention::{Mutex, MutexGuard};
use crate::transport::{Evictable, EvictionClass};

/// State that a conversation's stream shares with the task that owns its socket.
pub(super) struct Conversation {
    state: Mutex<State>,
    outlet: Arc<Outlet>,
    peer: SocketAddr,
}

/// State of a conversation after a datagram.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConversationState {
    /// Whether the peer's address is validated.
    pub(super) is_validated: bool,
    /// Whether the conversation has ended.
    pub(super) is_over: bool,
}

/// Socket and timers that all conversations of a socket share.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) socket: UdpSocket,
    pub(super) timers: Timers<Conversation>,
    /// The socket is connected to a single peer.
    pub(super) is_connected: bool,
}

#[derive(Debug)]
struct State {
    session: Session,
    timers: SetTimers,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// The stream is closed: nothing reads from it any more.
    shut: bool,
    /// The server's connection, from when it was accepted until it is closed.
    connection: Option<Arc<dyn Evictable>>,
    /// The socket's error.
    broken: Option<io::ErrorKind>,
}

impl Conversation {
    pub(super) fn new(outlet: Arc<Outlet>, peer: SocketAddr, session: Session) -> Arc<Self> {
        let state = State {
            session,
            timers: SetTimers::default(),
            reader: None,
            writer: None,
            shut: false,
            connection: None,
            broken: None,
        };
        let conversation = Arc::new(Self { state: Mutex::new(state), outlet, peer });
        let mut state = conversation.lock();
        conversation.flush_datagrams(&mut state);
        drop(state);
        conversation
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Handles a datagram.
    pub(super) fn handle(self: &Arc<Self>, datagram: OpenedDatagram<'_>) -> ConversationState {
        let mut state = self.lock();
        state.session.handle(self.outlet.timers.now(), datagram);
        let is_validated = state.session.is_validated();
        self.flush_datagrams(&mut state);
        let is_over = state.is_over();
        wake(state);
        ConversationState { is_validated, is_over }
    }

    /// Probes the peer.
    pub(super) fn connect(self: &Arc<Self>) {
        let mut state = self.lock();
        state.session.connect(self.outlet.timers.now());
        self.flush_datagrams(&mut state);
        wake(state);
    }

    /// Sets whether the peer owes replies.
    pub(super) fn expect_replies(self: &Arc<Self>, are_expected: bool) {
        let mut state = self.lock();
        state.session.expect_replies(self.outlet.timers.now(), are_expected);
        self.flush_datagrams(&mut state);
    }

    /// Waits until the peer has answered.
    pub(super) fn poll_connected(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.lock();
        state.check()?;
        if state.session.is_connected() {
            return Poll::Ready(Ok(()));
        }
        register_waker(&mut state.writer, cx.waker());
        Poll::Pending
    }

    /// Performs the work due when a timer expires. Returns whether the conversation has ended.
    pub(super) fn on_timer(self: &Arc<Self>) -> bool {
        let now = self.outlet.timers.now();
        let mut state = self.lock();
        if state.timers.expire(now) {
            state.session.wake(now);
            if state.session.is_settled() && !state.session.is_readable() {
                state.session.shrink();
            }
            self.flush_datagrams(&mut state);
        }
        let is_over = state.is_over();
        wake(state);
        is_over
    }

    /// Ends it if possible, to free its slot. Returns whether it has ended.
    pub(super) fn give_up(&self) -> bool {
        let mut state = self.lock();
        let ended = state.session.give_up();
        wake(state);
        ended
    }

    /// Ends it in favour of another one. Counted if its address is validated: others are evicted by any flood.
    pub(super) fn evict(self: &Arc<Self>) {
        let mut state = self.lock();
        state.session.evict(self.outlet.timers.now());
        self.flush_datagrams(&mut state);
        let connection = state.connection.take().filter(|_| state.session.is_validated());
        wake(state);
        if let Some(connection) = connection {
            connection.evict();
        }
    }

    /// Sets the server's connection.
    pub(super) fn set_connection(&self, connection: Arc<dyn Evictable>) {
        self.lock().connection = Some(connection);
    }

    /// Returns how dispensable it is: the smallest first.
    pub(super) fn eviction(&self) -> (EvictionClass, u32) {
        let state = self.lock();
        match &state.connection {
            _ if state.shut => (EvictionClass::Closed, 0),
            Some(connection) => connection.eviction(),
            // It is about to be accepted.
            None => (EvictionClass::Calling, u32::MAX),
        }
    }

    /// Returns the bytes that it buffers.
    pub(super) fn buffered_bytes(&self) -> usize {
        self.lock().session.buffered_bytes()
    }

    /// Returns whether it has ended.
    pub(super) fn is_over(&self) -> bool {
        self.lock().is_over()
    }

    /// Ends it, since the peer has started another one.
    pub(super) fn replace(&self) {
        let mut state = self.lock();
        state.session.replace();
        wake(state);
    }

    /// Lets it end as soon as it is closed and the peer has acknowledged everything.
    pub(super) fn end_when_settled(self: &Arc<Self>) {
        let mut state = self.lock();
        state.session.end_when_settled();
        self.flush_datagrams(&mut state);
    }

    /// Ends it, since the socket is broken.
    pub(super) fn fail(&self, error: io::ErrorKind) {
        let mut state = self.lock();
        state.broken.get_or_insert(error);
        wake(state);
    }

    /// Closes it: nothing more will be written or read.
    pub(super) fn close(self: &Arc<Self>) {
        let mut state = self.lock();
        state.shut = true;
        state.connection = None;
        state.session.close(self.outlet.timers.now());
        self.flush_datagrams(&mut state);
        wake(state);
    }

    pub(super) fn poll_read(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        into: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        let mut state = self.lock();
        let room = into.capacity() - into.len();
        let read = state.session.read(self.outlet.timers.now(), into, room);
        if read > 0 {
            self.flush_datagrams(&mut state);
            return Poll::Ready(Ok(read));
        }
        if let Some(end) = state.end() {
            return Poll::Ready(end.map(|()| 0));
        }
        register_waker(&mut state.reader, cx.waker());
        Poll::Pending
    }

    /// Writes what there is room for.
    pub(super) fn try_write(self: &Arc<Self>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.lock();
        state.check()?;
        let mut written = 0;
        for slice in slices {
            let taken = state.session.write(slice);
            written += taken;
            if taken < slice.len() {
                break;
            }
        }
        if written == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.session.flush(self.outlet.timers.now());
        self.flush_datagrams(&mut state);
        wake(state);
        Ok(written)
    }

    pub(super) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.lock();
        state.check()?;
        if state.session.is_writable() {
            return Poll::Ready(Ok(()));
        }
        register_waker(&mut state.writer, cx.waker());
        Poll::Pending
    }

    /// Sends pending datagrams, and sets the alarm.
    fn flush_datagrams(self: &Arc<Self>, state: &mut State) {
        while let Some(datagram) = state.session.datagram() {
            match self.outlet.send(self.peer, datagram) {
                Ok(()) => state.session.mark_sent(),
                // It stays until the next alarm, which is no later than a retransmission would be.
                Err(io::ErrorKind::WouldBlock) => break,
                // No process listens there.
                Err(io::ErrorKind::ConnectionRefused) => {
                    state.broken = Some(io::ErrorKind::ConnectionRefused);
                    break;
                }
                // Equivalent to a loss in the network.
                Err(_) => state.session.mark_sent(),
            }
        }
        let Some(next) = state.session.next_alarm().filter(|_| state.broken.is_none()) else { return };
        if state.timers.add(next) {
            self.outlet.timers.set(next, self);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outlet {
    fn send(&self, peer: SocketAddr, datagram: &[u8]) -> Result<(), io::ErrorKind> {
        let sent = match self.is_connected {
            true => self.socket.try_send(datagram),
            false => self.socket.try_send_to(datagram, peer),
        };
        sent.map(drop).map_err(|error| error.kind())
    }
}

impl State {
    fn is_over(&self) -> bool {
        self.session.end_reason().is_some() || self.broken.is_some()
    }

    /// Returns the reason why nothing more can be read: the end of the stream or a failure.
    fn end(&self) -> Option<io::Result<()>> {
        if let Some(error) = self.broken {
            return Some(Err(error.into()));
        }
        match self.session.end_reason() {
            None => self.shut.then_some(Ok(())),
            Some(EndReason::Closed | EndReason::ClosedByPeer | EndReason::Replaced | EndReason::Evicted) => {
                Some(Ok(()))
            }
            Some(ended @ (EndReason::Unknown | EndReason::StartMissing)) => {
                Some(Err(io::Error::new(io::ErrorKind::ConnectionReset, ended)))
            }
            Some(ended @ (EndReason::Silent | EndReason::Unanswered)) => {
                Some(Err(io::Error::new(io::ErrorKind::TimedOut, ended)))
            }
        }
    }

    /// Checks that data may be written.
    fn check(&self) -> io::Result<()> {
        match self.end() {
            None => Ok(()),
            Some(Err(error)) => Err(error),
            Some(Ok(())) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

/// Wakes the tasks that can continue, once the lock is released.
fn wake(mut state: MutexGuard<'_, State>) {
    let is_over = state.is_over() || state.shut;
    let reader = if is_over || state.session.is_readable() { state.reader.take() } else { None };
    let writer = if is_over || state.session.is_writable() { state.writer.take() } else { None };
    drop(state);
    [reader, writer].into_iter().flatten().for_each(Waker::wake);
}

fn register_waker(slot: &mut Option<Waker>, waker: &Waker) {
    match slot {
        Some(noted) => noted.clone_from(waker),
        None => *slot = Some(waker.clone()),
    }
}

impl fmt::Debug for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversation").field("peer", &self.peer).finish_non_exhaustive()
    }
}
