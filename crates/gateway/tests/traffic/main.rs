//! Gateways under load: migrations, mirrors, faults, floods, unread responses, streams, proxies, recordings,
//! credentials, metadata.

mod credentials;
mod faults;
mod floods;
mod metadata;
mod migration;
mod mirrors;
mod proxies;
mod recordings;
mod shop;
mod streams;
mod unread;
