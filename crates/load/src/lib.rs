#![doc = include_str!("../README.md")]

// In the order of a run.
mod feed;
mod schedule;

mod mix;
mod plan;
mod process;

mod engine;

mod rpc;

mod outcome;
mod seconds;
mod verdict;

mod run;
mod stop;

mod find_max;
mod require;
mod stall;

pub use self::engine::record::SecondPart;
pub use self::feed::{Order, Records, Template, messages};
pub use self::find_max::{Limit, Search, Trial, find_max};
pub use self::outcome::{Counts, Lost, MethodOutcome, Outcome, SECOND_QUANTILES, Second};
pub use self::plan::{CallKind, ClientFactory, Method, Pacing, Plan, PlanPart, RunLength};
pub use self::process::{Process, Usage};
pub use self::require::{CheckedCondition, Requirements};
pub use self::run::{ReadyRun, RunError, run};
pub use self::schedule::{Arrivals, Profile, Rate, Schedule, Stages};
pub use self::seconds::SecondMerger;
pub use self::stall::Stalls;
pub use self::stop::Stop;
pub use self::verdict::{LATE, Verdict};

pub use hdrhistogram::Histogram;
