use std::sync::atomic::{AtomicI64, Ordering};

/// How many attempts a client may make beyond one for each call, so that servers that fail are not buried under
/// attempts that fail too.
///
/// Every call brings a share of an attempt, and every attempt beyond the first, be it again or in advance
/// ([`Failbackup`](super::FailMode::Failbackup)), takes a whole one. Attempts that reached no server cost nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryBudget {
    /// Further attempts for each call, in the long run. 0.2.
    pub ratio: f64,
    /// Further attempts there are before there were any calls, or as many as there are other calls under way if that is more,
    /// so that a server may die under the first of many callers. Calls bring none until what was lent is paid for. 10.
    pub floor: u32,
    /// Further attempts that may be saved for worse times: as many calls as are under way when a server dies can be
    /// saved at once. 1000.
    pub most: u32,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self { ratio: 0.2, floor: 10, most: 1000 }
    }
}

impl RetryBudget {
    /// As many as it takes.
    pub const UNLIMITED: Self = Self { ratio: f64::INFINITY, floor: u32::MAX, most: u32::MAX };
}

/// What is left of a budget, in thousandths of attempts.
///
/// Not ordered against anything else: at worst an attempt more or less is made in a race.
#[derive(Debug)]
pub(in crate::client) struct RetryTokens {
    balance: AtomicI64,
    /// What was lent.
    credit_used: AtomicI64,
    deposit_per_call: i64,
    max_balance: i64,
}

impl RetryTokens {
    pub(in crate::client) fn new(budget: &RetryBudget) -> Self {
        let floor = ATTEMPT * i64::from(budget.floor);
        Self {
            balance: AtomicI64::new(floor),
            credit_used: AtomicI64::new(floor),
            // A conversion to an integer keeps to its bounds, and what is no number is zero.
            deposit_per_call: ((budget.ratio * ATTEMPT as f64) as i64).clamp(0, MOST_PER_CALL),
            max_balance: ATTEMPT * i64::from(budget.most.max(budget.floor)),
        }
    }

    /// A call is made.
    pub(in crate::client) fn deposit(&self) {
        if self.credit_used.load(Ordering::Relaxed) > 0 {
            self.credit_used.fetch_sub(self.deposit_per_call, Ordering::Relaxed);
        } else if self.balance.load(Ordering::Relaxed) < self.max_balance {
            // In a client whose calls succeed it is full, so this is not written.
            self.balance.fetch_add(self.deposit_per_call, Ordering::Relaxed);
        }
    }

    /// Pays for one more attempt, if there is enough, or as much as may be lent where so many calls are under way.
    pub(in crate::client) fn withdraw(&self, under_way: impl FnOnce() -> usize) -> bool {
        let paid = |left: i64| (left >= ATTEMPT).then(|| left - ATTEMPT);
        self.balance.fetch_update(Ordering::Relaxed, Ordering::Relaxed, paid).is_ok()
            || self.withdraw_on_credit(under_way)
    }

    #[cold]
    fn withdraw_on_credit(&self, under_way: impl FnOnce() -> usize) -> bool {
        // What no call pays back is not lent.
        if self.deposit_per_call == 0 {
            return false;
        }
        let others = i64::try_from(under_way().saturating_sub(1)).unwrap_or(i64::MAX);
        let most = others.saturating_mul(ATTEMPT).min(self.max_balance);
        let lent = |owed: i64| (owed + ATTEMPT <= most).then(|| owed + ATTEMPT);
        self.credit_used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lent).is_ok()
    }
}

const ATTEMPT: i64 = 1000;

/// No call needs more: it keeps sums far from where integers end.
const MOST_PER_CALL: i64 = 1000 * ATTEMPT;

#[cfg(test)]
mod tests {
    use super::*;

    /// How many attempts so many calls make that fail as often as they are tried.
    fn attempts(budget: &RetryBudget, calls: u32) -> u32 {
        let retry_tokens = RetryTokens::new(budget);
        let mut attempts = 0;
        for _ in 0..calls {
            retry_tokens.deposit();
            attempts += 1 + (0..3).take_while(|_| retry_tokens.withdraw(|| 1)).count() as u32;
        }
        attempts
    }

    #[test]
    fn when_all_fails_there_are_a_fifth_more_attempts_than_calls() {
        for calls in [50, 100, 1000, 12345] {
            let attempts = attempts(&RetryBudget::default(), calls);
            assert!(attempts <= calls + calls / 5, "{attempts} attempts for {calls} calls");
            assert!(attempts >= calls + calls / 5 - 1, "{attempts} attempts for {calls} calls");
        }
    }

    #[test]
    fn the_first_calls_have_a_few_to_begin_with() {
        assert_eq!(attempts(&RetryBudget::default(), 1), 4);
        assert_eq!(attempts(&RetryBudget::default(), 20), 30);
        assert_eq!(attempts(&RetryBudget { floor: 0, ..RetryBudget::default() }, 4), 4);
    }

    #[test]
    fn what_is_saved_has_an_end() {
        let retry_tokens = RetryTokens::new(&RetryBudget { most: 20, ..RetryBudget::default() });
        (0..10_000).for_each(|_| retry_tokens.deposit());
        assert_eq!((0..100).filter(|_| retry_tokens.withdraw(|| 0)).count(), 20);
    }

    #[test]
    fn calls_that_are_under_way_together_can_be_saved_together() {
        let retry_tokens = RetryTokens::new(&RetryBudget::default());
        assert_eq!((0..100).filter(|_| retry_tokens.withdraw(|| 65)).count(), 64);
        // It is paid back before anything is saved.
        (0..64 * 5 + 4).for_each(|_| retry_tokens.deposit());
        assert!(!retry_tokens.withdraw(|| 0));
        retry_tokens.deposit();
        assert!(retry_tokens.withdraw(|| 0));
    }

    #[test]
    fn who_wants_no_further_attempts_is_lent_none() {
        let none = RetryBudget { ratio: 0.0, floor: 0, most: 0 };
        for budget in [none, RetryBudget { ratio: 0.2, ..none }, RetryBudget { most: 1000, ..none }] {
            assert!(!RetryTokens::new(&budget).withdraw(|| 1000), "{budget:?}");
        }
    }

    #[test]
    fn odd_ratios_do_no_harm() {
        assert_eq!(attempts(&RetryBudget { ratio: f64::NAN, floor: 0, most: 1 }, 10), 10);
        assert_eq!(attempts(&RetryBudget { ratio: -1.0, floor: 1, most: 1 }, 10), 11);
        assert_eq!(attempts(&RetryBudget::UNLIMITED, 10), 40);
    }
}
