//! The CPU profiler: samples the stacks of the process for some seconds, one profile at a time.
//!
//! A [`sampler`] collects addresses only; they become [`symbols`] once it has stopped, each address once. A [`Profile`] is
//! kept by its number, in a [`store`], and shown as a [`flame`] graph or in [`pprof`]'s format.

mod sampler;
mod symbols;

mod profile;

mod flame;
mod pprof;
mod summary;

mod store;

pub(crate) use self::flame::{Flame, Rect, flame};
pub(crate) use self::pprof::encoded;
pub(crate) use self::profile::Profile;
pub(crate) use self::store::{Progress, profiler};
pub(crate) use self::summary::{FunctionShare, folded, functions};

/// How often a second each processor is interrupted, and the bounds of what may be asked for.
pub(crate) const FREQUENCY: u32 = 99;
pub(crate) const HIGHEST_FREQUENCY: u32 = 499;

/// Seconds of a profile unless others are given, and the most.
pub(crate) const SECONDS: u64 = 10;
pub(crate) const MOST_SECONDS: u64 = 60;
