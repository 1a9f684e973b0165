//! Introspection of a server: for its program, the current state ([`ServerInfo`]); for callers, gRPC's
//! standard services for health ([`Health`]) and reflection
//! ([`Server::reflection`](crate::Server::reflection)), the latter also through rpcx's service.
//!
//! These services are called like any other: over every protocol that can carry them, and subject to the
//! listener's authenticator. But they are outside of the server's layers, hooks, metrics and concurrency
//! limits, and [`Limits::in_flight`](crate::server::Limits::in_flight) does not apply to them, so that a busy
//! server still answers probes.

mod health;

mod files;
mod reflection;
mod rpcx;

pub(crate) use self::health::DefaultHealth;
pub use self::health::{Health, ServingStatus};
pub use crate::call::{Calls, Connection, ServerInfo};

use self::files::Files;
use crate::service::{MethodRole, Router};

/// Adds the configured standard services, after all others were added.
pub(crate) fn add(router: &mut Router, health: Option<&Health>, reflection: bool) {
    if let Some(health) = health {
        router.add_standard(MethodRole::Introspection, health.service());
    }
    if reflection {
        rpcx::add(router);
        reflection::add(router);
    }
    if let Some(health) = health {
        health.offer(router.list().into_iter().map(|(service, _)| service));
    }
}
