//! Gateways under load: migrations, mirrors, faults, streams, proxies, recordings, credentials.

mod credentials;
mod faults;
mod migration;
mod mirrors;
mod proxies;
mod recordings;
mod shop;
mod streams;
