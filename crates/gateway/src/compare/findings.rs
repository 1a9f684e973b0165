//! Conclusions about a server from the comparisons of many calls.
//!
//! A second primary is called in addition to the compared server. If both differ from the first primary, the value
//! varies by itself. The test counts how often only one of the two differs: without a real difference this is equally
//! likely for both (McNemar's test).

use std::collections::BTreeMap;

use super::difference::Difference;

/// Findings by method.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    methods: BTreeMap<String, MethodFindings>,
    /// Number of paths of all methods.
    paths: usize,
}

/// Findings about one method.
#[derive(Debug, Default, Clone)]
pub(crate) struct MethodFindings {
    /// Number of compared calls.
    pub(crate) compared: u64,
    /// Number of calls without any difference.
    pub(crate) equal: u64,
    pub(crate) paths: BTreeMap<String, PathFindings>,
    /// Number of differences at further paths.
    pub(crate) at_other_paths: u64,
}

/// Findings about a path.
#[derive(Debug, Default, Clone)]
pub(crate) struct PathFindings {
    /// Number of calls in which only the compared server differed from the primary.
    pub(crate) alone: u64,
    /// Number of calls in which only the second primary differed.
    pub(crate) noise: u64,
    /// Number of calls in which both differed.
    pub(crate) both: u64,
    /// The first few differences of the compared server.
    pub(crate) samples: Vec<Difference>,
}

/// The conclusion about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The server differs from the primary.
    Differs,
    /// The primary differs from itself as often.
    Noise,
    /// There were too few calls.
    TooFew,
}

impl Findings {
    /// Records the comparison of a call.
    pub(crate) fn record(
        &mut self,
        method: &str,
        differences: BTreeMap<String, Difference>,
        noise: &BTreeMap<String, Difference>,
    ) {
        let known = self.methods.contains_key(method) || self.methods.len() < MAX_METHODS;
        let method = if known { method } else { "other methods" };
        let all = &mut self.paths;
        let findings = self.methods.entry(method.to_owned()).or_default();
        findings.compared += 1;
        findings.equal += u64::from(differences.is_empty());
        for path in noise.keys().filter(|path| !differences.contains_key(*path)) {
            if let Some(path) = findings.path(path, all) {
                path.noise += 1;
            }
        }
        for (path, difference) in differences {
            let is_noise = noise.contains_key(&path);
            let Some(path) = findings.path(&path, all) else { continue };
            match is_noise {
                true => path.both += 1,
                false => path.alone += 1,
            }
            if path.samples.len() < MAX_SAMPLES {
                path.samples.push(difference);
            }
        }
    }

    pub(crate) fn methods(&self) -> &BTreeMap<String, MethodFindings> {
        &self.methods
    }
}

impl MethodFindings {
    fn path(&mut self, path: &str, all: &mut usize) -> Option<&mut PathFindings> {
        if !self.paths.contains_key(path) {
            if self.paths.len() >= MAX_PATHS_PER_METHOD || *all >= MAX_PATHS {
                self.at_other_paths += 1;
                return None;
            }
            *all += 1;
            self.paths.insert(path.to_owned(), PathFindings::default());
        }
        self.paths.get_mut(path)
    }

    /// Concludes whether the server differs at a path, with 99 % confidence for all paths of the method together.
    pub(crate) fn verdict(&self, path: &PathFindings) -> Verdict {
        if self.compared < MIN_CALLS {
            return Verdict::TooFew;
        }
        // Bonferroni's correction: among many paths some would differ by chance.
        let level = 0.01 / self.paths.len().max(1) as f64;
        match probability(path.alone, path.noise) < level {
            true => Verdict::Differs,
            false => Verdict::Noise,
        }
    }
}

/// The probability that of `alone + noise` tosses of a coin at least `alone` are heads.
fn probability(alone: u64, noise: u64) -> f64 {
    let tosses = alone + noise;
    if alone <= noise {
        return 1.0;
    }
    if tosses > MAX_EXACT_TOSSES {
        let (alone, noise) = (alone as f64, noise as f64);
        return tail_probability((alone - noise - 1.0) / (alone + noise).sqrt());
    }
    let mut term = 0.5_f64.powi(tosses as i32);
    let mut sum = term;
    for heads in (alone..tosses).rev() {
        term *= (heads + 1) as f64 / (tosses - heads) as f64;
        sum += term;
    }
    sum
}

/// Upper bound of the probability that a normally distributed value exceeds the mean by `z` standard deviations, close
/// for `z` of one or more (Mills's ratio).
fn tail_probability(z: f64) -> f64 {
    if z < 1.0 {
        return 1.0;
    }
    (-z * z / 2.0).exp() / (z * (2.0 * std::f64::consts::PI).sqrt())
}

/// Minimum number of calls for a conclusion.
const MIN_CALLS: u64 = 300;

/// Number of tosses up to which the probability is calculated exactly; beyond it, a term may underflow to zero.
const MAX_EXACT_TOSSES: u64 = 1_000;

/// Maximum of paths of a method and of all methods, and of samples of a path.
const MAX_PATHS_PER_METHOD: usize = 1_000;
const MAX_PATHS: usize = 10_000;
const MAX_SAMPLES: usize = 5;

/// Maximum number of methods with separate findings.
const MAX_METHODS: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn differing(paths: &[&str]) -> BTreeMap<String, Difference> {
        let difference = || Difference { one: "1".into(), other: "2".into() };
        paths.iter().map(|path| ((*path).to_owned(), difference())).collect()
    }

    /// Numbers of a small generator (Knuth's MMIX).
    struct Random(u64);

    impl Random {
        fn chance(&mut self, percent: u64) -> bool {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % 100 < percent
        }
    }

    #[test]
    fn probability_is_that_of_the_binomial_distribution() {
        for (alone, noise, wanted) in
            [(1, 0, 0.5), (7, 0, 0.5_f64.powi(7)), (5, 5, 1.0), (9, 1, 11.0 / 1024.0), (60, 40, 0.02844)]
        {
            let found = probability(alone, noise);
            assert!((found - wanted).abs() < 1e-4, "{alone} {noise} {found}");
        }
        // The approximation continues where the exact one ends.
        let (exact, near) = (probability(560, 440), probability(561, 441));
        assert!((exact / near - 1.0).abs() < 0.3, "{exact} {near}");
    }

    #[test]
    fn real_difference_is_found_and_noise_is_not() {
        for noisy in [100, 50, 10, 1] {
            let (mut findings, mut random) = (Findings::default(), Random(noisy));
            for call in 0..10_000 {
                let mut candidate = Vec::new();
                if random.chance(noisy) {
                    candidate.push("time");
                }
                if call % 50 == 0 {
                    candidate.push("price");
                }
                let noise = if random.chance(noisy) { &["time"][..] } else { &[] };
                findings.record("Get", differing(&candidate), &differing(noise));
            }
            let method = &findings.methods()["Get"];
            assert_eq!(method.verdict(&method.paths["price"]), Verdict::Differs, "{noisy}");
            assert_eq!(method.verdict(&method.paths["time"]), Verdict::Noise, "{noisy}");
            assert_eq!(method.paths["price"].samples.len(), MAX_SAMPLES);
        }
    }

    #[test]
    fn few_calls_prove_nothing() {
        let mut findings = Findings::default();
        for _ in 0..MIN_CALLS - 1 {
            findings.record("Get", differing(&["a"]), &differing(&[]));
        }
        let verdict = |findings: &Findings| {
            let method = &findings.methods()["Get"];
            method.verdict(&method.paths["a"])
        };
        assert_eq!(verdict(&findings), Verdict::TooFew);
        findings.record("Get", differing(&["a"]), &differing(&[]));
        assert_eq!(verdict(&findings), Verdict::Differs);
    }

    #[test]
    fn paths_and_methods_are_bounded() {
        let mut findings = Findings::default();
        for n in 0..MAX_PATHS_PER_METHOD + 10 {
            findings.record("Get", differing(&[&n.to_string()]), &BTreeMap::new());
        }
        let method = &findings.methods()["Get"];
        assert_eq!((method.paths.len(), method.at_other_paths), (MAX_PATHS_PER_METHOD, 10));
        for n in 0..MAX_METHODS + 10 {
            findings.record(&n.to_string(), BTreeMap::new(), &BTreeMap::new());
        }
        assert_eq!(findings.methods().len(), MAX_METHODS + 1);
    }
}
