//! The normal and the binomial distribution.

use std::f64::consts::{PI, SQRT_2};

/// Probability that a standard normal variable is at most `x`.
pub(super) fn normal_cdf(x: f64) -> f64 {
    let gamma = half_gamma(x * x / 2.0);
    if x < 0.0 { gamma.upper / 2.0 } else { 1.0 - gamma.upper / 2.0 }
}

/// Inverse of [`normal_cdf`]; infinite at 0 and 1.
pub(super) fn normal_quantile(p: f64) -> f64 {
    if p <= 0.0 {
        return f64::NEG_INFINITY;
    }
    if p >= 1.0 {
        return f64::INFINITY;
    }
    // Bisection: 60 halvings of ±9 are exact to the last digits, and nothing here is called often.
    let (mut low, mut high) = (-9.0_f64, 9.0_f64);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if normal_cdf(middle) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// Probability of at most `k` successes in `n` trials that each succeed with probability `p`.
pub(super) fn binomial_cdf(k: u64, n: u64, p: f64) -> f64 {
    if k >= n {
        return 1.0;
    }
    regularized_beta((n - k) as f64, k as f64 + 1.0, 1.0 - p)
}

struct HalfGamma {
    /// Regularized upper incomplete gamma function Q(1/2, x).
    upper: f64,
}

/// Q(1/2, x), which is erfc(√x): by its series for small `x`, by its continued fraction otherwise.
fn half_gamma(x: f64) -> HalfGamma {
    if x <= 0.0 {
        return HalfGamma { upper: 1.0 };
    }
    let front = (-x).exp() * x.sqrt() / PI.sqrt();
    if x < 1.5 {
        let (mut term, mut sum, mut a) = (2.0, 2.0, 0.5);
        while term > sum * f64::EPSILON {
            a += 1.0;
            term *= x / a;
            sum += term;
        }
        return HalfGamma { upper: 1.0 - front * sum };
    }
    let mut b = x + 0.5;
    let mut c = 1.0 / TINY;
    let mut d = 1.0 / b;
    let mut fraction = d;
    for step in 1..500 {
        let step = f64::from(step);
        let a = -step * (step - 0.5);
        b += 2.0;
        d = 1.0 / avoid_zero(a * d + b);
        c = avoid_zero(b + a / c);
        fraction *= d * c;
        if (d * c - 1.0).abs() < f64::EPSILON {
            break;
        }
    }
    HalfGamma { upper: front * fraction }
}

/// I_x(a, b), by Lentz's continued fraction (DLMF 8.17.22).
fn regularized_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp();
    // The fraction converges quickly on this side of the mean; the other side follows by symmetry.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(a, b, x) / a
    } else {
        1.0 - front * beta_fraction(b, a, 1.0 - x) / b
    }
}

fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    let mut c = 1.0;
    let mut d = 1.0 / avoid_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    // It takes about √(a + b) steps; the bound is for a thousand million calls.
    for m in 1..200_000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        for term in [even, odd] {
            d = 1.0 / avoid_zero(1.0 + term * d);
            c = avoid_zero(1.0 + term / c);
            fraction *= d * c;
        }
        if (d * c - 1.0).abs() < f64::EPSILON * 4.0 {
            break;
        }
    }
    fraction
}

/// ln Γ(x) for `x` > 0: Stirling's series, after shifting small arguments up.
fn ln_gamma(mut x: f64) -> f64 {
    let mut shift = 0.0;
    while x < 24.0 {
        shift += x.ln();
        x += 1.0;
    }
    let inverse = 1.0 / x;
    let square = inverse * inverse;
    let series = inverse * (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0)));
    (x - 0.5) * x.ln() - x + (SQRT_2 * PI.sqrt()).ln() + series - shift
}

fn avoid_zero(value: f64) -> f64 {
    if value.abs() < TINY { TINY } else { value }
}

const TINY: f64 = 1e-300;

#[cfg(test)]
mod tests {
    use super::*;

    fn is_near(value: f64, expected: f64, tolerance: f64) {
        assert!((value - expected).abs() <= tolerance, "{value} instead of {expected}");
    }

    #[test]
    fn normal_distribution_matches_its_tables() {
        is_near(normal_cdf(0.0), 0.5, 1e-15);
        is_near(normal_cdf(1.0), 0.841_344_746_068_542_9, 1e-14);
        is_near(normal_cdf(1.959_963_984_540_054), 0.975, 1e-14);
        is_near(normal_cdf(-3.0), 0.001_349_898_031_630_094_6, 1e-16);
        is_near(normal_cdf(-6.0), 9.865_876_450_376_946e-10, 1e-22);
        is_near(normal_quantile(0.975), 1.959_963_984_540_054, 1e-12);
        is_near(normal_quantile(0.001), -3.090_232_306_167_813, 1e-12);
        assert_eq!(normal_quantile(0.0), f64::NEG_INFINITY);
    }

    #[test]
    fn binomial_distribution_matches_exact_sums() {
        is_near(binomial_cdf(0, 6, 0.5), 1.0 / 64.0, 1e-13);
        is_near(binomial_cdf(2, 6, 0.5), 22.0 / 64.0, 1e-13);
        is_near(binomial_cdf(0, 10, 0.1), 0.9_f64.powi(10), 1e-13);
        is_near(binomial_cdf(9, 10, 0.9), 1.0 - 0.9_f64.powi(10), 1e-13);
        assert_eq!(binomial_cdf(6, 6, 0.5), 1.0);
        for (k, n, p) in [(30, 100, 0.25), (15, 1000, 0.01), (3, 50, 0.02)] {
            is_near(binomial_cdf(k, n, p), sum_terms(k, n, p), 1e-12);
        }
    }

    #[test]
    fn binomial_distribution_of_a_thousand_million_trials_is_symmetric_about_its_median() {
        let below = binomial_cdf(499_999_999, 1_000_000_000, 0.5);
        let above = 1.0 - binomial_cdf(500_000_000, 1_000_000_000, 0.5);
        is_near(below, above, 1e-6);
        is_near(below, 0.5, 1e-4);
    }

    fn sum_terms(k: u64, n: u64, p: f64) -> f64 {
        let mut term = (1.0 - p).powf(n as f64);
        let mut sum = term;
        for i in 0..k {
            term *= (n - i) as f64 / (i + 1) as f64 * p / (1.0 - p);
            sum += term;
        }
        sum
    }
}
