//! Connections that are being made for calls that could not wait.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use polyrpc_core::{Retry, Scope, Status};
use tokio::task::JoinError;

use crate::client::connection::dial::Dialer;
use crate::client::connection::link::{Link, Standing};
use crate::runtime::{Owned, pass_on};

/// Attempts to connect, which outlive the calls that began them, as by brpc and gRPC: otherwise a client whose calls
/// have less time than connecting takes would never have a connection. Those that nobody waits for are kept for the
/// next call, and end with this.
pub(super) struct Dials {
    left: Mutex<Left>,
    /// How many are kept.
    most: usize,
}

#[derive(Default)]
struct Left {
    dials: Vec<Dial>,
    /// None is kept any more.
    ended: bool,
}

/// An attempt to connect.
pub(super) type Dial = Owned<Result<Fresh, Status>>;

impl Dials {
    pub(super) fn new(most: usize) -> Self {
        Self { left: Mutex::default(), most }
    }

    /// A connection that no call has had yet, by an attempt that is under way or by a new one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the attempt to the next caller.
    pub(super) async fn connect(&self, dialer: &Arc<Dialer>) -> Result<Arc<dyn Link>, Status> {
        let dial = loop {
            let Some(dial) = self.take() else { break begin(dialer)? };
            if !dial.is_finished() {
                break dial;
            }
            // A failure that nobody waited for says nothing any more.
            let Ok(Ok(fresh)) = dial.await else { continue };
            let link = fresh.link();
            if link.standing() != Standing::Ending {
                return Ok(link);
            }
            link.close();
        };
        match self.wait(dial).await {
            Ok(connected) => connected.map(Fresh::link),
            Err(error) => {
                pass_on(error);
                Err(given_up())
            }
        }
    }

    /// Gives up whatever nobody waits for.
    pub(super) fn clear(&self) {
        self.lock().dials.clear();
    }

    /// The same, for good.
    pub(super) fn end(&self) {
        *self.lock() = Left { dials: Vec::new(), ended: true };
    }

    async fn wait(&self, dial: Dial) -> Result<Result<Fresh, Status>, JoinError> {
        Waiting { dials: self, dial: Some(dial) }.await
    }

    /// One that has come to its end if there is any, or else the one that was begun first.
    fn take(&self) -> Option<Dial> {
        let dials = &mut self.lock().dials;
        let place = dials.iter().position(Dial::is_finished).unwrap_or_default();
        (place < dials.len()).then(|| dials.remove(place))
    }

    fn leave(&self, dial: Dial) {
        let mut left = self.lock();
        if !left.ended && left.dials.len() < self.most {
            left.dials.push(dial);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A caller who waits for a connection.
struct Waiting<'d> {
    dials: &'d Dials,
    dial: Option<Dial>,
}

impl Future for Waiting<'_> {
    type Output = Result<Result<Fresh, Status>, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let dial = self.dial.as_mut().expect("it is polled until it is ready");
        let connected = ready!(Pin::new(dial).poll(cx));
        self.dial = None;
        Poll::Ready(connected)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(dial) = self.dial.take() {
            self.dials.leave(dial);
        }
    }
}

/// A connection that no call has had yet: it closes if none is to.
pub(super) struct Fresh(Option<Arc<dyn Link>>);

impl Fresh {
    pub(super) fn new(link: Arc<dyn Link>) -> Self {
        Self(Some(link))
    }

    fn link(mut self) -> Arc<dyn Link> {
        self.0.take().expect("it is taken once")
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if let Some(link) = &self.0 {
            link.close();
        }
    }
}

/// The same in a task, for more than one call to wait for.
fn begin(dialer: &Arc<Dialer>) -> Result<Dial, Status> {
    if let Some(reason) = dialer.gate.refusal() {
        return Err(reason);
    }
    let dialer = dialer.clone();
    Ok(tokio::spawn(async move { dialer.dial().await.map(Fresh::new) }).into())
}

#[cold]
fn given_up() -> Status {
    Status::unavailable("the runtime that was to connect has ended")
        .with_scope(Scope::Connection)
        .with_retry(Retry::Elsewhere)
}
