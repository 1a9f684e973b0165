//! How many calls are answered at a time: a number, what brpc's limiters find out, or no bound.
//!
//! A [`ConcurrencyLimit`] says how to limit. A [`ConcurrencyLimiter`] counts the calls of a method, or of all, and asks what it was made
//! from whether there is room: [`gradient`] and [`timely`] learn that from the calls that have ended, a [`window`] of
//! them at a time. A [`LimitLayer`] is the limiter as a layer.

mod auto_limiter;
mod timeout_limiter;
mod window;

mod limiter;

mod layer;

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::Duration;

pub(super) use self::layer::LimitLayer;
pub(super) use self::limiter::{ConcurrencyLimiter, LimitScope};

/// How many calls are answered at a time; one more is refused.
///
/// By name, as brpc has them: `unlimited`, a number, `auto`, `timeout`. A number below one is no limit, as in brpc.
///
/// ```
/// use polyrpc::server::ConcurrencyLimit;
///
/// assert_eq!("64".parse(), Ok(ConcurrencyLimit::Constant(64)));
/// assert_eq!("unlimited".parse(), Ok(ConcurrencyLimit::Unlimited));
/// assert!(matches!("auto".parse(), Ok(ConcurrencyLimit::Auto(_))));
/// assert!("many".parse::<ConcurrencyLimit>().is_err());
/// ```
///
/// A call that is refused fails with [`ResourceExhausted`](polyrpc_core::Code::ResourceExhausted) (brpc's `ELIMIT`) and
/// may be tried elsewhere. Refusals, by this limit or by another behind it, teach a limit nothing.
///
/// Calls count from when they are taken up to when they have an answer; those of a `blocking` method until it returns,
/// though nobody may wait for it any more. A handler that never waits is over before the next call of its connection
/// begins, so that there are never more of those at a time than threads: what takes long belongs into a `blocking`
/// method, where a limit sees it. How long a stream lasts says nothing of how busy a server is: methods that stream
/// count for a constant limit only, and are let pass by the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConcurrencyLimit {
    /// Any number.
    #[default]
    Unlimited,
    /// This number.
    Constant(usize),
    /// As many as are answered without waiting for each other, which is found out from their latency (brpc's `auto`).
    Auto(AutoLimit),
    /// As long as they are answered in the time that their callers wait, as far as that can be told from the calls
    /// before (brpc's `timeout`).
    Timeout(TimeoutLimit),
}

/// How a limit is found out from the latency of calls.
///
/// The latency without load times the rate of calls that can be answered is the number of calls that are worth
/// beginning (Little's law). Both are measured: the lowest latency, for which now and then fewer calls are let in,
/// and the highest rate. A little more than that is allowed as long as latency does not suffer. Failed calls make the
/// latency look longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AutoLimit {
    /// The limit until something is known. 40.
    pub initial: usize,
    /// The limit is never lower. The number of the machine's cores.
    pub least: usize,
    /// The limit is never higher. No bound.
    pub most: usize,
}

impl Default for AutoLimit {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self { initial: 40, least: cores, most: usize::MAX }
    }
}

/// How calls are limited by the time that their callers wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeoutLimit {
    /// How long a caller waits who does not say. 500 ms.
    pub timeout: Duration,
    /// More calls are not answered at a time. 100.
    pub most: usize,
}

impl Default for TimeoutLimit {
    fn default() -> Self {
        Self { timeout: Duration::from_millis(500), most: 100 }
    }
}

impl ConcurrencyLimit {
    /// Whether the time that calls take says how many there may be.
    pub(super) fn measures(&self) -> bool {
        matches!(self, Self::Auto(_) | Self::Timeout(_))
    }
}

impl From<usize> for ConcurrencyLimit {
    /// This number; 0 is no limit.
    fn from(number: usize) -> Self {
        if number == 0 { Self::Unlimited } else { Self::Constant(number) }
    }
}

impl FromStr for ConcurrencyLimit {
    type Err = UnknownConcurrency;

    fn from_str(text: &str) -> Result<Self, UnknownConcurrency> {
        match text {
            "unlimited" => Ok(Self::Unlimited),
            "auto" => Ok(Self::Auto(AutoLimit::default())),
            "timeout" => Ok(Self::Timeout(TimeoutLimit::default())),
            number => match number.parse::<i64>() {
                Ok(number) => Ok(usize::try_from(number).unwrap_or(0).into()),
                Err(_) => Err(UnknownConcurrency(text.to_owned())),
            },
        }
    }
}

impl fmt::Display for ConcurrencyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::Constant(number) => number.fmt(f),
            Self::Auto(_) => f.write_str("auto"),
            Self::Timeout(_) => f.write_str("timeout"),
        }
    }
}

/// A text that names no concurrency limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownConcurrency(String);

impl fmt::Display for UnknownConcurrency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no concurrency limit: a number, `unlimited`, `auto` or `timeout`", self.0)
    }
}

impl std::error::Error for UnknownConcurrency {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_known_by_name() {
        for (text, limit) in [
            ("unlimited", ConcurrencyLimit::Unlimited),
            ("0", ConcurrencyLimit::Unlimited),
            ("-1", ConcurrencyLimit::Unlimited),
            ("7", ConcurrencyLimit::Constant(7)),
            ("auto", ConcurrencyLimit::Auto(AutoLimit::default())),
            ("timeout", ConcurrencyLimit::Timeout(TimeoutLimit::default())),
        ] {
            assert_eq!(text.parse(), Ok(limit), "{text}");
        }
    }

    #[test]
    fn what_is_no_limit_is_told() {
        for text in ["", "constant", "Auto", "7 ", "99999999999999999999"] {
            let error = text.parse::<ConcurrencyLimit>().unwrap_err();
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
        }
    }
}
