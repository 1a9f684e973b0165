//! A faster way to append many bytes to a `Vec`.

/// Appends bytes that may be many.
///
/// They are copied in pieces, each shorter than what the C library copies by `rep movsb`, which on AMD's Zen 3 and 4 is
/// fifteen times slower for bytes that begin with a page and go to a little behind the beginning of one. Behind the head
/// of a message that is where they go. See ADR 25.
#[inline]
pub fn append(out: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.len() <= PIECE {
        return out.extend_from_slice(bytes);
    }
    out.reserve(bytes.len());
    bytes.chunks(PIECE).for_each(|piece| out.extend_from_slice(piece));
}

/// glibc's limit is 2112 bytes where `rep movsb` is said to be fast.
const PIECE: usize = 2 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_appended_in_order() {
        for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 3] {
            let bytes: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            let mut out = b"before".to_vec();
            append(&mut out, &bytes);
            assert!(out.strip_prefix(b"before") == Some(&bytes), "{length}");
        }
    }
}
