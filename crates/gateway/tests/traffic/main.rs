//! Gateways under load: migrations, mirrors, faults, streams, proxies.

mod faults;
mod migration;
mod mirrors;
mod proxies;
mod shop;
mod streams;
