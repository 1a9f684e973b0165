//! Merges the seconds of threads.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::engine::record::{SecondPart, second_histogram};
use crate::outcome::{SECOND_QUANTILES, Second};

/// Merges the seconds of all threads. A second is complete when every thread has reported it.
#[derive(Debug)]
pub struct SecondMerger {
    threads: usize,
    open: BTreeMap<u64, Open>,
    complete: Vec<Second>,
}

#[derive(Debug)]
struct Open {
    reports: usize,
    second: Second,
    responses: Histogram<u64>,
}

impl SecondMerger {
    /// Merges the seconds of this number of threads, whichever process they belong to.
    pub fn new(threads: usize) -> Self {
        Self { threads, open: BTreeMap::new(), complete: Vec::new() }
    }

    /// Adds a second of a thread. Returns the sum if it is complete.
    pub fn add(&mut self, part: &SecondPart) -> Option<&Second> {
        let open = self.open.entry(part.number).or_insert_with(|| Open {
            reports: 0,
            second: Second { second: part.number, ..Second::default() },
            responses: second_histogram(),
        });
        open.reports += 1;
        let pairs = [
            (&mut open.second.sent, part.sent),
            (&mut open.second.succeeded, part.succeeded),
            (&mut open.second.failed, part.failed),
            (&mut open.second.in_flight, part.in_flight),
        ];
        for (sum, count) in pairs {
            // Another process may send any number.
            *sum = sum.saturating_add(count);
        }
        open.second.max = open.second.max.max(part.response_max);
        open.second.lag_max = open.second.lag_max.max(part.lag_max);
        for (response, count) in &part.responses {
            open.responses.saturating_record_n(*response, *count);
        }
        if open.reports < self.threads {
            return None;
        }
        let complete = self.open.remove(&part.number)?.finish();
        self.complete.push(complete);
        self.complete.last()
    }

    /// All seconds, in order, without the empty ones at the end.
    pub fn finish(mut self) -> Vec<Second> {
        self.complete.extend(self.open.into_values().map(Open::finish));
        self.complete.sort_by_key(|second| second.second);
        let is_empty = |it: &Second| it.sent == 0 && it.succeeded == 0 && it.failed == 0;
        while self.complete.pop_if(|last| is_empty(last)).is_some() {}
        self.complete
    }
}

impl Open {
    fn finish(self) -> Second {
        let Self { mut second, responses, .. } = self;
        second.quantiles =
            SECOND_QUANTILES.map(|quantile| responses.value_at_quantile(quantile).min(second.max));
        second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_is_complete_when_every_thread_has_reported_it() {
        let part = |number, responses: &[(u64, u64)]| SecondPart {
            number,
            sent: 1,
            succeeded: responses.iter().map(|(_, count)| count).sum(),
            response_max: responses.iter().map(|(response, _)| *response).max().unwrap_or(0),
            responses: responses.to_vec(),
            ..SecondPart::default()
        };
        let mut seconds = SecondMerger::new(2);
        assert!(seconds.add(&part(0, &[(100, 50)])).is_none());
        assert!(seconds.add(&part(1, &[(7, 1)])).is_none());
        let first = seconds.add(&part(0, &[(5_000, 50)])).unwrap();
        assert_eq!((first.succeeded, first.max, first.quantiles[0]), (100, 5_000, 100));
        assert!((4_950..=5_000).contains(&first.quantiles[2]), "{first:?}");
        assert!(seconds.add(&SecondPart { number: 2, ..SecondPart::default() }).is_none());
        assert_eq!(seconds.finish().len(), 2);
    }
}
