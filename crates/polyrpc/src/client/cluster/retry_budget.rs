use std::sync::atomic::{AtomicI64, Ordering};

/// Limit of a client's attempts beyond one per call, so that failing servers are not overloaded with attempts that fail
/// too.
///
/// Every call deposits a fraction of an attempt, and every further attempt, be it a retry or a backup request
/// ([`Failbackup`](super::FailMode::Failbackup)), withdraws a whole one. Attempts that reached no server cost nothing, nor
/// does the first repetition of a call that a server certainly has not processed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryBudget {
    /// Further attempts per call, in the long run. Default: 0.2.
    pub ratio: f64,
    /// Attempts that a new client may make before its calls have deposited any. They are a loan, which the first
    /// deposits repay. Default: 10.
    ///
    /// If the balance is empty, attempts may be borrowed while the debt is below the number of other calls in flight: a
    /// server may fail during the first calls of many callers.
    pub initial_tokens: u32,
    /// Maximum balance, and maximum debt: at most twice this number of attempts can be made at once. It is raised to
    /// `initial_tokens` if that is larger. Default: 1000.
    pub max_tokens: u32,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self { ratio: 0.2, initial_tokens: 10, max_tokens: 1000 }
    }
}

impl RetryBudget {
    /// No limit.
    pub const UNLIMITED: Self = Self { ratio: f64::INFINITY, initial_tokens: u32::MAX, max_tokens: u32::MAX };
}

/// Balance of a retry budget, in thousandths of attempts.
///
/// The atomics are relaxed: a race costs at most one attempt more or less.
#[derive(Debug)]
pub(in crate::client) struct RetryTokens {
    balance: AtomicI64,
    /// Borrowed attempts.
    credit_used: AtomicI64,
    deposit_per_call: i64,
    max_balance: i64,
}

impl RetryTokens {
    pub(in crate::client) fn new(budget: &RetryBudget) -> Self {
        let floor = ATTEMPT * i64::from(budget.initial_tokens);
        Self {
            balance: AtomicI64::new(floor),
            credit_used: AtomicI64::new(floor),
            // The conversion to an integer saturates, and turns NaN into zero.
            deposit_per_call: ((budget.ratio * ATTEMPT as f64) as i64).clamp(0, MAX_PER_CALL),
            max_balance: ATTEMPT * i64::from(budget.max_tokens.max(budget.initial_tokens)),
        }
    }

    /// Deposits the share of one call.
    pub(in crate::client) fn deposit(&self) {
        if self.credit_used.load(Ordering::Relaxed) > 0 {
            self.credit_used.fetch_sub(self.deposit_per_call, Ordering::Relaxed);
        } else if self.balance.load(Ordering::Relaxed) < self.max_balance {
            // With calls that succeed the balance is full, so this is not written.
            self.balance.fetch_add(self.deposit_per_call, Ordering::Relaxed);
        }
    }

    /// Withdraws one attempt from the balance, or borrows it if enough calls are in flight.
    pub(in crate::client) fn withdraw(&self, under_way: impl FnOnce() -> usize) -> bool {
        let paid = |left: i64| (left >= ATTEMPT).then(|| left - ATTEMPT);
        self.balance.fetch_update(Ordering::Relaxed, Ordering::Relaxed, paid).is_ok()
            || self.withdraw_on_credit(under_way)
    }

    #[cold]
    fn withdraw_on_credit(&self, under_way: impl FnOnce() -> usize) -> bool {
        // Nothing is lent unless calls will repay it.
        if self.deposit_per_call == 0 {
            return false;
        }
        let others = i64::try_from(under_way().saturating_sub(1)).unwrap_or(i64::MAX);
        let most = others.saturating_mul(ATTEMPT).min(self.max_balance);
        let lent = |debt: i64| (debt + ATTEMPT <= most).then(|| debt + ATTEMPT);
        self.credit_used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lent).is_ok()
    }
}

const ATTEMPT: i64 = 1000;

/// Upper limit of a deposit, which keeps sums far from overflow.
const MAX_PER_CALL: i64 = 1000 * ATTEMPT;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many attempts this number of calls makes if every attempt fails.
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
    fn budget_limits_retries_to_a_fifth_of_the_calls() {
        for calls in [50, 100, 1000, 12345] {
            let attempts = attempts(&RetryBudget::default(), calls);
            assert!(attempts <= calls + calls / 5, "{attempts} attempts for {calls} calls");
            assert!(attempts >= calls + calls / 5 - 1, "{attempts} attempts for {calls} calls");
        }
    }

    #[test]
    fn first_calls_have_an_initial_budget() {
        assert_eq!(attempts(&RetryBudget::default(), 1), 4);
        assert_eq!(attempts(&RetryBudget::default(), 20), 30);
        assert_eq!(attempts(&RetryBudget { initial_tokens: 0, ..RetryBudget::default() }, 4), 4);
    }

    #[test]
    fn saved_budget_is_limited() {
        let retry_tokens = RetryTokens::new(&RetryBudget { max_tokens: 20, ..RetryBudget::default() });
        (0..10_000).for_each(|_| retry_tokens.deposit());
        assert_eq!((0..100).filter(|_| retry_tokens.withdraw(|| 0)).count(), 20);
    }

    #[test]
    fn concurrent_calls_can_borrow_from_the_budget() {
        let retry_tokens = RetryTokens::new(&RetryBudget::default());
        assert_eq!((0..100).filter(|_| retry_tokens.withdraw(|| 65)).count(), 64);
        // The debt is repaid before the balance grows.
        (0..64 * 5 + 4).for_each(|_| retry_tokens.deposit());
        assert!(!retry_tokens.withdraw(|| 0));
        retry_tokens.deposit();
        assert!(retry_tokens.withdraw(|| 0));
    }

    #[test]
    fn zero_budget_allows_no_retry() {
        let none = RetryBudget { ratio: 0.0, initial_tokens: 0, max_tokens: 0 };
        for budget in [none, RetryBudget { ratio: 0.2, ..none }, RetryBudget { max_tokens: 1000, ..none }] {
            assert!(!RetryTokens::new(&budget).withdraw(|| 1000), "{budget:?}");
        }
    }

    #[test]
    fn extreme_ratios_never_panic() {
        assert_eq!(attempts(&RetryBudget { ratio: f64::NAN, initial_tokens: 0, max_tokens: 1 }, 10), 10);
        assert_eq!(attempts(&RetryBudget { ratio: -1.0, initial_tokens: 1, max_tokens: 1 }, 10), 11);
        assert_eq!(attempts(&RetryBudget::UNLIMITED, 10), 40);
    }
}
