//! Two subjects, measured in the same rounds.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::holm::holm;
use super::interval::Interval;
use super::median::{median, median_interval, sign_test};
use super::noise::Noise;

/// Figures of one round in the order of [`abba`](super::order::abba): two windows of each subject.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The reference.
    pub a: [f64; 2],
    /// The subject that is compared with it.
    pub b: [f64; 2],
    /// Noise of the machine during the round.
    pub noise: Noise,
}

/// Result of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Median over the rounds of B's figure divided by A's.
    pub ratio: f64,
    /// Its interval; `None` with too few rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// The same of A's second window divided by its first: what a comparison of A with itself shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Interval>,
    /// Smallest relative difference that these rounds can show: 0.03 for 3 %.
    pub resolution: f64,
    /// Two-sided p-value of the hypothesis that there is no difference.
    pub p_value: f64,
    /// Number of rounds that count: without the unusable ones, unless fewer than six are left.
    pub rounds: usize,
    /// What follows from it.
    pub finding: Finding,
}

/// What a comparison shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// B's figure is higher.
    Higher,
    /// B's figure is lower.
    Lower,
    /// The interval lies within ±3 %.
    Same,
    /// Neither a difference nor equality is proven.
    NoDifferenceShown,
    /// The machine was too noisy to name a winner, whatever the figures are.
    TooNoisy,
    /// Fewer than six rounds.
    TooFewRounds,
}

/// Compares positive figures, such as rates or latencies. A difference is found only if the interval of the ratio excludes 1, and
/// the ratio differs from 1 by more than 3 % and by more than the resolution. `None` if a figure is not a positive number or no
/// round is usable.
pub fn compare(rounds: &[Round], confidence: f64) -> Option<Comparison> {
    let quiet_enough: Vec<_> = rounds.iter().filter(|round| round.noise != Noise::Unusable).collect();
    // Too much noise must not look like too few rounds.
    let is_unusable = rounds.len() >= MIN_ROUNDS && quiet_enough.len() < MIN_ROUNDS;
    let usable = if is_unusable { rounds.iter().collect() } else { quiet_enough };
    if usable
        .iter()
        .any(|round| round.a.iter().chain(&round.b).any(|figure| !(figure.is_finite() && *figure > 0.0)))
    {
        return None;
    }
    // Logarithms: half and double are equally far from 1, and the mean of two windows is their geometric mean.
    let log_mean = |windows: [f64; 2]| f64::midpoint(windows[0].ln(), windows[1].ln());
    let ratios: Vec<_> = usable.iter().map(|round| log_mean(round.b) - log_mean(round.a)).collect();
    // A control compares one window with one, a ratio two with two, whose spread is smaller by √2.
    let scale = 1.0 / 2.0_f64.sqrt();
    let controls: Vec<_> = usable.iter().map(|round| round.a[1].ln() - round.a[0].ln()).collect();
    let noise: Vec<_> = usable.iter().map(|round| round.noise).collect();
    judge(&Logs { ratios, controls, noise }, scale, confidence)
}

/// One window of each subject in a round, and one more of the reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RatioRound {
    /// B's figure divided by A's.
    pub ratio: f64,
    /// The figure of the control's second window divided by that of its first; `None` if it was not measured.
    pub control: Option<f64>,
    /// Noise of the machine during the round.
    pub noise: Noise,
}

/// [`compare`] for rounds in which each of several subjects has one window, in an order of
/// [`latin_square`](super::order::latin_square), and one of them a second one. Without a control, no difference is shown.
pub fn compare_ratios(rounds: &[RatioRound], confidence: f64) -> Option<Comparison> {
    let quiet_enough: Vec<_> = rounds.iter().filter(|round| round.noise != Noise::Unusable).collect();
    let is_unusable = rounds.len() >= MIN_ROUNDS && quiet_enough.len() < MIN_ROUNDS;
    let usable = if is_unusable || quiet_enough.is_empty() { rounds.iter().collect() } else { quiet_enough };
    let is_positive = |figure: f64| figure.is_finite() && figure > 0.0;
    if usable.iter().any(|round| !is_positive(round.ratio) || !round.control.is_none_or(is_positive)) {
        return None;
    }
    let logs = Logs {
        ratios: usable.iter().map(|round| round.ratio.ln()).collect(),
        controls: usable.iter().filter_map(|round| Some(round.control?.ln())).collect(),
        noise: usable.iter().map(|round| round.noise).collect(),
    };
    judge(&logs, 1.0, confidence)
}

/// Logarithms of the usable rounds.
struct Logs {
    ratios: Vec<f64>,
    controls: Vec<f64>,
    noise: Vec<Noise>,
}

/// `scale` is the spread of a ratio relative to that of a control.
fn judge(logs: &Logs, scale: f64, confidence: f64) -> Option<Comparison> {
    let Logs { ratios, controls, noise } = logs;
    let ratio = median(ratios)?;
    let interval = median_interval(ratios, confidence);
    let control = median_interval(controls, confidence);
    let resolution = control.map_or(f64::INFINITY, |control| control.high.max(-control.low) * scale);
    let is_unusable = noise.contains(&Noise::Unusable);
    let is_noisy = noise.iter().filter(|noise| **noise == Noise::Noisy).count() * 2 > noise.len();
    let finding = match interval {
        None => Finding::TooFewRounds,
        Some(_) if ratios.len() < MIN_ROUNDS => Finding::TooFewRounds,
        Some(_) if is_noisy || is_unusable => Finding::TooNoisy,
        Some(interval) => finding(ratio, interval, resolution),
    };
    Some(Comparison {
        ratio: ratio.exp(),
        interval: interval.map(|interval| interval.map(f64::exp)),
        control: control.map(|control| control.map(f64::exp)),
        resolution: if resolution.is_finite() { resolution.exp_m1() } else { 1.0 },
        p_value: sign_test(ratios, 0.0),
        rounds: ratios.len(),
        finding,
    })
}

/// Withdraws each difference whose p-value, by Holm's correction for all of these comparisons, exceeds `level`: among what remains
/// there is a false one with at most this probability. Six rounds cannot reach 5 % with two comparisons, twelve can with many.
pub fn withdraw_insignificant(comparisons: &mut [&mut Comparison], level: f64) {
    let p_values: Vec<_> = comparisons.iter().map(|comparison| comparison.p_value).collect();
    for (comparison, p_value) in comparisons.iter_mut().zip(holm(&p_values)) {
        if matches!(comparison.finding, Finding::Higher | Finding::Lower) && p_value > level {
            comparison.finding = Finding::NoDifferenceShown;
        }
    }
}

/// All in logarithms.
fn finding(ratio: f64, interval: Interval, resolution: f64) -> Finding {
    let least = MIN_DIFFERENCE.ln_1p();
    let is_large = ratio.abs() > least.max(resolution);
    match () {
        () if is_large && interval.low > 0.0 => Finding::Higher,
        () if is_large && interval.high < 0.0 => Finding::Lower,
        () if interval.is_within(-least, least) => Finding::Same,
        () => Finding::NoDifferenceShown,
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
            Self::Same => "the same within 3 %",
            Self::NoDifferenceShown => "no difference shown",
            Self::TooNoisy => "the machine is too noisy for a judgement",
            Self::TooFewRounds => "too few rounds for a judgement",
        })
    }
}

/// Smallest relative difference that is called one: 0.03 for 3 %.
pub const MIN_DIFFERENCE: f64 = 0.03;
/// Smallest number of rounds whose median has an interval of 95 %.
pub const MIN_ROUNDS: usize = 6;

#[cfg(test)]
mod tests {
    use super::super::probability::normal_quantile;
    use super::super::random::Random;
    use super::*;

    /// Rounds of figures that vary by `deviation`, where B's is `factor` times A's.
    fn rounds(count: usize, factor: f64, deviation: f64, random: &mut Random) -> Vec<Round> {
        let mut figure = |factor: f64| factor * 1e5 * (normal_quantile(random.uniform()) * deviation).exp();
        (0..count)
            .map(|_| Round {
                a: [figure(1.0), figure(1.0)],
                b: [figure(factor), figure(factor)],
                noise: Noise::Quiet,
            })
            .collect()
    }

    #[test]
    fn ratio_is_computed_within_rounds() {
        // A machine that is twice as fast in every other round.
        let round = |speed: f64| Round { a: [speed; 2], b: [speed * 1.1; 2], noise: Noise::Quiet };
        let rounds: Vec<_> = [100.0, 200.0, 100.0, 200.0, 100.0, 200.0].map(round).into();
        let comparison = compare(&rounds, 0.95).unwrap();
        assert!((comparison.ratio - 1.1).abs() < 1e-12);
        assert_eq!(comparison.finding, Finding::Higher);
        assert!((comparison.p_value - 0.03125).abs() < 1e-12);
        assert_eq!(comparison.resolution, 0.0);
    }

    #[test]
    fn difference_within_3_percent_is_none() {
        let round = |factor: f64| Round { a: [100.0; 2], b: [100.0 * factor; 2], noise: Noise::Quiet };
        assert_eq!(compare(&[round(1.02); 6], 0.95).unwrap().finding, Finding::Same);
        assert_eq!(compare(&[round(0.9); 6], 0.95).unwrap().finding, Finding::Lower);
        assert_eq!(compare(&[round(0.9); 5], 0.95).unwrap().finding, Finding::TooFewRounds);
        assert_eq!(compare(&[round(0.0); 6], 0.95), None);
        assert_eq!(compare(&[round(f64::NAN); 6], 0.95), None);
        assert_eq!(compare(&[], 0.95), None);
    }

    #[test]
    fn difference_below_the_resolution_of_the_control_is_not_shown() {
        // B is always 8 % higher, but A differs from itself by up to 30 %.
        let rounds: Vec<_> = [1.3, 0.8, 1.2, 0.75, 1.3, 0.8]
            .map(|wobble: f64| {
                let root = wobble.sqrt();
                Round { a: [100.0 / root, 100.0 * root], b: [108.0; 2], noise: Noise::Quiet }
            })
            .into();
        let comparison = compare(&rounds, 0.95).unwrap();
        assert_eq!(comparison.finding, Finding::NoDifferenceShown);
        assert!(comparison.resolution > 0.2 && comparison.interval.unwrap().low > 1.0);
    }

    #[test]
    fn several_comparisons_need_more_rounds_than_one() {
        let round = |factor: f64| Round { a: [100.0; 2], b: [100.0 * factor; 2], noise: Noise::Quiet };
        let findings = |rounds: usize| {
            let [mut one, mut other] =
                [1.2, 1.3].map(|factor| compare(&vec![round(factor); rounds], 0.95).unwrap());
            withdraw_insignificant(&mut [&mut one, &mut other], 0.05);
            [one.finding, other.finding]
        };
        assert_eq!(findings(6), [Finding::NoDifferenceShown; 2]);
        assert_eq!(findings(12), [Finding::Higher; 2]);
    }

    #[test]
    fn ratios_of_single_windows_are_judged_like_those_of_two() {
        let round = |ratio, control| RatioRound { ratio, control, noise: Noise::Quiet };
        let found = |rounds: &[RatioRound]| compare_ratios(rounds, 0.95).unwrap().finding;
        assert_eq!(found(&[round(1.2, Some(1.01)); 6]), Finding::Higher);
        assert_eq!(found(&[round(0.8, Some(1.01)); 6]), Finding::Lower);
        assert_eq!(found(&[round(1.2, Some(1.01)); 5]), Finding::TooFewRounds);
        // The control differs from itself by more, or there is none.
        assert_eq!(found(&[round(1.2, Some(0.7)); 6]), Finding::NoDifferenceShown);
        assert_eq!(found(&[round(1.2, None); 6]), Finding::NoDifferenceShown);
        let noisy = RatioRound { noise: Noise::Noisy, ..round(3.0, Some(1.0)) };
        assert_eq!(found(&[noisy; 6]), Finding::TooNoisy);
        let unusable = RatioRound { noise: Noise::Unusable, ..noisy };
        assert_eq!(found(&[unusable; 6]), Finding::TooNoisy);
        // Its ratio is shown all the same.
        assert_eq!(found(&[unusable]), Finding::TooFewRounds);
        assert_eq!(compare_ratios(&[round(0.0, None); 6], 0.95), None);
    }

    #[test]
    fn noise_forbids_a_winner() {
        let round = |noise| Round { a: [100.0; 2], b: [200.0; 2], noise };
        let noisy = [[round(Noise::Noisy); 4].as_slice(), &[round(Noise::Quiet); 3]].concat();
        assert_eq!(compare(&noisy, 0.95).unwrap().finding, Finding::TooNoisy);
        let unusable = [[round(Noise::Unusable); 4].as_slice(), &[round(Noise::Quiet); 5]].concat();
        let comparison = compare(&unusable, 0.95).unwrap();
        assert_eq!((comparison.finding, comparison.rounds), (Finding::TooNoisy, 9));
        assert_eq!(compare(&[round(Noise::Unusable); 6], 0.95).unwrap().finding, Finding::TooNoisy);
        assert_eq!(compare(&[round(Noise::Unusable); 5], 0.95), None);
    }

    #[test]
    fn equal_subjects_rarely_differ_and_different_ones_usually_do() {
        let mut random = Random::new(5);
        let share = |factor: f64, deviation: f64, count: usize, wanted: &[Finding], random: &mut Random| {
            let found = (0..2000)
                .filter(|_| {
                    wanted
                        .contains(&compare(&rounds(count, factor, deviation, random), 0.95).unwrap().finding)
                })
                .count();
            found as f64 / 2000.0
        };
        let different = [Finding::Higher, Finding::Lower];
        // The interval alone errs in 3.1 % of cases; the resolution makes it rarer.
        let false_calls = share(1.0, 0.05, 6, &different, &mut random);
        assert!(false_calls < 0.031, "{false_calls}");
        let true_calls = share(1.2, 0.03, 6, &[Finding::Higher], &mut random);
        assert!(true_calls > 0.95, "{true_calls}");
        let same = share(1.0, 0.005, 12, &[Finding::Same], &mut random);
        assert!(same > 0.99, "{same}");
    }

    #[test]
    fn interval_covers_the_true_ratio_as_often_as_it_promises() {
        let mut random = Random::new(9);
        let covered = (0..2000)
            .filter(|_| {
                compare(&rounds(6, 1.1, 0.1, &mut random), 0.95).unwrap().interval.unwrap().contains(1.1)
            })
            .count();
        let share = covered as f64 / 2000.0;
        assert!((share - 0.96875).abs() < 0.012, "{share}");
    }
}
