//! Reed–Solomon erasure codes with the matrix of `klauspost/reedsolomon` (`buildMatrix`, its default): a Vandermonde
//! matrix, multiplied by the inverse of its upper square, so that the code is systematic.

use super::gf256::{inverse, multiply, multiply_add, power};
use crate::config::Shards;

/// Computes parity from data, and recovers lost data.
#[derive(Debug)]
pub(crate) struct Code {
    data: usize,
    /// A row for each parity shard, with a factor for each data shard.
    rows: Vec<Vec<u8>>,
}

impl Code {
    /// Creates a code; `None` without data or parity shards, or if there are more shards than elements of the field.
    pub(crate) fn new(shards: Shards) -> Option<Self> {
        let (data, parity) = (usize::from(shards.data), usize::from(shards.parity));
        if data == 0 || parity == 0 || data + parity > 256 {
            return None;
        }
        let vandermonde = |row: usize| (0..data).map(|column| power(row as u8, column)).collect::<Vec<_>>();
        let inverse = invert((0..data).map(vandermonde).collect())?;
        let rows = (data..data + parity).map(|row| {
            let factors = vandermonde(row);
            (0..data).map(|column| dot(&factors, inverse.iter().map(|row| row[column]))).collect()
        });
        Some(Self { data, rows: rows.collect() })
    }

    /// Adds a data shard's contribution to each parity shard.
    pub(crate) fn add(&self, index: usize, data: &[u8], parity: &mut [Vec<u8>]) {
        for (row, parity) in self.rows.iter().zip(parity) {
            multiply_add(row.get(index).copied().unwrap_or(0), data, parity);
        }
    }

    /// Computes the missing data shards, in order, if enough shards are present. All have the length of the longest
    /// one; shorter ones are zero-padded.
    pub(crate) fn reconstruct(&self, shards: &[Option<Vec<u8>>]) -> Option<Vec<Vec<u8>>> {
        let (data, parity) = shards.split_at_checked(self.data)?;
        let missing: Vec<usize> = (0..self.data).filter(|&index| data[index].is_none()).collect();
        let longest = shards.iter().flatten().map(Vec::len).max()?;
        // The contributions of the missing shards to each parity shard: as many equations as unknowns.
        let mut sums = Vec::with_capacity(missing.len());
        let mut factors = Vec::with_capacity(missing.len());
        let usable = self.rows.iter().zip(parity).filter_map(|(row, parity)| Some((row, parity.as_ref()?)));
        for (row, parity) in usable.take(missing.len()) {
            let mut sum = parity.clone();
            sum.resize(longest, 0);
            for (&factor, shard) in row.iter().zip(data) {
                multiply_add(factor, shard.as_deref().unwrap_or_default(), &mut sum);
            }
            sums.push(sum);
            factors.push(missing.iter().map(|&index| row[index]).collect::<Vec<_>>());
        }
        if sums.len() < missing.len() {
            return None;
        }
        let solution = invert(factors)?;
        let solve = |row: &Vec<u8>| {
            let mut shard = vec![0; longest];
            row.iter().zip(&sums).for_each(|(&factor, sum)| multiply_add(factor, sum, &mut shard));
            shard
        };
        Some(solution.iter().map(solve).collect())
    }
}

fn dot(a: &[u8], b: impl Iterator<Item = u8>) -> u8 {
    a.iter().zip(b).fold(0, |sum, (&a, b)| sum ^ multiply(a, b))
}

/// Returns the inverse of a square matrix by elimination, if it has one.
fn invert(mut matrix: Vec<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
    let size = matrix.len();
    for (index, row) in matrix.iter_mut().enumerate() {
        row.extend((0..size).map(|column| u8::from(column == index)));
    }
    for column in 0..size {
        let pivot = (column..size).find(|&row| matrix[row][column] != 0)?;
        matrix.swap(column, pivot);
        let scale = inverse(matrix[column][column]);
        matrix[column].iter_mut().for_each(|element| *element = multiply(*element, scale));
        let pivot = matrix[column].clone();
        for (index, row) in matrix.iter_mut().enumerate() {
            let factor = row[column];
            if index != column {
                multiply_add(factor, &pivot, row);
            }
        }
    }
    matrix.iter_mut().for_each(|row| drop(row.drain(..size)));
    Some(matrix)
}
