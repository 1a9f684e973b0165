#![doc = include_str!("../README.md")]

// From bottom to top: no module refers to one that comes after it.
mod config_error;

mod hash;
mod log_rate;

mod config;

mod call_limit;
mod listener;
mod origin;
mod recording;
mod upstream;

mod response_size;

mod pairs;

mod compare;
mod mirror;

mod auto_rollback;

mod plan;

mod call;

mod pages;

mod documents;

mod reflection_retry;

mod gateway;

pub use self::config::Config;
pub use self::config_error::{ConfigError, ConfigErrors};
pub use self::documents::{check, check_online};
pub use self::gateway::Gateway;
pub use self::plan::CheckWarning;
