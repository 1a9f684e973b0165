//! The trend of a value over time: robust against bursts, of which a soak has many.

/// Slope by Theil and Sen: the median of the slopes between all pairs of points. Zero with fewer than two.
pub(crate) fn slope(points: &[(f64, f64)]) -> f64 {
    // A week of seconds would be 10^11 pairs: neighbours are joined to their median first.
    let points = join_neighbours(points);
    let mut slopes: Vec<_> = points
        .iter()
        .enumerate()
        .flat_map(|(n, from)| points[n + 1..].iter().map(move |to| (to.1 - from.1) / (to.0 - from.0)))
        .filter(|slope| slope.is_finite())
        .collect();
    median(&mut slopes).unwrap_or(0.0)
}

/// At most 500 points: each is the median of its neighbours, at the middle of their times.
fn join_neighbours(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let each = points.len().div_ceil(MAX_POINTS).max(1);
    let middle = |chunk: &[(f64, f64)]| {
        let mut values: Vec<_> = chunk.iter().map(|point| point.1).collect();
        Some((chunk.iter().map(|point| point.0).sum::<f64>() / chunk.len() as f64, median(&mut values)?))
    };
    points.chunks(each).filter_map(middle).collect()
}

const MAX_POINTS: usize = 500;

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slope_is_that_of_the_line_below_the_bursts() {
        let points = |slope: f64| {
            (0..3600).map(move |second| {
                let burst = if second % 10 == 3 { 1e6 } else { 0.0 };
                (f64::from(second), 100.0 + slope * f64::from(second) + burst)
            })
        };
        for expected in [0.0, 0.5, -2.0] {
            let found = slope(&points(expected).collect::<Vec<_>>());
            assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
        }
        assert_eq!(slope(&[]), 0.0);
        assert_eq!(slope(&[(1.0, 5.0)]), 0.0);
    }
}
