use std::time::Duration;

use polyrpc::layer::Side;

use crate::request::PageRequest;
use crate::role::Role;
use crate::tap::{CALLS_PER_SECOND, Filter, Outcome};
use crate::wildcard::Wildcards;

/// Parameters of a request for live calls.
#[derive(Debug, Clone)]
pub(crate) struct TapQuery {
    pub(crate) filter: Filter,
    pub(crate) duration: Duration,
    /// Maximum number of calls in a second.
    pub(crate) rate: u32,
    /// Maximum number of calls.
    pub(crate) count: u64,
    /// Whether texts of failures are shown, which may contain values.
    pub(crate) values: bool,
}

/// Time for which calls are shown unless another is given, and the longest.
const SECONDS: u64 = 10;
const MAX_SECONDS: u64 = 300;

/// Maximum number of calls.
const MAX_CALLS: u64 = 30_000;

/// Reads a request.
///
/// # Errors
///
/// The status of the answer, and the reason for the rejection.
pub(crate) fn query(request: &PageRequest) -> Result<TapQuery, (u16, &'static str)> {
    const WRONG: (u16, &str) = (
        400,
        "A parameter is invalid: seconds is 1 to 300, rate 1 to 100, count and min_latency are numbers, side is client \
         or server, status is ok, failed, a number or a code such as not_found.",
    );
    let given = |name| request.parameter(name).filter(|value| !value.is_empty());
    let number = |name, usual: u64, max: u64| match given(name) {
        None => Ok(usual),
        Some(text) => text.parse().ok().filter(|number| (1..=max).contains(number)).ok_or(WRONG),
    };
    let side = match given("side") {
        None => None,
        Some("client" | "C") => Some(Side::Client),
        Some("server" | "S") => Some(Side::Server),
        Some(_) => return Err(WRONG),
    };
    let min_latency = given("min_latency").map_or(Ok(0), str::parse).map_err(|_| WRONG)?;
    let values = request.parameter("values").is_some();
    if values && request.caller.role < Role::Call {
        return Err((403, "Values are shown to callers of the role call."));
    }
    let filter = Filter {
        method: Wildcards::parse(given("method").unwrap_or_default())?,
        peer: given("peer").map(str::to_owned),
        protocol: given("protocol").map(str::to_owned),
        outcome: Outcome::parse(given("status").unwrap_or_default()).ok_or(WRONG)?,
        side,
        min_latency: Duration::from_micros(min_latency),
    };
    Ok(TapQuery {
        filter,
        duration: Duration::from_secs(number("seconds", SECONDS, MAX_SECONDS)?),
        rate: u32::try_from(number("rate", CALLS_PER_SECOND.into(), CALLS_PER_SECOND.into())?).unwrap_or(1),
        count: number("count", MAX_CALLS, MAX_CALLS)?,
        values,
    })
}
