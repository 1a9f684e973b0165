//! Arithmetic of GF(256) for Reed–Solomon codes: polynomials over GF(2) modulo x⁸ + x⁴ + x³ + x² + 1, as in
//! `klauspost/reedsolomon` (`galois.go`, generating polynomial 29).

pub(super) fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[(usize::from(LOG[usize::from(a)]) + usize::from(LOG[usize::from(b)])) % 255]
}

/// Returns the multiplicative inverse of `a`. Zero has none; the result is zero.
pub(super) fn inverse(a: u8) -> u8 {
    if a == 0 { 0 } else { EXP[(255 - usize::from(LOG[usize::from(a)])) % 255] }
}

pub(super) fn power(a: u8, exponent: usize) -> u8 {
    match (a, exponent) {
        (_, 0) => 1,
        (0, _) => 0,
        _ => EXP[usize::from(LOG[usize::from(a)]) * exponent % 255],
    }
}

/// Adds `factor` times `from` to `to`. A shorter `from` counts as padded with zeros; the rest of a longer one is ignored.
pub(super) fn multiply_add(factor: u8, from: &[u8], to: &mut [u8]) {
    if factor == 0 {
        return;
    }
    // Multiplication distributes over the nibbles of a byte: two small tables instead of one logarithm look-up per byte.
    let low: [u8; 16] = std::array::from_fn(|nibble| multiply(factor, nibble as u8));
    let high: [u8; 16] = std::array::from_fn(|nibble| multiply(factor, (nibble as u8) << 4));
    for (to, &from) in to.iter_mut().zip(from) {
        *to ^= low[usize::from(from & 15)] ^ high[usize::from(from >> 4)];
    }
}

const EXP: [u8; 255] = {
    let mut table = [0; 255];
    let (mut at, mut power) = (0, 1_u8);
    while at < 255 {
        table[at] = power;
        power = (power << 1) ^ if power & 0x80 != 0 { 0x1d } else { 0 };
        at += 1;
    }
    table
};

const LOG: [u8; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 255 {
        table[EXP[at] as usize] = at as u8;
        at += 1;
    }
    table
};
