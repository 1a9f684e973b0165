//! Limits how many calls are handled at a time: by a constant, by one of brpc's adaptive limiters, or not at all.
//!
//! A [`ConcurrencyLimit`] is the configuration. A [`ConcurrencyLimiter`] counts the calls of a method, or of all
//! methods, and checks with its algorithm whether there is room: [`auto_limiter`] and [`timeout_limiter`] learn from
//! finished calls, one [`window`] at a time. A [`LimitLayer`] is the limiter as a layer.

mod auto_limiter;
mod timeout_limiter;
mod window;

mod limiter;

mod layer;

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::Duration;

use polyrpc_core::Status;

use crate::Error;

pub(super) use self::layer::LimitLayer;
pub(super) use self::limiter::{ConcurrencyLimiter, LimitScope};

/// Limit of the calls that are handled at a time; a further call is rejected.
///
/// Parsed from brpc's names: `unlimited`, a number, `auto`, `timeout`. A number below one is no limit, as in brpc.
///
/// ```
/// use polyrpc::server::ConcurrencyLimit;
///
/// assert_eq!("64".parse::<ConcurrencyLimit>()?, ConcurrencyLimit::Constant(64));
/// assert_eq!("unlimited".parse::<ConcurrencyLimit>()?, ConcurrencyLimit::Unlimited);
/// assert_eq!("auto".parse::<ConcurrencyLimit>()?, ConcurrencyLimit::auto());
/// assert!("many".parse::<ConcurrencyLimit>().is_err());
/// # Ok::<(), polyrpc::Error>(())
/// ```
///
/// A rejected call fails with [`ResourceExhausted`](polyrpc_core::Code::ResourceExhausted) (brpc's `ELIMIT`) and may be
/// retried elsewhere. A limit ignores rejections, by itself or by other limits, in its measurements.
///
/// A call counts from when it is started until it has a response; one of a `blocking` method until that returns, even
/// if its caller no longer waits. A handler that never waits finishes before the next call of its connection starts, so
/// there are never more of these at a time than threads. Put long work into a `blocking` method, where a limit counts
/// it. The duration of a stream does not show the server's load: streaming methods only count for a constant
/// limit; adaptive limits ignore them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConcurrencyLimit {
    /// Any number.
    #[default]
    Unlimited,
    /// A constant number.
    Constant(usize),
    /// As many as are handled without waiting for each other, estimated from their latency (brpc's `auto`).
    ///
    /// The latency without load times the rate of calls that can be answered is the number of calls that are worth
    /// starting (Little's law). Both are measured: the lowest latency, for which fewer calls are admitted now and then,
    /// and the highest rate. A little more than that is allowed as long as latency does not suffer. Failed calls count
    /// as a higher latency.
    Auto {
        /// The limit until something is measured.
        initial: usize,
        /// The lower bound of the limit.
        min: usize,
        /// The upper bound of the limit.
        max: usize,
    },
    /// As many as are answered within their callers' timeouts, estimated from earlier calls (brpc's `timeout`).
    Timeout {
        /// The timeout of a caller that sends none.
        timeout: Duration,
        /// The upper bound of calls that are handled at a time.
        max: usize,
    },
}

impl ConcurrencyLimit {
    /// [`Auto`](Self::Auto) with brpc's settings: at first 40, at least the number of the machine's cores, without an
    /// upper bound.
    pub fn auto() -> Self {
        let min = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self::Auto { initial: 40, min, max: usize::MAX }
    }

    /// [`Timeout`](Self::Timeout) with brpc's settings: at most 100 calls, and 500 ms for callers that send no timeout.
    pub fn timeout() -> Self {
        Self::Timeout { timeout: Duration::from_millis(500), max: 100 }
    }

    /// Returns whether the limit is derived from the duration of calls.
    pub(super) fn measures(&self) -> bool {
        matches!(self, Self::Auto { .. } | Self::Timeout { .. })
    }
}

impl From<usize> for ConcurrencyLimit {
    /// Converts a constant limit; 0 is no limit.
    fn from(number: usize) -> Self {
        if number == 0 { Self::Unlimited } else { Self::Constant(number) }
    }
}

impl FromStr for ConcurrencyLimit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "unlimited" => Ok(Self::Unlimited),
            "auto" => Ok(Self::auto()),
            "timeout" => Ok(Self::timeout()),
            number => match number.parse::<i64>() {
                Ok(number) => Ok(usize::try_from(number).unwrap_or(0).into()),
                Err(_) => Err(unknown(text)),
            },
        }
    }
}

impl fmt::Display for ConcurrencyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::Constant(number) => number.fmt(f),
            Self::Auto { .. } => f.write_str("auto"),
            Self::Timeout { .. } => f.write_str("timeout"),
        }
    }
}

#[cold]
fn unknown(text: &str) -> Error {
    let text =
        format!("invalid concurrency limit `{text}`: expected a number, `unlimited`, `auto` or `timeout`");
    Status::invalid_argument(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_parsed_from_its_name() {
        for (text, limit) in [
            ("unlimited", ConcurrencyLimit::Unlimited),
            ("0", ConcurrencyLimit::Unlimited),
            ("-1", ConcurrencyLimit::Unlimited),
            ("7", ConcurrencyLimit::Constant(7)),
            ("auto", ConcurrencyLimit::auto()),
            ("timeout", ConcurrencyLimit::timeout()),
        ] {
            assert_eq!(text.parse::<ConcurrencyLimit>().unwrap(), limit);
        }
    }

    #[test]
    fn invalid_limit_is_an_error() {
        for text in ["", "constant", "Auto", "7 ", "99999999999999999999"] {
            let error = text.parse::<ConcurrencyLimit>().unwrap_err();
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
        }
    }
}
