#![doc = include_str!("../README.md")]

// From bottom to top: no module refers to one that comes after it.
mod problem;

mod hash;
mod log_rate;

mod config;

mod gate;
mod origin;
mod recording;
mod upstream;

mod pairs;

mod compare;
mod mirror;

mod abort;

mod plan;

mod call;

mod pages;

mod documents;

mod gateway;

pub use self::config::Config;
pub use self::documents::{check, check_online};
pub use self::gateway::Gateway;
pub use self::plan::Note;
pub use self::problem::{Problem, Problems};
