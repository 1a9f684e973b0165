//! The Huffman code of RFC 7541, Appendix B.
//!
//! Decoding uses a table of state transitions for every four bits, built from the code at compile time: two look-ups
//! per byte, whatever the lengths of the codes.

/// Appends the Huffman code of `text`, padded with ones to whole bytes.
pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0_u64, 0);
    for &byte in text {
        let (code, length) = CODES[usize::from(byte)];
        bits = bits << length | u64::from(code);
        count += length;
        while count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    if count > 0 {
        let padding = 8 - count;
        out.push((bits << padding) as u8 | ((1_u16 << padding) - 1) as u8);
    }
}

/// Returns the length of the code of `text` in bytes.
pub(super) fn encoded_len(text: &[u8]) -> usize {
    text.iter().map(|&byte| usize::from(CODES[usize::from(byte)].1)).sum::<usize>().div_ceil(8)
}

/// The input is malformed: padding longer than seven bits or other than ones, or the end-of-string symbol (§5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InvalidHuffman;

/// Decodes `code` and appends the text. At most eight bytes come out of five.
pub(super) fn decode(code: &[u8], out: &mut Vec<u8>) -> Result<(), InvalidHuffman> {
    let mut state = State::START;
    for &byte in code {
        state = state.take(byte >> 4, out)?;
        state = state.take(byte & 15, out)?;
    }
    if state.may_end { Ok(()) } else { Err(InvalidHuffman) }
}

/// Position within a symbol's code after the bits read so far.
#[derive(Clone, Copy)]
struct State {
    node: u8,
    may_end: bool,
}

impl State {
    const START: Self = Self { node: 0, may_end: true };

    #[inline]
    fn take(self, nibble: u8, out: &mut Vec<u8>) -> Result<Self, InvalidHuffman> {
        let step = STEPS[usize::from(self.node)][usize::from(nibble)];
        if step.flags & FAILS != 0 {
            return Err(InvalidHuffman);
        }
        if step.flags & EMITS != 0 {
            out.push(step.symbol);
        }
        Ok(Self { node: step.node, may_end: step.flags & MAY_END != 0 })
    }
}

/// Transition for four bits: no code is shorter than five bits, so that they complete at most one symbol.
#[derive(Clone, Copy)]
struct Step {
    node: u8,
    symbol: u8,
    flags: u8,
}

const EMITS: u8 = 1;
const FAILS: u8 = 2;
const MAY_END: u8 = 4;

/// The inner nodes of the code's tree: 257 leaves have 256.
const NODES: usize = 256;

/// Number of the end-of-string symbol.
const EOS: usize = 256;

/// Child of an inner node: another inner node, or the leaf of a symbol.
#[derive(Clone, Copy)]
enum Child {
    None,
    Node(u8),
    Leaf(u16),
}

static STEPS: [[Step; 16]; NODES] = steps();

const fn steps() -> [[Step; 16]; NODES] {
    let (tree, may_end) = tree();
    let mut steps = [[Step { node: 0, symbol: 0, flags: 0 }; 16]; NODES];
    let mut node = 0;
    while node < NODES {
        let mut nibble = 0;
        while nibble < 16 {
            steps[node][nibble] = step(&tree, &may_end, node, nibble);
            nibble += 1;
        }
        node += 1;
    }
    steps
}

const fn step(tree: &[[Child; 2]; NODES], may_end: &[bool; NODES], from: usize, nibble: usize) -> Step {
    let mut step = Step { node: 0, symbol: 0, flags: 0 };
    let (mut node, mut bit) = (from, 4);
    while bit > 0 {
        bit -= 1;
        match tree[node][nibble >> bit & 1] {
            Child::Node(next) => node = next as usize,
            Child::Leaf(symbol) if (symbol as usize) < EOS => {
                step.symbol = symbol as u8;
                step.flags |= EMITS;
                node = 0;
            }
            Child::Leaf(_) | Child::None => step.flags |= FAILS,
        }
    }
    step.node = node as u8;
    if may_end[node] {
        step.flags |= MAY_END;
    }
    step
}

/// The tree, and for each node whether a text may end there: at most seven ones since the last symbol.
const fn tree() -> ([[Child; 2]; NODES], [bool; NODES]) {
    let mut tree = [[Child::None; 2]; NODES];
    let mut may_end = [false; NODES];
    let mut nodes = 1;
    let mut symbol = 0;
    while symbol <= EOS {
        let (code, length) = if symbol == EOS { (0x3fff_ffff, 30) } else { CODES[symbol] };
        let (mut node, mut bit) = (0, length);
        while bit > 0 {
            bit -= 1;
            let side = (code >> bit & 1) as usize;
            if bit == 0 {
                tree[node][side] = Child::Leaf(symbol as u16);
            } else if let Child::Node(next) = tree[node][side] {
                node = next as usize;
            } else {
                tree[node][side] = Child::Node(nodes as u8);
                node = nodes;
                nodes += 1;
            }
        }
        symbol += 1;
    }
    let (mut node, mut ones) = (0, 0);
    while ones <= 7 {
        may_end[node] = true;
        if let Child::Node(next) = tree[node][1] {
            node = next as usize;
        }
        ones += 1;
    }
    (tree, may_end)
}

/// Code and bit length of each byte.
#[rustfmt::skip]
const CODES: [(u32, u8); 256] = [
    (0x1ff8, 13), (0x7fffd8, 23), (0xfffffe2, 28), (0xfffffe3, 28), (0xfffffe4, 28), (0xfffffe5, 28),
    (0xfffffe6, 28), (0xfffffe7, 28), (0xfffffe8, 28), (0xffffea, 24), (0x3ffffffc, 30), (0xfffffe9, 28),
    (0xfffffea, 28), (0x3ffffffd, 30), (0xfffffeb, 28), (0xfffffec, 28), (0xfffffed, 28), (0xfffffee, 28),
    (0xfffffef, 28), (0xffffff0, 28), (0xffffff1, 28), (0xffffff2, 28), (0x3ffffffe, 30), (0xffffff3, 28),
    (0xffffff4, 28), (0xffffff5, 28), (0xffffff6, 28), (0xffffff7, 28), (0xffffff8, 28), (0xffffff9, 28),
    (0xffffffa, 28), (0xffffffb, 28), (0x14, 6), (0x3f8, 10), (0x3f9, 10), (0xffa, 12), (0x1ff9, 13),
    (0x15, 6), (0xf8, 8), (0x7fa, 11), (0x3fa, 10), (0x3fb, 10), (0xf9, 8), (0x7fb, 11), (0xfa, 8),
    (0x16, 6), (0x17, 6), (0x18, 6), (0x0, 5), (0x1, 5), (0x2, 5), (0x19, 6), (0x1a, 6), (0x1b, 6),
    (0x1c, 6), (0x1d, 6), (0x1e, 6), (0x1f, 6), (0x5c, 7), (0xfb, 8), (0x7ffc, 15), (0x20, 6), (0xffb, 12),
    (0x3fc, 10), (0x1ffa, 13), (0x21, 6), (0x5d, 7), (0x5e, 7), (0x5f, 7), (0x60, 7), (0x61, 7), (0x62, 7),
    (0x63, 7), (0x64, 7), (0x65, 7), (0x66, 7), (0x67, 7), (0x68, 7), (0x69, 7), (0x6a, 7), (0x6b, 7),
    (0x6c, 7), (0x6d, 7), (0x6e, 7), (0x6f, 7), (0x70, 7), (0x71, 7), (0x72, 7), (0xfc, 8), (0x73, 7),
    (0xfd, 8), (0x1ffb, 13), (0x7fff0, 19), (0x1ffc, 13), (0x3ffc, 14), (0x22, 6), (0x7ffd, 15), (0x3, 5),
    (0x23, 6), (0x4, 5), (0x24, 6), (0x5, 5), (0x25, 6), (0x26, 6), (0x27, 6), (0x6, 5), (0x74, 7),
    (0x75, 7), (0x28, 6), (0x29, 6), (0x2a, 6), (0x7, 5), (0x2b, 6), (0x76, 7), (0x2c, 6), (0x8, 5),
    (0x9, 5), (0x2d, 6), (0x77, 7), (0x78, 7), (0x79, 7), (0x7a, 7), (0x7b, 7), (0x7ffe, 15), (0x7fc, 11),
    (0x3ffd, 14), (0x1ffd, 13), (0xffffffc, 28), (0xfffe6, 20), (0x3fffd2, 22), (0xfffe7, 20),
    (0xfffe8, 20), (0x3fffd3, 22), (0x3fffd4, 22), (0x3fffd5, 22), (0x7fffd9, 23), (0x3fffd6, 22),
    (0x7fffda, 23), (0x7fffdb, 23), (0x7fffdc, 23), (0x7fffdd, 23), (0x7fffde, 23), (0xffffeb, 24),
    (0x7fffdf, 23), (0xffffec, 24), (0xffffed, 24), (0x3fffd7, 22), (0x7fffe0, 23), (0xffffee, 24),
    (0x7fffe1, 23), (0x7fffe2, 23), (0x7fffe3, 23), (0x7fffe4, 23), (0x1fffdc, 21), (0x3fffd8, 22),
    (0x7fffe5, 23), (0x3fffd9, 22), (0x7fffe6, 23), (0x7fffe7, 23), (0xffffef, 24), (0x3fffda, 22),
    (0x1fffdd, 21), (0xfffe9, 20), (0x3fffdb, 22), (0x3fffdc, 22), (0x7fffe8, 23), (0x7fffe9, 23),
    (0x1fffde, 21), (0x7fffea, 23), (0x3fffdd, 22), (0x3fffde, 22), (0xfffff0, 24), (0x1fffdf, 21),
    (0x3fffdf, 22), (0x7fffeb, 23), (0x7fffec, 23), (0x1fffe0, 21), (0x1fffe1, 21), (0x3fffe0, 22),
    (0x1fffe2, 21), (0x7fffed, 23), (0x3fffe1, 22), (0x7fffee, 23), (0x7fffef, 23), (0xfffea, 20),
    (0x3fffe2, 22), (0x3fffe3, 22), (0x3fffe4, 22), (0x7ffff0, 23), (0x3fffe5, 22), (0x3fffe6, 22),
    (0x7ffff1, 23), (0x3ffffe0, 26), (0x3ffffe1, 26), (0xfffeb, 20), (0x7fff1, 19), (0x3fffe7, 22),
    (0x7ffff2, 23), (0x3fffe8, 22), (0x1ffffec, 25), (0x3ffffe2, 26), (0x3ffffe3, 26), (0x3ffffe4, 26),
    (0x7ffffde, 27), (0x7ffffdf, 27), (0x3ffffe5, 26), (0xfffff1, 24), (0x1ffffed, 25), (0x7fff2, 19),
    (0x1fffe3, 21), (0x3ffffe6, 26), (0x7ffffe0, 27), (0x7ffffe1, 27), (0x3ffffe7, 26), (0x7ffffe2, 27),
    (0xfffff2, 24), (0x1fffe4, 21), (0x1fffe5, 21), (0x3ffffe8, 26), (0x3ffffe9, 26), (0xffffffd, 28),
    (0x7ffffe3, 27), (0x7ffffe4, 27), (0x7ffffe5, 27), (0xfffec, 20), (0xfffff3, 24), (0xfffed, 20),
    (0x1fffe6, 21), (0x3fffe9, 22), (0x1fffe7, 21), (0x1fffe8, 21), (0x7ffff3, 23), (0x3fffea, 22),
    (0x3fffeb, 22), (0x1ffffee, 25), (0x1ffffef, 25), (0xfffff4, 24), (0xfffff5, 24), (0x3ffffea, 26),
    (0x7ffff4, 23), (0x3ffffeb, 26), (0x7ffffe6, 27), (0x3ffffec, 26), (0x3ffffed, 26), (0x7ffffe7, 27),
    (0x7ffffe8, 27), (0x7ffffe9, 27), (0x7ffffea, 27), (0x7ffffeb, 27), (0xffffffe, 28), (0x7ffffec, 27),
    (0x7ffffed, 27), (0x7ffffee, 27), (0x7ffffef, 27), (0x7fffff0, 27), (0x3ffffee, 26),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(text, &mut out);
        assert_eq!(out.len(), encoded_len(text));
        out
    }

    fn decoded(code: &[u8]) -> Result<Vec<u8>, InvalidHuffman> {
        let mut out = Vec::new();
        decode(code, &mut out).map(|()| out)
    }

    #[test]
    fn rfc_examples_are_encoded_and_decoded() {
        // RFC 7541, C.4.1 and C.6.1.
        assert_eq!(
            encoded(b"www.example.com"),
            [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff]
        );
        assert_eq!(encoded(b"private"), [0xae, 0xc3, 0x77, 0x1a, 0x4b]);
        assert_eq!(decoded(&[0xae, 0xc3, 0x77, 0x1a, 0x4b]).unwrap(), b"private");
    }

    #[test]
    fn every_byte_round_trips() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decoded(&encoded(&all)).unwrap(), all);
        for byte in 0..=255 {
            assert_eq!(decoded(&encoded(&[byte; 3])).unwrap(), [byte; 3]);
        }
    }

    #[test]
    fn bad_padding_and_the_end_of_string_symbol_are_rejected() {
        assert!(decoded(&[0b0001_1111]).is_ok(), "a and three ones");
        assert_eq!(decoded(&[0b0001_1000]), Err(InvalidHuffman), "zeros");
        assert_eq!(decoded(&[0xff]), Err(InvalidHuffman), "eight ones");
        assert_eq!(decoded(&[0b0001_1111, 0xff]), Err(InvalidHuffman), "eleven ones");
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff]), Err(InvalidHuffman), "the end of a string");
    }
}
