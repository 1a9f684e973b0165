//! What a server tells of itself: to the program it runs in, what it is doing ([`ServerInfo`]); to callers, by gRPC's
//! standard services, how it is ([`Health`]) and what it offers
//! ([`Server::reflection`](crate::Server::reflection)), the latter by rpcx's service too.
//!
//! These are services like any other, so every protocol that can carry them does, and a listener's authenticator
//! judges who asks.

mod health;

mod files;
mod reflection;
mod rpcx;

pub(crate) use self::health::DefaultHealth;
pub use self::health::{Health, Serving};
pub use crate::call::{Calls, Connection, ResourceUsage, ServerInfo};

use self::files::Files;
use crate::service::{MethodRole, Router};

/// Adds the standard services that a server is to have, once all others are there.
pub(crate) fn add(router: &mut Router, health: Option<&Health>, reflection: bool) {
    if let Some(health) = health {
        router.standard(MethodRole::Introspection, health.service());
    }
    if reflection {
        rpcx::add(router);
        reflection::add(router);
    }
    if let Some(health) = health {
        health.offer(router.list().into_iter().map(|(service, _)| service));
    }
}
