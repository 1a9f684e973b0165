//! The median of a few rounds.

use super::interval::Interval;
use super::probability::binomial_cdf;
use super::quantile::ranks;

/// The median; `None` without values or with one that is not a number.
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sort(values)?;
    let (below, above) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some(f64::midpoint(*below, *above))
}

/// Interval of the median by order statistics: exact for every continuous distribution, at any number of rounds. `None` if
/// there are too few: from minimum to maximum, five values reach 93.8 % and six 96.9 %.
pub fn median_interval(values: &[f64], confidence: f64) -> Option<Interval> {
    let sorted = sort(values)?;
    let (lower, upper, confidence) = ranks(sorted.len() as u64, 0.5, confidence)?;
    Some(Interval { low: sorted[lower as usize - 1], high: sorted[upper as usize - 1], confidence })
}

/// Two-sided p-value of the hypothesis that the median is `expected`. Values equal to it count against a difference.
pub fn sign_test(values: &[f64], expected: f64) -> f64 {
    let above = values.iter().filter(|value| **value > expected).count();
    let below = values.iter().filter(|value| **value < expected).count();
    let equal = values.len() - above - below;
    let fewer = above.min(below) + equal;
    (2.0 * binomial_cdf(fewer as u64, values.len() as u64, 0.5)).min(1.0)
}

fn sort(values: &[f64]) -> Option<Vec<f64>> {
    if values.iter().any(|value| value.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted)
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::*;

    #[test]
    fn median_of_an_even_count_lies_between_the_middle_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, f64::NAN]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn five_rounds_are_too_few_for_95_percent() {
        assert_eq!(median_interval(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.95), None);
        let interval = median_interval(&[6.0, 1.0, 2.0, 3.0, 4.0, 5.0], 0.95).unwrap();
        assert_eq!((interval.low, interval.high), (1.0, 6.0));
        let five = median_interval(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.9).unwrap();
        assert!((five.confidence - 0.9375).abs() < 1e-12);
    }

    #[test]
    fn sign_test_has_the_known_p_values() {
        assert!((sign_test(&[2.0; 6], 1.0) - 0.03125).abs() < 1e-12);
        assert!((sign_test(&[2.0, 2.0, 2.0, 2.0, 2.0, 0.5], 1.0) - 0.21875).abs() < 1e-12);
        assert_eq!(sign_test(&[1.0; 6], 1.0), 1.0);
        assert_eq!(sign_test(&[], 1.0), 1.0);
    }

    #[test]
    fn interval_covers_the_true_median_as_often_as_it_promises() {
        let mut random = Random::new(11);
        for rounds in [6, 10, 25] {
            let mut covered = 0;
            let mut promised = 0.0;
            for _ in 0..4000 {
                // Skewed, with a long tail, as throughput of a machine with neighbours is.
                let values: Vec<_> = (0..rounds).map(|_| 1.0 / (1.0 - random.uniform()).powi(2)).collect();
                let interval = median_interval(&values, 0.95).unwrap();
                promised = interval.confidence;
                covered += u32::from(interval.contains(4.0));
            }
            let share = f64::from(covered) / 4000.0;
            assert!((share - promised).abs() < 0.015, "{rounds} rounds: {share} instead of {promised}");
        }
    }
}
