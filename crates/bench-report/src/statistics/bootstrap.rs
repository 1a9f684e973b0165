//! Intervals of statistics that have no exact one, by resampling.

use super::interval::Interval;
use super::probability::{normal_cdf, normal_quantile};
use super::random::Random;

/// BCa bootstrap interval (Efron 1987) of a statistic of `values`, by 10,000 resamples that depend on `seed` alone. `None` for
/// fewer than 10 values, where it is known to be too narrow, or if the statistic is not a number.
///
/// For the median of rounds use [`median_interval`](super::median_interval), which is exact. This one is for means and ratios,
/// for example the rate of a run by its seconds. Seconds that depend on each other are to be joined to blocks first.
pub fn bootstrap_interval(
    values: &[f64],
    confidence: f64,
    seed: u64,
    statistic: impl Fn(&[f64]) -> f64,
) -> Option<Interval> {
    if values.len() < MIN_VALUES {
        return None;
    }
    let estimate = statistic(values);
    let resampled = resample(values, seed, &statistic);
    if estimate.is_nan() || resampled.iter().any(|value| value.is_nan()) {
        return None;
    }
    let (first, last) = (resampled.first()?, resampled.last()?);
    if first == last {
        return Some(Interval { low: *first, high: *last, confidence });
    }
    let bias = bias(&resampled, estimate);
    let acceleration = acceleration(values, &statistic);
    let at = |tail: f64| {
        let shifted = bias + normal_quantile(tail);
        let adjusted = normal_cdf(bias + shifted / (1.0 - acceleration * shifted));
        let index = (adjusted * RESAMPLES as f64) as usize;
        resampled[index.min(RESAMPLES - 1)]
    };
    let tail = (1.0 - confidence) / 2.0;
    Some(Interval { low: at(tail), high: at(1.0 - tail), confidence })
}

/// The statistic of each resample, sorted.
fn resample(values: &[f64], seed: u64, statistic: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let mut random = Random::new(seed);
    let mut drawn = vec![0.0; values.len()];
    let mut statistics: Vec<_> = (0..RESAMPLES)
        .map(|_| {
            drawn.iter_mut().for_each(|value| *value = values[random.index(values.len())]);
            statistic(&drawn)
        })
        .collect();
    statistics.sort_by(f64::total_cmp);
    statistics
}

/// Where the estimate lies among the resamples, as a normal quantile; ties count by half.
fn bias(resampled: &[f64], estimate: f64) -> f64 {
    let below = resampled.partition_point(|value| *value < estimate);
    let up_to = resampled.partition_point(|value| *value <= estimate);
    let share = f64::midpoint(below as f64, up_to as f64) / RESAMPLES as f64;
    // An estimate outside all resamples has no finite quantile.
    normal_quantile(share.clamp(1e-4, 1.0 - 1e-4))
}

/// Skewness of the statistic, by leaving out one value at a time.
fn acceleration(values: &[f64], statistic: impl Fn(&[f64]) -> f64) -> f64 {
    let without: Vec<_> = (0..values.len())
        .map(|left_out| {
            let mut others = values.to_vec();
            others.remove(left_out);
            statistic(&others)
        })
        .collect();
    let mean = without.iter().sum::<f64>() / without.len() as f64;
    let power_sum = |power: i32| without.iter().map(|value| (mean - value).powi(power)).sum::<f64>();
    let (squares, cubes) = (power_sum(2), power_sum(3));
    if squares > 0.0 { cubes / (6.0 * squares.powf(1.5)) } else { 0.0 }
}

const RESAMPLES: usize = 10_000;
const MIN_VALUES: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn interval_is_reproducible_and_contains_the_mean() {
        let values: Vec<_> = (0..30).map(|n| f64::from(n * n % 17)).collect();
        let interval = bootstrap_interval(&values, 0.95, 1, mean).unwrap();
        assert_eq!(bootstrap_interval(&values, 0.95, 1, mean), Some(interval));
        assert!(interval.contains(mean(&values)));
        // Student's interval of the same values is about ±1.9.
        assert!((interval.high - interval.low - 3.7).abs() < 0.7, "{interval:?}");
    }

    #[test]
    fn few_values_constant_values_and_nan_are_handled() {
        assert_eq!(bootstrap_interval(&[1.0; 9], 0.95, 1, mean), None);
        let constant = bootstrap_interval(&[2.0; 10], 0.95, 1, mean).unwrap();
        assert_eq!((constant.low, constant.high), (2.0, 2.0));
        assert_eq!(bootstrap_interval(&[f64::NAN; 10], 0.95, 1, mean), None);
    }

    #[test]
    fn interval_covers_the_mean_of_a_skewed_distribution() {
        let mut random = Random::new(3);
        let mut covered = 0;
        for seed in 0..100 {
            let values: Vec<_> = (0..30).map(|_| -(1.0 - random.uniform()).ln()).collect();
            covered += u32::from(bootstrap_interval(&values, 0.95, seed, mean).unwrap().contains(1.0));
        }
        // BCa covers 93 to 94 % here; three standard deviations of 100 trials are 7 %.
        assert!(covered >= 86, "{covered} of 100");
    }
}
