//! Registries in which servers are found, and in which they make themselves known: each is a feature, since each brings
//! what it is asked with.
//!
//! A URL names a registry and what is meant of it: `consul://127.0.0.1:8500/rpcx_test/Arith`. What stands behind `://`
//! is told in the registry's module.

#[cfg(feature = "consul")]
pub mod consul;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
#[cfg(feature = "nacos")]
pub mod nacos;

#[cfg(feature = "http")]
mod metadata;
#[cfg(feature = "http")]
mod place;
#[cfg(feature = "http")]
mod readable;
#[cfg(feature = "http")]
mod watch;

#[cfg(feature = "http")]
mod http;

use polyrpc::discovery::{Discover, Register};
use polyrpc::{Result, Status};

/// Finds what a URL names: `consul://127.0.0.1:8500/rpcx_test/Arith`.
///
/// # Errors
///
/// When the registry is unknown or not built in, or the URL is none of its own. Nothing is connected yet.
pub fn discover(url: &str) -> Result<Box<dyn Discover>> {
    let (registry, place) = split(url)?;
    Ok(match registry {
        #[cfg(feature = "consul")]
        "consul" => consul::discover(place)?,
        #[cfg(feature = "kubernetes")]
        "kubernetes" => kubernetes::discover(place)?,
        #[cfg(feature = "nacos")]
        "nacos" => nacos::discover(place)?,
        other => return Err(unknown(other, place).into()),
    })
}

/// Makes servers known where a URL says: `consul://127.0.0.1:8500/rpcx_test`.
///
/// # Errors
///
/// As [`discover`].
pub fn register(url: &str) -> Result<Box<dyn Register>> {
    let (registry, place) = split(url)?;
    Ok(match registry {
        #[cfg(feature = "consul")]
        "consul" => consul::register(place)?,
        #[cfg(feature = "nacos")]
        "nacos" => nacos::register(place)?,
        other => return Err(unknown(other, place).into()),
    })
}

fn split(url: &str) -> Result<(&str, &str), Status> {
    url.split_once("://")
        .ok_or_else(|| Status::invalid_argument(format!("`{url}` names no registry: want registry://…")))
}

#[cold]
fn unknown(registry: &str, _place: &str) -> Status {
    Status::invalid_argument(format!("the registry `{registry}` is unknown, or not built in"))
}
