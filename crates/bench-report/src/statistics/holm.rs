//! Correction for several comparisons.

/// Holm's adjusted p-values (1979), in the order of `p_values`: the chance of any false finding among those with an adjusted
/// value of at most 5 % is at most 5 %, however the comparisons depend on each other.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<_> = (0..p_values.len()).collect();
    order.sort_by(|left, right| p_values[*left].total_cmp(&p_values[*right]));
    let mut adjusted = vec![1.0; p_values.len()];
    let mut largest = 0.0_f64;
    for (rank, at) in order.into_iter().enumerate() {
        largest = largest.max(p_values[at] * (p_values.len() - rank) as f64).min(1.0);
        adjusted[at] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_p_value_is_multiplied_by_the_number_of_comparisons() {
        let adjusted = holm(&[0.04, 0.01, 0.03]);
        let rounded: Vec<_> = adjusted.iter().map(|p| (p * 1e9).round() / 1e9).collect();
        assert_eq!(rounded, [0.06, 0.03, 0.06]);
        assert_eq!(holm(&[0.5, 0.9]), [1.0, 1.0]);
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn six_rounds_cannot_support_two_comparisons_but_twelve_can() {
        let of_rounds = |rounds: i32| 2.0 * 0.5_f64.powi(rounds);
        assert!(holm(&[of_rounds(6); 2])[0] > 0.05);
        assert!(holm(&[of_rounds(12); 20])[0] < 0.05);
    }
}
