//! Context of an attack: the server's addresses, the size of the attack, and connections.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::line::Line;
use super::{End, Outcome};
use crate::profile::Profile;
use crate::victim::Target;
use crate::{admin_pages, measure};

/// Context of an attack.
#[derive(Clone, Debug)]
pub(crate) struct Siege {
    pub(crate) profile: Profile,
    pub(crate) target: Target,
    end: End,
    from: Option<SocketAddr>,
    sent: Arc<AtomicU64>,
    /// Connections that stay open until the attacker exits.
    kept: Arc<Mutex<Vec<Line>>>,
}

/// Interval of checks for closed connections.
const LOOK: Duration = Duration::from_millis(50);
/// Number of open connections of which the server's view is shown.
const MAX_SHOWN: usize = 8;

impl Siege {
    pub(crate) fn new(profile: Profile, target: Target, end: End) -> Self {
        Self { profile, target, end, from: None, sent: Arc::default(), kept: Arc::default() }
    }

    /// The same from another address than that of the well-behaved clients.
    pub(crate) fn with_other_address(mut self) -> Self {
        self.from = Some(SocketAddr::from(([127, 0, 0, 2], 0)));
        self
    }

    /// The first in a full run, the second in a short one.
    pub(crate) fn pick<T>(&self, full: T, short: T) -> T {
        self.profile.pick(full, short)
    }

    /// Bytes sent on all lines so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Counts bytes not sent on a line.
    pub(crate) fn count(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A connection to the open listener.
    pub(crate) async fn line(&self) -> io::Result<Line> {
        self.line_to(&self.target.open).await
    }

    /// A connection to a listener.
    pub(crate) async fn line_to(&self, address: &str) -> io::Result<Line> {
        Line::connect(address, self.from, self.sent.clone()).await
    }

    /// This many connections to the open listener, or as many as this process may have.
    pub(crate) async fn lines(&self, count: usize) -> io::Result<Vec<Line>> {
        let most = measure::descriptor_limit().saturating_sub(100);
        let mut lines = Vec::new();
        for _ in 0..count.min(most) {
            lines.push(self.line().await?);
        }
        Ok(lines)
    }

    /// This many connections, each of which sends this; all concurrently.
    pub(crate) async fn raid(&self, count: usize, bytes: &[u8]) -> io::Result<Vec<Line>> {
        let mut lines = self.lines(count).await?;
        join_all(lines.iter_mut().map(|line| line.send(bytes))).await;
        Ok(lines)
    }

    /// Waits until the server has closed all lines, if it must, or else for as long as the well-behaved clients are
    /// measured. The lines stay open as long as the attacker. The server's time limit starts now.
    pub(crate) async fn hold(&self, mut lines: Vec<Line>) -> Outcome {
        lines.iter_mut().for_each(Line::mark);
        self.hold_for(self.patience(), lines).await
    }

    /// How long [`hold`](Self::hold) waits.
    pub(crate) fn patience(&self) -> Duration {
        self.must_end_within().unwrap_or_else(|| self.profile.window())
    }

    /// How long to wait for the server to end the lines, if it must.
    fn must_end_within(&self) -> Option<Duration> {
        self.end.limit(self.profile).and_then(|limit| self.profile.patience(limit))
    }

    /// The same for at most this long. The server's time limit starts with each line's connection, or where it was
    /// [marked](Line::mark).
    pub(crate) async fn hold_for(&self, patience: Duration, mut lines: Vec<Line>) -> Outcome {
        let begun = Instant::now();
        let mut outcome = Outcome { connections: lines.len(), ..Outcome::default() };
        let mut waiting: Vec<_> = lines.iter_mut().collect();
        loop {
            let established =
                waiting.iter().any(|line| line.is_not_reading()).then(measure::established_peers);
            waiting.retain_mut(|line| {
                let released = line.is_released(established.as_ref());
                if released {
                    let age = line.age().as_millis() as u64;
                    outcome.released = outcome.released.max(Some(age));
                }
                !released
            });
            if waiting.is_empty() || begun.elapsed() >= patience {
                break;
            }
            tokio::time::sleep(LOOK).await;
        }
        outcome.open = waiting.len();
        let open: Vec<_> = waiting.iter().map(|line| line.port()).take(MAX_SHOWN).collect();
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
        if let Some(code) = lines.iter().find_map(|line| line.answers.goaway) {
            outcome.notes.push(format!("GOAWAY {code}"));
        }
        self.keep(lines);
        outcome
    }

    /// Keeps lines open as long as the attacker.
    pub(crate) fn keep(&self, lines: Vec<Line>) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).extend(lines);
    }
}
