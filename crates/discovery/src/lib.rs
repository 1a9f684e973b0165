//! Registries in which servers are found, and in which they make themselves known: each is a feature, since each brings
//! what it is asked with.
//!
//! A URL names a registry and what is meant of it: `consul://127.0.0.1:8500/rpcx_test/Arith`. What may stand behind
//! `://` is told in the registry's module.

#[cfg(feature = "consul")]
pub mod consul;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
#[cfg(feature = "nacos")]
pub mod nacos;

// What several registries stand on, of which not each needs everything.
#[cfg(feature = "http")]
#[cfg_attr(not(all(feature = "consul", feature = "kubernetes", feature = "nacos")), allow(dead_code))]
mod metadata;
#[cfg(feature = "http")]
#[cfg_attr(not(all(feature = "consul", feature = "kubernetes", feature = "nacos")), allow(dead_code))]
mod place;
#[cfg(feature = "http")]
mod readable;
#[cfg(feature = "http")]
mod watch;

#[cfg(feature = "http")]
#[cfg_attr(
    not(all(feature = "consul", feature = "kubernetes", feature = "nacos")),
    allow(dead_code, unused_imports)
)]
mod http;

use polyrpc::discovery::{Discover, Register};
use polyrpc::{Result, Status};

/// Finds what a URL names: `consul://127.0.0.1:8500/rpcx_test/Arith`.
///
/// # Errors
///
/// When the registry is unknown or not built in, or the URL is none of its own. Nothing is connected yet.
pub fn discover(url: &str) -> Result<Box<dyn Discover>> {
    let opened: Result<Box<dyn Discover>, Status> = match url.split_once("://") {
        #[cfg(feature = "consul")]
        Some(("consul", place)) => consul::discover(place),
        #[cfg(feature = "kubernetes")]
        Some(("kubernetes", place)) => kubernetes::discover(place),
        #[cfg(feature = "nacos")]
        Some(("nacos", place)) => nacos::discover(place),
        _ => Err(unknown(url)),
    };
    Ok(opened?)
}

/// Makes servers known where a URL says: `consul://127.0.0.1:8500/rpcx_test`.
///
/// # Errors
///
/// As [`discover`].
pub fn register(url: &str) -> Result<Box<dyn Register>> {
    let opened: Result<Box<dyn Register>, Status> = match url.split_once("://") {
        #[cfg(feature = "consul")]
        Some(("consul", place)) => consul::register(place),
        #[cfg(feature = "nacos")]
        Some(("nacos", place)) => nacos::register(place),
        _ => Err(unknown(url)),
    };
    Ok(opened?)
}

#[cold]
fn unknown(url: &str) -> Status {
    let registry = url.split_once("://").map_or(url, |(registry, _)| registry);
    Status::invalid_argument(format!("`{registry}` is no registry, or is not built in, or takes nobody in"))
}
