use std::future::{pending, poll_fn};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyrpc_kcp::{MAX_DATAGRAM, Millis, OpenedDatagram, Session, Settings};
use tokio::net::{UdpSocket, lookup_host};
use tokio::sync::watch;
use tokio::time::{sleep_until, timeout};

use super::backlog::Backlog;
use super::conversation::{Conversation, ConversationState, Outlet};
use super::conversation_table::ConversationTable;
use super::stream::Stream;
use super::timers::Timers;
use crate::transport;

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    outlet: Arc<Outlet>,
    backlog: Arc<Backlog>,
    /// Closed when the endpoint has ended.
    ended: watch::Receiver<()>,
}

impl Listener {
    /// Binds the socket. It is closed when the listener was dropped and all conversations have ended.
    pub(crate) async fn bind(address: &str, settings: Arc<Settings>) -> io::Result<Self> {
        let socket = UdpSocket::bind(address).await?;
        // As large as the system allows; with less, more datagrams are lost and retransmitted.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES);
        let outlet = Outlet { socket, timers: Timers::new(), is_connected: false };
        let outlet = Arc::new(outlet);
        let backlog = Arc::new(Backlog::new());
        let (until_end, ended) = watch::channel(());
        let endpoint = Endpoint {
            outlet: outlet.clone(),
            settings,
            backlog: Some(backlog.clone()),
            conversations: ConversationTable::default(),
            swept: None,
            searched: None,
            refusals: Refusals::default(),
            lingers: true,
        };
        // Detached: it ends with the last conversation, none of which outlives its stream for long.
        tokio::spawn(async move {
            endpoint.run().await;
            drop(until_end);
        });
        Ok(Self { outlet, backlog, ended })
    }

    /// Waits until the listener was dropped and all conversations have ended, after their peers received everything or
    /// did not answer for too long.
    pub(crate) fn delivery(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ended = self.ended.clone();
        async move { while ended.changed().await.is_ok() {} }
    }

    pub(crate) async fn accept(&self) -> io::Result<(transport::Stream, SocketAddr)> {
        let conversation = poll_fn(|cx| self.backlog.poll_next(cx)).await?;
        let peer = conversation.peer();
        Ok((Stream::boxed(conversation), peer))
    }

    /// Returns the number of timers that are set.
    #[cfg(test)]
    pub(super) fn timers(&self) -> usize {
        self.outlet.timers.len()
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.outlet.socket.local_addr()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        for conversation in self.backlog.close() {
            conversation.close();
        }
        self.outlet.timers.earlier.notify_one();
    }
}

/// Starts a conversation, and waits until the server has answered a probe; drop the future to give up.
pub(crate) async fn connect(address: &str, settings: Arc<Settings>) -> io::Result<transport::Stream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut peers = lookup_host(address).await?.peekable();
    while let Some(peer) = peers.next() {
        let attempt = attempt(peer, settings.clone());
        // An address that does not answer does not use up the time for the others.
        let attempted = match peers.peek() {
            Some(_) => timeout(ATTEMPT_TIMEOUT, attempt)
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
            None => attempt.await,
        };
        match attempted {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn attempt(peer: SocketAddr, settings: Arc<Settings>) -> io::Result<transport::Stream> {
    start_conversation(connect_socket(peer).await?, peer, settings).await
}

async fn connect_socket(peer: SocketAddr) -> io::Result<UdpSocket> {
    let any = match peer {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(peer).await?;
    // A new socket is not known to be writable yet, so the first datagram would wait for its retransmission.
    socket.writable().await?;
    Ok(socket)
}

async fn start_conversation(
    socket: UdpSocket,
    peer: SocketAddr,
    settings: Arc<Settings>,
) -> io::Result<transport::Stream> {
    let outlet = Arc::new(Outlet { socket, timers: Timers::new(), is_connected: true });
    let conv = getrandom::u32().map_err(io::Error::other)?;
    let session = Session::new(settings.clone(), conv, random_seed()?, outlet.timers.now());
    let conversation = Conversation::new(outlet.clone(), peer, session);
    let mut conversations = ConversationTable::default();
    conversations.insert(conv, conversation.clone(), true);
    // Detached: it ends with its conversation, which does not outlive its stream for long.
    let endpoint = Endpoint {
        outlet,
        settings,
        backlog: None,
        conversations,
        swept: None,
        searched: None,
        refusals: Refusals::default(),
        lingers: true,
    };
    tokio::spawn(endpoint.run());
    // Closed if this future is dropped.
    let stream = Stream::boxed(conversation.clone());
    conversation.connect();
    poll_fn(|cx| conversation.poll_connected(cx)).await?;
    Ok(stream)
}

/// The task that owns a socket.
struct Endpoint {
    outlet: Arc<Outlet>,
    settings: Arc<Settings>,
    /// Queue for new conversations; `None` if none may start.
    backlog: Option<Arc<Backlog>>,
    conversations: ConversationTable,
    /// When conversations were last swept.
    swept: Option<Millis>,
    /// When none was found that could make room for a newcomer.
    searched: Option<Millis>,
    refusals: Refusals,
    /// Closed conversations are kept for late datagrams.
    lingers: bool,
}

/// Limit on answers to datagrams of unknown conversations, which any sender can cause.
#[derive(Debug, Default)]
struct Refusals {
    since: Option<Millis>,
    count: u32,
}

impl Refusals {
    /// Whether one more may be sent.
    fn permit(&mut self, now: Millis) -> bool {
        if self.since.is_none_or(|since| now.since(since).unsigned_abs() >= SWEEP_INTERVAL_MS) {
            *self = Self { since: Some(now), count: 0 };
        }
        self.count += 1;
        self.count <= MAX_REFUSALS_PER_SWEEP
    }
}

impl Endpoint {
    async fn run(mut self) {
        let outlet = self.outlet.clone();
        let mut datagram = [0; MAX_DATAGRAM];
        while !self.is_over() {
            let next = outlet.timers.next();
            tokio::select! {
                // After a pause of this process, arrived datagrams are read before timers conclude that there are none.
                biased;
                readable = outlet.socket.readable() => match readable {
                    Ok(()) => self.receive(&mut datagram).await,
                    Err(error) => return self.fail(error.kind()),
                },
                () = until(next) => {}
                () = outlet.timers.earlier.notified() => {}
            }
            self.stop_lingering();
            self.on_timer();
        }
    }

    /// Once the listener was dropped, conversations end as soon as their peers have received everything.
    fn stop_lingering(&mut self) {
        if self.lingers && self.backlog.as_ref().is_some_and(|backlog| backlog.is_closed()) {
            self.lingers = false;
            self.conversations.iter().for_each(|conversation| conversation.end_when_settled());
        }
    }

    /// Returns whether the listener was dropped and all conversations have ended.
    fn is_over(&self) -> bool {
        self.conversations.is_empty() && self.backlog.as_ref().is_none_or(|backlog| backlog.is_closed())
    }

    /// Handles received datagrams, but yields to other tasks now and then.
    async fn receive(&mut self, datagram: &mut [u8; MAX_DATAGRAM]) {
        for _ in 0..RECEIVE_BATCH {
            match self.outlet.socket.try_recv_from(datagram) {
                Ok((length, peer)) => self.take(&mut datagram[..length], peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // A network error about the single peer.
                Err(error) if self.outlet.is_connected => return self.fail(error.kind()),
                // About some peer, or the socket: the next attempt might fail at once too.
                Err(_) => return tokio::time::sleep(RECEIVE_RETRY_DELAY).await,
            }
        }
        tokio::task::yield_now().await;
    }

    fn take(&mut self, datagram: &mut [u8], peer: SocketAddr) {
        let settings = self.settings.clone();
        let Some(opened) = settings.open(datagram) else { return };
        if let Some(member) = self.conversations.get(&peer, opened.conv()) {
            let handled = member.conversation.handle(opened);
            if handled.is_over || handled.is_validated != member.is_validated() {
                let conversation = member.conversation.clone();
                self.update(&conversation, handled);
            }
            return;
        }
        if self.conversations.has(&peer) {
            if self.backlog.is_none() {
                return;
            }
            // The peer's conversation was replaced, perhaps by a sender that forged its address: notify the peer.
            if let Some(conv) = opened.conv().filter(|_| !opened.replaces()) {
                return self.refuse(opened, conv, peer);
            }
            // A conversation with a validated address stays until the new one's address is validated too.
            if let Some(displaced) = self.conversations.displace(&peer) {
                displaced.replace();
            }
        }
        self.begin(opened, peer);
    }

    /// Updates the table for a conversation that has ended, or whose peer is validated now.
    fn update(&mut self, conversation: &Arc<Conversation>, handled: ConversationState) {
        if handled.is_over {
            self.conversations.remove(conversation);
            return;
        }
        if let Some(replaced) = self.conversations.validate(conversation) {
            replaced.replace();
        }
        if self.conversations.validated_count() > self.settings.max_validated() {
            self.make_room(conversation);
        }
    }

    /// Ends conversations with a validated address, since those of `newcomer` and of others are too many. Forged
    /// addresses cannot cause this.
    #[cold]
    fn make_room(&mut self, newcomer: &Arc<Conversation>) {
        let (most, now) = (self.settings.max_validated(), self.outlet.timers.now());
        let mut evicted = Vec::new();
        // If none waits, not for each newcomer again: one host could cause that load.
        if self.searched.is_none_or(|searched| now.since(searched).unsigned_abs() >= SEARCH_INTERVAL_MS) {
            evicted = self.conversations.evict_waiting(newcomer, most);
            self.searched = evicted.is_empty().then_some(now);
        }
        if evicted.is_empty() {
            let of_majority = self.conversations.evict_of_majority(newcomer, most);
            evicted.push(of_majority.unwrap_or_else(|| newcomer.clone()));
        }
        for conversation in &evicted {
            conversation.evict();
            self.conversations.remove(conversation);
        }
    }

    fn begin(&mut self, opened: OpenedDatagram<'_>, peer: SocketAddr) {
        let Some(backlog) = self.backlog.clone() else { return };
        let Some(conv) = opened.conv() else { return };
        if !opened.begins() || backlog.is_closed() {
            return self.refuse(opened, conv, peer);
        }
        // Too many: its first datagrams are dropped as if lost, and will be retransmitted.
        if !self.has_room(peer) {
            return;
        }
        let Ok(seed) = random_seed() else { return };
        let session = Session::accept(self.settings.clone(), conv, seed, self.outlet.timers.now());
        let conversation = Conversation::new(self.outlet.clone(), peer, session);
        let handled = conversation.handle(opened);
        if handled.is_over {
            return;
        }
        self.conversations.insert(conv, conversation.clone(), handled.is_validated);
        if let Some(oldest) = backlog.push(conversation) {
            oldest.evict();
            self.conversations.remove(&oldest);
        }
    }

    /// Notifies a peer that there is no such conversation: the server was restarted, or has dropped it.
    fn refuse(&mut self, opened: OpenedDatagram<'_>, conv: u32, peer: SocketAddr) {
        let now = self.outlet.timers.now();
        if opened.wants_answer()
            && self.refusals.permit(now)
            && let Ok(seed) = random_seed()
        {
            let refusal = Session::refusal(self.settings.clone(), conv, seed, now);
            // If the socket's buffer is full, the answer is lost, as it may be in the network.
            let _ = self.outlet.socket.try_send_to(&refusal, peer);
        }
    }

    /// Returns whether there is room for one more. Makes room by ending conversations whose address may be forged, the
    /// oldest first, and those that are only kept while there is room.
    fn has_room(&mut self, newcomer: SocketAddr) -> bool {
        let most = self.settings.conversations();
        let now = self.outlet.timers.now();
        // Only now and then: scanning all of them for each datagram would let any sender cause load.
        let is_due = self.swept.is_none_or(|swept| now.since(swept).unsigned_abs() >= SWEEP_INTERVAL_MS);
        if self.conversations.len() >= most && is_due {
            self.swept = Some(now);
            self.conversations.retain(|conversation| !conversation.give_up());
        }
        // At most what the validated ones leave, half of which is the share of a network.
        let left = most.saturating_sub(self.conversations.validated_count()).max(1);
        let unvalidated = self.settings.max_unvalidated().min(left);
        if (self.conversations.len() >= most || self.conversations.is_crowded(newcomer, unvalidated))
            && let Some(oldest) = self.conversations.evict(newcomer, unvalidated)
        {
            oldest.evict();
        }
        self.conversations.len() < most
    }

    fn on_timer(&mut self) {
        while let Some(conversation) = self.outlet.timers.pop_expired() {
            if conversation.on_timer() {
                self.conversations.remove(&conversation);
            }
        }
    }

    fn fail(&mut self, error: io::ErrorKind) {
        self.conversations.drain().for_each(|conversation| conversation.fail(error));
        // Nothing more can be accepted: the acceptor is notified.
        if let Some(backlog) = &self.backlog {
            backlog.close();
        }
    }
}

async fn until(alarm: Option<Instant>) {
    match alarm {
        Some(at) => sleep_until(at.into()).await,
        None => pending().await,
    }
}

fn random_seed() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(io::Error::other)?;
    Ok(seed)
}

/// How long an address is tried while there are others.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of datagrams that are handled before other tasks run.
const RECEIVE_BATCH: usize = 64;
/// Size of the socket's receive buffer, in bytes.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// Milliseconds between two sweeps. Compared without a sign, since a time seems to lie in the future 25 days later.
const SWEEP_INTERVAL_MS: u32 = 1000;
/// Milliseconds between two searches for conversations that make room, if the first one found none.
const SEARCH_INTERVAL_MS: u32 = 250;
/// Maximum number of refusals between two sweeps.
const MAX_REFUSALS_PER_SWEEP: u32 = 1000;
const RECEIVE_RETRY_DELAY: Duration = Duration::from_millis(50);
