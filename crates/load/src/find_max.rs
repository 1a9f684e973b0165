//! The highest rate at which a server meets conditions.

use std::fmt;

/// Settings of the search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Search {
    /// First rate, in calls per second.
    pub from: f64,
    /// Highest rate to try.
    pub to: f64,
    /// The search ends when the highest met rate and the lowest failed rate differ by at most this share.
    pub precision: f64,
    /// How often the found rate must be met, and the rate above it fail.
    pub confirmations: u32,
}

impl Default for Search {
    fn default() -> Self {
        Self { from: 1_000.0, to: 1e7, precision: 0.05, confirmations: 3 }
    }
}

/// Result of one run of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trial {
    /// The server met the conditions at the planned rate.
    Met,
    /// The server did not meet them.
    Failed,
    /// The generator could not make the calls: the server's limit is not known.
    Invalid,
}

/// The limit of a server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    /// Highest rate that was met, if any.
    pub met: Option<f64>,
    /// Lowest rate that failed, if any.
    pub failed: Option<f64>,
    /// How often each was tried, and met, at the end.
    pub confirmed: (u32, u32),
    /// Lowest rate that the generator could not make. The server's limit may be above it.
    pub generator: Option<f64>,
    /// Number of runs.
    pub runs: u32,
}

/// Doubles the rate until a run fails, halves the interval until it is precise, then repeats both ends. A met rate that
/// fails when repeated becomes the upper end, and the search continues below it.
pub fn find_max<E>(search: Search, mut run: impl FnMut(f64) -> Result<Trial, E>) -> Result<Limit, E> {
    let mut limit = Limit { met: None, failed: None, confirmed: (0, 0), generator: None, runs: 0 };
    let mut rate = search.from.min(search.to);
    loop {
        let trial = run(rate)?;
        limit.runs += 1;
        match trial {
            Trial::Met => limit.met = Some(rate),
            Trial::Failed => limit.failed = Some(rate),
            Trial::Invalid => {
                limit.failed = Some(rate);
                limit.generator = Some(limit.generator.map_or(rate, |known: f64| known.min(rate)));
            }
        }
        let next = match (limit.met, limit.failed) {
            (Some(met), None) if met >= search.to => None,
            (Some(met), None) => Some((met * 2.0).min(search.to)),
            (None, Some(failed)) => Some(failed / 2.0).filter(|rate| *rate >= 1.0),
            (Some(met), Some(failed)) if failed / met > 1.0 + search.precision => Some((met * failed).sqrt()),
            _ => None,
        };
        if let Some(next) = next {
            rate = next;
            continue;
        }
        let Some(met) = limit.met else { return Ok(limit) };
        match confirm(search, &mut limit, met, &mut run)? {
            true => return Ok(limit),
            false => {
                // It was met by chance: search below it.
                limit.failed = Some(met);
                limit.met = None;
                rate = met / (1.0 + search.precision);
                if limit.runs > MAX_RUNS || rate < 1.0 {
                    return Ok(limit);
                }
            }
        }
    }
}

/// Repeats both ends. Returns whether most runs at the lower end were met.
fn confirm<E>(
    search: Search,
    limit: &mut Limit,
    met: f64,
    run: &mut impl FnMut(f64) -> Result<Trial, E>,
) -> Result<bool, E> {
    let (mut low, mut high) = (1, 0);
    for _ in 1..search.confirmations {
        limit.runs += 1;
        low += u32::from(run(met)? == Trial::Met);
    }
    if let Some(failed) = limit.failed {
        for _ in 1..search.confirmations {
            limit.runs += 1;
            high += u32::from(run(failed)? == Trial::Met);
        }
    }
    limit.confirmed = (low, high);
    Ok(low * 2 > search.confirmations)
}

/// Maximum number of runs for a server whose results contradict each other.
const MAX_RUNS: u32 = 60;

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.met, self.failed) {
            (Some(met), Some(failed)) => write!(f, "max {met:.0} to {failed:.0}/s"),
            (Some(met), None) => write!(f, "max {met:.0}/s or more"),
            (None, Some(failed)) => write!(f, "below {failed:.0}/s"),
            (None, None) => f.write_str("unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn limit_of(capacity: f64, search: Search) -> Limit {
        let run = |rate| Ok::<_, Infallible>(if rate <= capacity { Trial::Met } else { Trial::Failed });
        find_max(search, run).unwrap()
    }

    #[test]
    fn limit_is_found_from_below_and_from_above() {
        for capacity in [37.0, 1_000.0, 123_456.0] {
            let limit = limit_of(capacity, Search::default());
            let (met, failed) = (limit.met.unwrap(), limit.failed.unwrap());
            assert!(met <= capacity && capacity < failed && failed / met <= 1.0501, "{limit:?}");
            assert_eq!(limit.confirmed, (3, 0));
        }
        let unlimited = limit_of(f64::MAX, Search { to: 50_000.0, ..Search::default() });
        assert_eq!((unlimited.met, unlimited.failed), (Some(50_000.0), None));
        assert_eq!(limit_of(0.1, Search::default()).met, None);
    }

    #[test]
    fn rate_that_was_met_once_is_not_the_result() {
        let mut tried = 0;
        let run = |rate: f64| {
            tried += 1;
            Ok::<_, Infallible>(if rate <= 900.0 || tried == 1 { Trial::Met } else { Trial::Failed })
        };
        let limit = find_max(Search::default(), run).unwrap();
        assert!(limit.met.unwrap() <= 900.0, "{limit:?}");
    }

    #[test]
    fn generator_that_cannot_keep_up_is_reported() {
        let run = |rate: f64| Ok::<_, Infallible>(if rate <= 3_000.0 { Trial::Met } else { Trial::Invalid });
        assert!(find_max(Search::default(), run).unwrap().generator.unwrap() > 3_000.0);
    }
}
