//! Servers: services, limits, credentials, hooks, shutdown.

mod auth;
mod budgets;
mod concurrency;
mod context;
#[cfg(feature = "tls")]
mod credentials;
mod fallback;
mod functions;
mod hooks;
mod introspection;
mod limits;
mod monitor;
mod panics;
mod propagation;
mod service;
mod shutdown;
