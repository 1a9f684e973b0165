//! The order in which subjects are measured, so that a drift of the machine affects them alike.

/// Which of two subjects is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The first one, the reference.
    A,
    /// The second one.
    B,
}

/// The four windows of a round: ABBA in even rounds, BAAB in odd ones. A linear drift cancels within each round, and each
/// subject is as often first, last and in the middle as the other one.
pub fn abba(round: usize) -> [Side; 4] {
    if round.is_multiple_of(2) {
        [Side::A, Side::B, Side::B, Side::A]
    } else {
        [Side::B, Side::A, Side::A, Side::B]
    }
}

/// A balanced Latin square (Williams 1949): orders of `subjects` subjects, one order a round. Each subject
/// stands in each position equally often, and follows each other subject equally often. An odd number takes
/// twice as many rounds.
pub fn latin_square(subjects: usize) -> Vec<Vec<usize>> {
    if subjects < 2 {
        return vec![(0..subjects).collect()];
    }
    // 0, 1, n−1, 2, n−2, …: each difference of neighbours occurs once.
    let first: Vec<_> = (0..subjects)
        .map(|position| match position {
            0 => 0,
            _ if position.is_multiple_of(2) => subjects - position / 2,
            _ => position.div_ceil(2),
        })
        .collect();
    let shifted = |shift: usize| first.iter().map(|subject| (subject + shift) % subjects).collect::<Vec<_>>();
    let mut square: Vec<_> = (0..subjects).map(shifted).collect();
    if !subjects.is_multiple_of(2) {
        let mirrored: Vec<_> = square.iter().map(|order| order.iter().rev().copied().collect()).collect();
        square.extend::<Vec<Vec<_>>>(mirrored);
    }
    square
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_is_in_every_position_and_follows_every_other_equally_often() {
        for subjects in 2..=9 {
            let square = latin_square(subjects);
            let rounds = square.len();
            assert_eq!(rounds, if subjects % 2 == 0 { subjects } else { 2 * subjects });
            let mut positions = vec![vec![0; subjects]; subjects];
            let mut neighbours = vec![vec![0; subjects]; subjects];
            for order in &square {
                order.iter().enumerate().for_each(|(position, subject)| positions[*subject][position] += 1);
                order.windows(2).for_each(|pair| neighbours[pair[0]][pair[1]] += 1);
            }
            let each = rounds / subjects;
            assert!(positions.iter().flatten().all(|count| *count == each), "{subjects}: {positions:?}");
            for (before, row) in neighbours.iter().enumerate() {
                for (after, count) in row.iter().enumerate() {
                    assert_eq!(
                        *count,
                        if before == after { 0 } else { each },
                        "{subjects}: {before} {after}"
                    );
                }
            }
        }
        assert_eq!(latin_square(1), [[0]]);
        assert_eq!(latin_square(0), [[0_usize; 0]]);
    }

    #[test]
    fn linear_drift_cancels_within_a_round() {
        for round in 0..4 {
            let positions = |side| {
                abba(round).iter().enumerate().filter(|(_, at)| **at == side).map(|(at, _)| at).sum::<usize>()
            };
            assert_eq!(positions(Side::A), positions(Side::B));
        }
        assert_ne!(abba(0), abba(1));
    }
}
