//! Context of an attack: the server's addresses, the size of the attack, and connections.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::connection::RawConnection;
use super::{End, Outcome};
use crate::profile::Profile;
use crate::target_server::Target;
use crate::{admin_pages, measure};

/// Context of an attack.
#[derive(Clone, Debug)]
pub(crate) struct AttackContext {
    pub(crate) profile: Profile,
    pub(crate) target: Target,
    end: End,
    from: Option<SocketAddr>,
    sent: Arc<AtomicU64>,
    /// Connections that stay open until the attacker exits.
    kept: Arc<Mutex<Vec<RawConnection>>>,
}

/// Interval of checks for closed connections.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of open connections whose row of the admin page is added to the notes.
const MAX_SHOWN: usize = 8;

impl AttackContext {
    pub(crate) fn new(profile: Profile, target: Target, end: End) -> Self {
        Self { profile, target, end, from: None, sent: Arc::default(), kept: Arc::default() }
    }

    /// Makes connections from 127.0.0.2, an address that differs from that of the well-behaved clients.
    pub(crate) fn with_other_address(mut self) -> Self {
        self.from = Some(SocketAddr::from(([127, 0, 0, 2], 0)));
        self
    }

    /// Returns the first value in a full run, the second in a short one.
    pub(crate) fn pick<T>(&self, full: T, short: T) -> T {
        self.profile.pick(full, short)
    }

    /// Returns the number of bytes sent on all connections so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Counts bytes that were not sent through a [`RawConnection`].
    pub(crate) fn count(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Connects to the listener without authentication.
    pub(crate) async fn connect(&self) -> io::Result<RawConnection> {
        self.connect_to(&self.target.open).await
    }

    /// Connects to a listener.
    pub(crate) async fn connect_to(&self, address: &str) -> io::Result<RawConnection> {
        RawConnection::connect(address, self.from, self.sent.clone()).await
    }

    /// Opens `count` connections to the listener without authentication, limited by the maximum number of open files.
    pub(crate) async fn connect_many(&self, count: usize) -> io::Result<Vec<RawConnection>> {
        let max = measure::descriptor_limit().saturating_sub(100);
        let mut connections = Vec::new();
        for _ in 0..count.min(max) {
            connections.push(self.connect().await?);
        }
        Ok(connections)
    }

    /// Opens `count` connections and sends `bytes` on all of them concurrently.
    pub(crate) async fn connect_and_send(
        &self,
        count: usize,
        bytes: &[u8],
    ) -> io::Result<Vec<RawConnection>> {
        let mut connections = self.connect_many(count).await?;
        join_all(connections.iter_mut().map(|connection| connection.send(bytes))).await;
        Ok(connections)
    }

    /// Waits until the server has closed all connections, if it must, or else for the time in which the well-behaved
    /// clients are measured. The connections stay open as long as the attacker. The server's time limit starts now.
    pub(crate) async fn hold(&self, mut connections: Vec<RawConnection>) -> Outcome {
        connections.iter_mut().for_each(RawConnection::start_time_limit);
        self.hold_for(self.wait_limit(), connections).await
    }

    /// Returns how long [`hold`](Self::hold) waits.
    pub(crate) fn wait_limit(&self) -> Duration {
        self.must_end_within().unwrap_or_else(|| self.profile.window())
    }

    /// Returns how long to wait for the server to end the connections, if it must.
    fn must_end_within(&self) -> Option<Duration> {
        self.end.limit(self.profile).and_then(|limit| self.profile.wait_limit(limit))
    }

    /// Like [`hold`](Self::hold), but waits at most `wait_limit`. The server's time limit starts when a connection is
    /// opened, or at its last [`start_time_limit`](RawConnection::start_time_limit).
    pub(crate) async fn hold_for(
        &self,
        wait_limit: Duration,
        mut connections: Vec<RawConnection>,
    ) -> Outcome {
        let begun = Instant::now();
        let mut outcome = Outcome { connections: connections.len(), ..Outcome::default() };
        let mut waiting: Vec<_> = connections.iter_mut().collect();
        loop {
            let established =
                waiting.iter().any(|connection| connection.is_not_reading()).then(measure::established_peers);
            waiting.retain_mut(|connection| {
                let released = connection.is_released(established.as_ref());
                if released {
                    let age = connection.age().as_millis() as u64;
                    outcome.released = outcome.released.max(Some(age));
                }
                !released
            });
            if waiting.is_empty() || begun.elapsed() >= wait_limit {
                break;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        outcome.open = waiting.len();
        let open: Vec<_> = waiting.iter().map(|connection| connection.port()).take(MAX_SHOWN).collect();
        if self.must_end_within().is_some() && !open.is_empty() {
            // The server lists connections with their state: it may show why these are still open.
            match admin_pages::connections_from(&self.target.admin, &open).await {
                Ok(shown) if shown.is_empty() => {
                    outcome.notes.push("the first page of connections shows none of them".to_owned());
                }
                Ok(shown) => outcome.notes.extend(shown),
                Err(error) => outcome.notes.push(format!("the page of connections: {error}")),
            }
        }
        if let Some(code) = connections.iter().find_map(|connection| connection.answers.goaway) {
            outcome.notes.push(format!("GOAWAY {code}"));
        }
        self.keep_open(connections);
        outcome
    }

    /// Keeps connections open as long as the attacker.
    pub(crate) fn keep_open(&self, connections: Vec<RawConnection>) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).extend(connections);
    }
}
