//! The Tiny Encryption Algorithm and its extension, with the block layout of `golang.org/x/crypto/tea` and `xtea`:
//! big-endian.

/// TEA with 8 cycles, like `kcp-go` (`NewCipherWithRounds(key, 16)`).
pub(super) fn tea(key: &[u32; 4], block: &mut [u8; 8]) {
    let mix = |word: u32, sum: u32, first: u32, second: u32| {
        (word << 4).wrapping_add(first) ^ word.wrapping_add(sum) ^ (word >> 5).wrapping_add(second)
    };
    let [mut a, mut b] = halves(*block);
    let mut sum = 0_u32;
    for _ in 0..8 {
        sum = sum.wrapping_add(DELTA);
        a = a.wrapping_add(mix(b, sum, key[0], key[1]));
        b = b.wrapping_add(mix(a, sum, key[2], key[3]));
    }
    *block = join([a, b]);
}

/// XTEA with the usual 32 cycles.
pub(super) fn xtea(key: &[u32; 4], block: &mut [u8; 8]) {
    let mix = |word: u32| ((word << 4) ^ (word >> 5)).wrapping_add(word);
    let part = |sum: u32, which: u32| sum.wrapping_add(key[(which & 3) as usize]);
    let [mut a, mut b] = halves(*block);
    let mut sum = 0_u32;
    for _ in 0..32 {
        a = a.wrapping_add(mix(b) ^ part(sum, sum));
        sum = sum.wrapping_add(DELTA);
        b = b.wrapping_add(mix(a) ^ part(sum, sum >> 11));
    }
    *block = join([a, b]);
}

fn halves([a, b, c, d, e, f, g, h]: [u8; 8]) -> [u32; 2] {
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}

fn join([first, second]: [u32; 2]) -> [u8; 8] {
    (u64::from(first) << 32 | u64::from(second)).to_be_bytes()
}

const DELTA: u32 = 0x9e37_79b9;
