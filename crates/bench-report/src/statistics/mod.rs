//! What measurements show, and what they do not.
//!
//! - [`quantile_interval`] bounds a quantile of many calls by their order statistics, [`median_interval`] the median of a few
//!   rounds; both hold for every distribution. [`bootstrap_interval`] is for other statistics.
//! - [`compare`] judges two subjects that were measured in the same rounds, in an order of [`order`]; [`holm`] corrects for
//!   several comparisons.
//! - [`noise`] judges whether the machine was quiet enough to name a winner.

mod bootstrap;
mod comparison;
mod holm;
mod interval;
mod median;
pub mod noise;
pub mod order;
mod probability;
mod quantile;
mod random;

pub use bootstrap::bootstrap_interval;
pub use comparison::{
    Comparison, Finding, MIN_DIFFERENCE, MIN_ROUNDS, RatioRound, Round, compare, compare_ratios,
    withdraw_insignificant,
};
pub use holm::holm;
pub use interval::Interval;
pub use median::{median, median_interval, sign_test};
pub use quantile::{QuantileEstimate, is_reportable, quantile_estimate, quantile_interval};
pub use random::Random;
