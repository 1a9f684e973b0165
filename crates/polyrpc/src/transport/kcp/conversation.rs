use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use polyrpc_kcp::{Ended, Millis, OpenedDatagram, Session};
use tokio::net::UdpSocket;

use super::alarms::Alarms;

/// What a conversation's stream and the task that owns its socket share.
pub(super) struct Conversation {
    state: Mutex<State>,
    outlet: Arc<Outlet>,
    peer: SocketAddr,
}

/// Where datagrams leave, for all conversations of a socket.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) socket: UdpSocket,
    pub(super) alarms: Alarms<Conversation>,
    /// The socket sends to, and hears of, one peer only.
    pub(super) is_connected: bool,
}

#[derive(Debug)]
struct State {
    session: Session,
    /// When the alarm rings that counts.
    alarm: Option<Millis>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Nobody reads any more.
    shut: bool,
    /// What the socket said.
    broken: Option<io::ErrorKind>,
}

impl Conversation {
    pub(super) fn new(outlet: Arc<Outlet>, peer: SocketAddr, session: Session) -> Arc<Self> {
        let state = State { session, alarm: None, reader: None, writer: None, shut: false, broken: None };
        let conversation = Arc::new(Self { state: Mutex::new(state), outlet, peer });
        let mut state = conversation.lock();
        conversation.settle(&mut state);
        drop(state);
        conversation
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// A datagram has come. Returns whether the peer's address is validated.
    pub(super) fn handle(self: &Arc<Self>, datagram: OpenedDatagram<'_>) -> bool {
        let mut state = self.lock();
        state.session.handle(self.outlet.alarms.now(), datagram);
        let is_validated = state.session.is_validated();
        self.settle(&mut state);
        wake(state);
        is_validated
    }

    /// An alarm has rung. Returns whether it has ended.
    pub(super) fn ring(self: &Arc<Self>) -> bool {
        let now = self.outlet.alarms.now();
        let mut state = self.lock();
        // Those that were set before, for later, do not count any more.
        if state.alarm.is_some_and(|alarm| now.since(alarm) >= 0) {
            state.alarm = None;
            state.session.wake(now);
            if state.session.is_settled() && !state.session.is_readable() {
                state.session.rest();
            }
            self.settle(&mut state);
        }
        let is_over = state.is_over();
        wake(state);
        is_over
    }

    /// Its place is needed. Returns whether it has ended.
    pub(super) fn give_up(&self) -> bool {
        let mut state = self.lock();
        let ended = state.session.give_up(self.outlet.alarms.now());
        wake(state);
        ended
    }

    /// Its place is needed for a peer whose address may be the better one.
    pub(super) fn evict(&self) {
        let mut state = self.lock();
        state.session.evict();
        wake(state);
    }

    /// Bytes that it keeps.
    pub(super) fn held(&self) -> usize {
        self.lock().session.held()
    }

    /// Whether it has ended.
    pub(super) fn is_over(&self) -> bool {
        self.lock().is_over()
    }

    /// The peer has begun another one.
    pub(super) fn replace(&self) {
        let mut state = self.lock();
        state.session.replace();
        wake(state);
    }

    /// The socket is of no use any more.
    pub(super) fn break_down(&self, error: io::ErrorKind) {
        let mut state = self.lock();
        state.broken.get_or_insert(error);
        wake(state);
    }

    /// Nothing more will be written or read.
    pub(super) fn close(self: &Arc<Self>) {
        let mut state = self.lock();
        state.shut = true;
        state.session.close(self.outlet.alarms.now());
        self.settle(&mut state);
        wake(state);
    }

    pub(super) fn poll_read(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        into: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        let mut state = self.lock();
        let room = into.capacity() - into.len();
        let read = state.session.read(self.outlet.alarms.now(), into, room);
        if read > 0 {
            self.settle(&mut state);
            return Poll::Ready(Ok(read));
        }
        if let Some(end) = state.end() {
            return Poll::Ready(end.map(|()| 0));
        }
        note(&mut state.reader, cx.waker());
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
        state.session.flush(self.outlet.alarms.now());
        self.settle(&mut state);
        wake(state);
        Ok(written)
    }

    pub(super) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.lock();
        state.check()?;
        if state.session.is_writable() {
            return Poll::Ready(Ok(()));
        }
        note(&mut state.writer, cx.waker());
        Poll::Pending
    }

    /// Sends what there is to be sent, and sets the alarm.
    fn settle(self: &Arc<Self>, state: &mut State) {
        while let Some(datagram) = state.session.datagram() {
            match self.outlet.send(self.peer, datagram) {
                Ok(()) => state.session.sent(),
                // It stays until the next alarm: none is later than a repeat of it would be.
                Err(io::ErrorKind::WouldBlock) => break,
                // Nobody listens there.
                Err(io::ErrorKind::ConnectionRefused) => {
                    state.broken = Some(io::ErrorKind::ConnectionRefused);
                    break;
                }
                // As good as lost on the way.
                Err(_) => state.session.sent(),
            }
        }
        let Some(next) = state.session.next_alarm().filter(|_| state.broken.is_none()) else { return };
        if state.alarm.is_none_or(|alarm| next.since(alarm) < 0) {
            state.alarm = Some(next);
            self.outlet.alarms.set(next, self);
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
        self.session.ended().is_some() || self.broken.is_some()
    }

    /// Why there will be nothing more to read: the end of the stream or a failure.
    fn end(&self) -> Option<io::Result<()>> {
        if let Some(error) = self.broken {
            return Some(Err(error.into()));
        }
        match self.session.ended() {
            None => self.shut.then_some(Ok(())),
            Some(Ended::Closed | Ended::Replaced | Ended::Evicted) => Some(Ok(())),
            Some(ended @ (Ended::Silent | Ended::Unanswered)) => {
                Some(Err(io::Error::new(io::ErrorKind::TimedOut, ended)))
            }
        }
    }

    /// Whether anything may be written.
    fn check(&self) -> io::Result<()> {
        match self.end() {
            None => Ok(()),
            Some(Err(error)) => Err(error),
            Some(Ok(())) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

/// Wakes those who can go on, once the lock is given back.
fn wake(mut state: MutexGuard<'_, State>) {
    let is_over = state.is_over() || state.shut;
    let reader = if is_over || state.session.is_readable() { state.reader.take() } else { None };
    let writer = if is_over || state.session.is_writable() { state.writer.take() } else { None };
    drop(state);
    [reader, writer].into_iter().flatten().for_each(Waker::wake);
}

fn note(place: &mut Option<Waker>, waker: &Waker) {
    match place {
        Some(noted) => noted.clone_from(waker),
        None => *place = Some(waker.clone()),
    }
}

impl fmt::Debug for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversation").field("peer", &self.peer).finish_non_exhaustive()
    }
}
