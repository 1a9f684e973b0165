//! A load of several machines: `polyrpc bench worker` makes a part of the calls that `polyrpc bench --workers` plans.
//!
//! Worker k of N makes the calls i ≡ k mod N of one schedule. It sends its histograms, which are added; quantiles are never
//! averaged. Without the calls of a worker that was lost a measurement is invalid.

mod message;
mod service;

mod bounds;
mod session;
mod worker;

mod coordinator;
mod options;

pub(super) use self::coordinator::{Division, run};
pub(super) use self::message::TargetOptions;
pub(super) use self::options::WorkersOptions;
pub(super) use self::worker::{Options, run as serve};
