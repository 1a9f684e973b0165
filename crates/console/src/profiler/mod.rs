//! The profilers: they sample the stacks of the process for some seconds, one profile at a time.
//!
//! A [`sampler`] collects addresses where the CPU is used, where threads wait for locks ([`contention`]), or where memory was
//! allocated ([`heap`]): [`samples`]. They become [`symbols`] once it has stopped, each address once. A [`Profile`] is kept by its
//! number, in a [`store`], and shown as a [`flame`] graph or in [`pprof`]'s format.

mod kind;

mod symbols;

mod samples;

mod profile;

mod sampler;

mod contention;

mod heap;

mod flame;
mod pprof;
mod summary;

mod store;

pub(crate) use self::flame::{Flame, Rect, Scope, flame};
pub(crate) use self::kind::ProfileKind;
pub(crate) use self::pprof::encode_pprof;
pub(crate) use self::profile::Profile;
pub(crate) use self::store::{Progress, profiler};
pub(crate) use self::summary::{FunctionShare, format_folded, functions};

/// How often a second each processor is interrupted, and the bounds of what may be asked for.
pub(crate) const FREQUENCY: u32 = 99;
pub(crate) const HIGHEST_FREQUENCY: u32 = 499;

/// Seconds of a profile unless others are given, and the most.
pub(crate) const SECONDS: u64 = 10;
pub(crate) const MAX_SECONDS: u64 = 60;
