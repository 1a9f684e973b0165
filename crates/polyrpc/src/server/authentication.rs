//! Authentication: checks credentials, immediately or asynchronously, and slows down peers that guess them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use polyrpc_core::{Credential, Status};
use tokio::time::{sleep, timeout};

use super::connections::{ConnectionGuard, ConnectionHandle};
use super::incidents::{Closing, Refusal};
use crate::call::Peer;

/// Checks the credential of a call; `None` if it has none.
#[derive(Clone)]
pub(super) enum Authenticator {
    /// Runs on the connection's task.
    Sync(Arc<SyncAuthenticate>),
    /// Returns a future, which may query other systems.
    Async(Arc<AsyncAuthenticate>),
}

pub(super) type SyncAuthenticate = dyn Fn(Option<&[u8]>, &Peer) -> Result<(), Status> + Send + Sync;
pub(super) type AsyncAuthenticate = dyn Fn(Option<Bytes>, Peer) -> AuthenticateFuture + Send + Sync;

/// Future of the check of a credential.
pub(super) type AuthenticateFuture = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;

/// Result of the check of a credential.
pub(super) enum AuthenticationResult {
    Accepted,
    /// The credential is rejected at once.
    Refused(Status),
    /// The check is pending, or its rejection is delayed.
    Later(AuthenticateFuture),
    /// The peer has sent so many invalid credentials that its connection is closed.
    TooMany,
}

/// Authentication state of one connection.
pub(super) struct Authentication<'a> {
    /// `None` if no credentials are checked.
    authenticator: Option<&'a Authenticator>,
    registration: &'a ConnectionGuard,
    /// Created when the first credential is checked.
    trust: Option<Arc<TrustedCredential>>,
}

/// State of the credential of a connection.
#[derive(Debug, Default)]
struct TrustedCredential {
    /// A credential was accepted.
    proved: AtomicBool,
    /// A credential is being checked; later calls wait for the result.
    authentication: AtomicBool,
}

/// Maximum number of delayed rejections of one connection; with a further one it is closed.
const MAX_DELAYED_REJECTIONS: usize = 16;

impl<'a> Authentication<'a> {
    pub(super) fn new(authenticator: Option<&'a Authenticator>, registration: &'a ConnectionGuard) -> Self {
        Self { authenticator, registration, trust: None }
    }

    /// Returns whether a credential is being checked on which the next calls of the connection depend.
    pub(super) fn is_pending(&self) -> bool {
        self.trust.as_ref().is_some_and(|trust| trust.authentication.load(Ordering::Relaxed))
    }

    /// Checks every credential. Only if the protocol sends it once per connection, a call without one inherits the
    /// result of the earlier one.
    pub(super) fn authenticate(&mut self, credential: &Credential, peer: &Peer) -> AuthenticationResult {
        let Some(authenticator) = self.authenticator else { return AuthenticationResult::Accepted };
        let trust = self.trust.get_or_insert_default();
        let (bytes, for_connection) = match credential {
            Credential::Connection(bytes) => (bytes, true),
            Credential::Call(bytes) => (bytes, false),
        };
        if for_connection && bytes.is_none() && trust.proved.load(Ordering::Relaxed) {
            return AuthenticationResult::Accepted;
        }
        let trust = for_connection.then(|| trust.clone());
        match authenticator {
            Authenticator::Sync(judge) => {
                let verdict = catch_unwind(AssertUnwindSafe(|| judge(bytes.as_deref(), peer)))
                    .unwrap_or_else(|_| Err(authenticator_panicked()));
                self.record_outcome(verdict, trust)
            }
            Authenticator::Async(judge) => {
                let authentication = catch_unwind(AssertUnwindSafe(|| judge(bytes.clone(), peer.clone())));
                match authentication {
                    Ok(authentication) => self.authenticate_later(authentication, trust),
                    Err(_) => self.record_outcome(Err(authenticator_panicked()), trust),
                }
            }
        }
    }

    fn record_outcome(
        &self,
        verdict: Result<(), Status>,
        trust: Option<Arc<TrustedCredential>>,
    ) -> AuthenticationResult {
        match verdict {
            Ok(()) => {
                self.registration.connection.prove();
                if let Some(trust) = trust {
                    trust.proved.store(true, Ordering::Relaxed);
                }
                AuthenticationResult::Accepted
            }
            Err(status) => self.refuse(status),
        }
    }

    /// Rejects a credential. Each further failure is answered later.
    #[cold]
    fn refuse(&self, status: Status) -> AuthenticationResult {
        let entry = &self.registration.connection;
        let delay = count_failure(entry, self.registration);
        if delay.is_zero() {
            return AuthenticationResult::Refused(status);
        }
        match DelayedRejection::try_new(entry) {
            None => AuthenticationResult::TooMany,
            Some(held) => AuthenticationResult::Later(Box::pin(async move {
                sleep(delay).await;
                drop(held);
                Err(status)
            })),
        }
    }

    #[cold]
    fn authenticate_later(
        &self,
        authentication: AuthenticateFuture,
        trust: Option<Arc<TrustedCredential>>,
    ) -> AuthenticationResult {
        let (limit, free) = {
            let limits = self.registration.limits();
            (limits.authentication_timeout, limits.credential_failures)
        };
        let (entry, clock) = (self.registration.connection.clone(), self.registration.clock());
        if let Some(trust) = &trust {
            trust.authentication.store(true, Ordering::Relaxed);
        }
        let ends = trust.map(PendingAuthentication);
        AuthenticationResult::Later(Box::pin(async move {
            // An asynchronous authenticator may panic as well.
            let verdict = match timeout(limit, AssertUnwindSafe(authentication).catch_unwind()).await {
                Ok(Ok(verdict)) => verdict,
                Ok(Err(_)) => Err(authenticator_panicked()),
                Err(_) => {
                    entry.record_refusal(Refusal::AuthenticationTimeout);
                    return Err(Status::unavailable("the credential could not be checked in time"));
                }
            };
            match (&verdict, &ends) {
                (Ok(()), ends) => {
                    entry.prove();
                    if let Some(PendingAuthentication(trust)) = ends {
                        trust.proved.store(true, Ordering::Relaxed);
                    }
                }
                (Err(_), _) => {
                    entry.record_refusal(Refusal::Credential);
                    let delay = entry.record.failures.count(clock.tick(), free);
                    match DelayedRejection::try_new(&entry) {
                        Some(_held) if !delay.is_zero() => sleep(delay).await,
                        Some(_) => {}
                        None => entry.close(Closing::Credentials),
                    }
                }
            }
            verdict
        }))
    }
}

/// Counts a failure; returns the delay of its response.
fn count_failure(entry: &ConnectionHandle, registration: &ConnectionGuard) -> Duration {
    entry.record_refusal(Refusal::Credential);
    entry.record.failures.count(registration.tick(), registration.limits().credential_failures)
}

/// A pending check of a connection's credential. Dropping it ends the check.
struct PendingAuthentication(Arc<TrustedCredential>);

impl Drop for PendingAuthentication {
    fn drop(&mut self) {
        self.0.authentication.store(false, Ordering::Relaxed);
    }
}

/// A slot among the delayed rejections of a connection.
struct DelayedRejection(Arc<ConnectionHandle>);

impl DelayedRejection {
    fn try_new(entry: &Arc<ConnectionHandle>) -> Option<Self> {
        let held = entry.delayed_rejections.fetch_add(1, Ordering::Relaxed);
        let slot = Self(entry.clone());
        (held < MAX_DELAYED_REJECTIONS).then_some(slot)
    }
}

impl Drop for DelayedRejection {
    fn drop(&mut self) {
        self.0.delayed_rejections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cold]
fn authenticator_panicked() -> Status {
    Status::unauthenticated("the authenticator panicked")
}
