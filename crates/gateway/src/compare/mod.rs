//! Comparison of two servers' answers to the same call.

mod difference;
mod findings;
mod rules;
mod sample;

pub(crate) use self::difference::{Difference, differences};
pub(crate) use self::findings::{Findings, MethodFindings, PathFindings, Verdict};
pub(crate) use self::rules::Rules;
pub(crate) use self::sample::Samples;
