//! The Huffman code of RFC 7541, Appendix B.
//!
//! Decoding looks up the next twelve bits in a table that is built from the code at compile time: they hold two of the
//! most common symbols. Codes of more than twelve bits, which text hardly uses, have tables of their own.

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

/// Returns the length of the longest text of a code as long as this: at most eight bytes come out of five.
pub(super) fn max_decoded_len(code: &[u8]) -> usize {
    code.len() * 8 / MIN_CODE_BITS
}

/// Returns the length of the text of `code`, without decoding it.
#[cold]
pub(super) fn decoded_len(code: &[u8]) -> Result<usize, InvalidHuffman> {
    let (mut bit, mut length) = (0, 0);
    while let Some(bytes) = code.get(bit / 8..).and_then(<[u8]>::first_chunk::<8>) {
        let window = u64::from_be_bytes(*bytes) << (bit % 8);
        let step = Step::at(window);
        let (symbols, bits) = match step.symbols() {
            0 => (1, long(window)?.1),
            symbols => (symbols, step.bits()),
        };
        (length, bit) = (length + symbols, bit + bits);
    }
    // Fewer than eight bytes are left: at most twelve symbols.
    Ok(length + decode_end(code, bit, &mut [0; 16], 0)?)
}

/// Decodes `code`, whose text has at most `max` bytes, and appends the text. Returns its length. `out` grows by
/// [`SYMBOLS_PER_LOAD`] bytes more in between.
pub(super) fn decode(code: &[u8], max: usize, out: &mut Vec<u8>) -> Result<usize, InvalidHuffman> {
    let start = out.len();
    out.resize(start + max + SYMBOLS_PER_LOAD, 0);
    let written = decode_into(code, &mut out[start..]);
    out.truncate(start + written.unwrap_or(0));
    written
}

/// Decodes `code` into `out`, which has room for the longest possible text and [`SYMBOLS_PER_LOAD`] bytes more.
/// Returns the length of the text.
fn decode_into(code: &[u8], out: &mut [u8]) -> Result<usize, InvalidHuffman> {
    let (mut bit, mut length) = (0, 0);
    // At least 57 bits follow, whatever the position within the first byte.
    while let Some(bytes) = code.get(bit / 8..).and_then(<[u8]>::first_chunk::<8>) {
        let mut window = u64::from_be_bytes(*bytes) << (bit % 8);
        let room = out.get_mut(length..).and_then(<[u8]>::first_chunk_mut::<SYMBOLS_PER_LOAD>);
        let Some(room) = room else { break };
        let mut symbols = 0;
        for _ in 0..SYMBOLS_PER_LOAD / 2 {
            let step = Step::at(window);
            (room[symbols], room[symbols + 1]) = (step.first(), step.second());
            symbols += step.symbols();
            bit += step.bits();
            window <<= step.bits();
        }
        // A long code does not advance.
        if symbols == 0 {
            let (symbol, bits) = long(window)?;
            room[0] = symbol;
            (symbols, bit) = (1, bit + bits);
        }
        length += symbols;
    }
    decode_end(code, bit, out, length)
}

/// Decodes what follows after `bit`, fewer than eight bytes, behind the `length` bytes that `out` holds already.
fn decode_end(code: &[u8], bit: usize, out: &mut [u8], mut length: usize) -> Result<usize, InvalidHuffman> {
    let rest = code.get(bit / 8..).unwrap_or_default();
    // Padding is the start of the end-of-string symbol: ones (§5.2).
    let mut padded = [0xff; 8];
    padded[..rest.len()].copy_from_slice(rest);
    let mut left = rest.len() * 8 - bit % 8;
    let mut window = !(!u64::from_be_bytes(padded) << (bit % 8));
    while left > 0 {
        let step = Step::at(window);
        let (symbol, bits, symbols) = match step.symbols() {
            _ if left < 8 && window == u64::MAX => break,
            0 => {
                let (symbol, bits) = long(window)?;
                (symbol, bits, 1)
            }
            2 if step.bits() > left => (step.first(), step.bits_of_first(), 1),
            symbols => (step.first(), step.bits(), symbols),
        };
        if bits > left {
            return Err(InvalidHuffman);
        }
        let Some(room) = out.get_mut(length..).and_then(<[u8]>::first_chunk_mut::<2>) else { break };
        *room = [symbol, step.second()];
        length += symbols;
        left -= bits;
        window = !(!window << bits);
    }
    Ok(length)
}

/// Bits of the shortest code.
const MIN_CODE_BITS: usize = 5;

/// Symbols that are decoded from one load of eight bytes: four steps of two, of at most 48 bits.
pub(super) const SYMBOLS_PER_LOAD: usize = 8;

/// Bits that a step looks at: two of the most common symbols.
const LOOKUP_BITS: u32 = 12;

/// What the next twelve bits begin with: two symbols, one, or the start of a code that is longer. From the lowest bit
/// on, two symbols of 8 bits each, the bits of both together, the bits of the first, and how many there are.
#[derive(Clone, Copy)]
struct Step(u32);

impl Step {
    #[inline(always)]
    fn at(window: u64) -> Self {
        STEPS[(window >> (64 - LOOKUP_BITS)) as usize]
    }

    fn first(self) -> u8 {
        self.0 as u8
    }

    fn second(self) -> u8 {
        (self.0 >> 8) as u8
    }

    fn bits(self) -> usize {
        (self.0 >> 16 & 0xf) as usize
    }

    fn bits_of_first(self) -> usize {
        (self.0 >> 20 & 0xf) as usize
    }

    fn symbols(self) -> usize {
        (self.0 >> 24) as usize
    }
}

static STEPS: [Step; 1 << LOOKUP_BITS] = steps();

const fn steps() -> [Step; 1 << LOOKUP_BITS] {
    let mut steps = [Step(0); 1 << LOOKUP_BITS];
    let mut first = 0;
    while first < CODES.len() {
        let (code, bits) = (CODES[first].0, CODES[first].1 as u32);
        if bits <= LOOKUP_BITS {
            let left = LOOKUP_BITS - bits;
            let step = Step(first as u32 | bits << 16 | bits << 20 | 1 << 24);
            let from = (code as usize) << left;
            let mut at = from;
            while at < from + (1 << left) {
                steps[at] = step;
                at += 1;
            }
            let mut second = 0;
            while left >= MIN_CODE_BITS as u32 && second < CODES.len() {
                let (next, more) = (CODES[second].0, CODES[second].1 as u32);
                if more <= left {
                    let both = first as u32 | (second as u32) << 8;
                    let step = Step(both | (bits + more) << 16 | bits << 20 | 2 << 24);
                    let from = from + ((next as usize) << (left - more));
                    let mut at = from;
                    while at < from + (1 << (left - more)) {
                        steps[at] = step;
                        at += 1;
                    }
                }
                second += 1;
            }
        }
        first += 1;
    }
    steps
}

/// Decodes one symbol of more than twelve bits; returns it and its bits. An error is the end-of-string symbol.
///
/// Such codes begin with ten ones, those of more than 15 bits with 15 ones, and those of more than 24 bits with 20: the
/// bits after these are looked up.
#[cold]
fn long(window: u64) -> Result<(u8, usize), InvalidHuffman> {
    let (symbol, bits) = match window >> 49 {
        0x7fff => match MIDDLE[(window >> 40 & 0x1ff) as usize] {
            (_, 0) => LONG[(window >> 34 & 0x3ff) as usize],
            found => found,
        },
        start => SHORT[(start & 0x1f) as usize],
    };
    if bits == 0 { Err(InvalidHuffman) } else { Ok((symbol, bits.into())) }
}

/// Codes of up to 15 bits, by the last five of these.
static SHORT: [(u8, u8); 1 << 5] = codes(0, 15);
/// Codes of 19 to 24 bits, by the last nine of 24.
static MIDDLE: [(u8, u8); 1 << 9] = codes(15, 24);
/// Codes of 26 to 30 bits, by the last ten of 30.
static LONG: [(u8, u8); 1 << 10] = codes(24, 30);

/// Returns the symbol and the bits of the codes with more than `above` bits and at most `max`, by the last bits of the
/// next `max`.
const fn codes<const N: usize>(above: u32, max: u32) -> [(u8, u8); N] {
    let mut codes = [(0, 0); N];
    let mut symbol = 0;
    while symbol < CODES.len() {
        let (code, bits) = CODES[symbol];
        // A symbol with a short code is never looked up, and would take the place of another one.
        if bits as u32 > above && bits as u32 <= max && bits as u32 > LOOKUP_BITS {
            let from = (code as usize) << (max - bits as u32);
            let mut at = from;
            while at < from + (1 << (max - bits as u32)) {
                codes[at % N] = (symbol as u8, bits);
                at += 1;
            }
        }
        symbol += 1;
    }
    codes
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

    fn encode_to_vec(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(text, &mut out);
        assert_eq!(out.len(), encoded_len(text));
        out
    }

    fn decode_to_vec(code: &[u8]) -> Result<Vec<u8>, InvalidHuffman> {
        let mut out = Vec::new();
        let length = decode(code, max_decoded_len(code), &mut out);
        assert_eq!(decoded_len(code), length);
        let mut exact = Vec::new();
        decode(code, length?, &mut exact).unwrap();
        assert_eq!(exact, out);
        Ok(out)
    }

    #[test]
    fn rfc_examples_are_encoded_and_decoded() {
        // RFC 7541, C.4.1 and C.6.1.
        assert_eq!(
            encode_to_vec(b"www.example.com"),
            [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff]
        );
        assert_eq!(encode_to_vec(b"private"), [0xae, 0xc3, 0x77, 0x1a, 0x4b]);
        assert_eq!(decode_to_vec(&[0xae, 0xc3, 0x77, 0x1a, 0x4b]).unwrap(), b"private");
    }

    #[test]
    fn every_byte_round_trips() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode_to_vec(&encode_to_vec(&all)).unwrap(), all);
        for byte in 0..=255 {
            assert_eq!(decode_to_vec(&encode_to_vec(&[byte; 3])).unwrap(), [byte; 3]);
        }
    }

    /// Decodes bit by bit, by comparison with every code.
    fn decode_by_bits(code: &[u8]) -> Result<Vec<u8>, InvalidHuffman> {
        let (mut out, mut seen, mut count) = (Vec::new(), 0_u32, 0_u8);
        for bit in code.iter().flat_map(|byte| (0..8).rev().map(move |at| u32::from(byte >> at & 1))) {
            (seen, count) = (seen << 1 | bit, count + 1);
            if count == 30 && seen == 0x3fff_ffff {
                return Err(InvalidHuffman);
            }
            if let Some(symbol) = CODES.iter().position(|known| *known == (seen, count)) {
                out.push(symbol as u8);
                (seen, count) = (0, 0);
            }
        }
        if count < 8 && seen == (1 << count) - 1 { Ok(out) } else { Err(InvalidHuffman) }
    }

    #[test]
    fn every_pair_of_bytes_round_trips_at_every_position_in_a_byte() {
        for (first, second) in (0..=255).flat_map(|first| (0..=255).map(move |second| (first, second))) {
            // Codes of 5 bits before the pair, and of up to 30 behind it, which end in each of the loops.
            let (before, behind) = (usize::from(first) % 8, usize::from(second) % 16);
            let text = [&b"aaaaaaaa"[..before], &[first, second], &b"0Z~a\x01e0123456789"[..behind]].concat();
            assert_eq!(decode_to_vec(&encode_to_vec(&text)).unwrap(), text, "{first} {second}");
        }
    }

    #[test]
    fn any_bytes_are_decoded_as_bit_by_bit() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut valid = 0;
        for round in 0..20_000 {
            let code: Vec<u8> = (0..state % 24)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    // Half of the bytes are mostly ones, so that long codes are common.
                    (state >> 24) as u8
                        | if round % 2 == 0 { (state >> 32) as u8 | (state >> 40) as u8 } else { 0 }
                })
                .collect();
            let result = decode_to_vec(&code);
            valid += u32::from(result.is_ok());
            assert_eq!(result, decode_by_bits(&code), "{code:02x?}");
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        }
        assert!(valid > 100, "{valid}");
    }

    #[test]
    fn failed_text_leaves_what_was_decoded_before() {
        let mut out = b"before".to_vec();
        assert_eq!(decode(&[0xff; 12], 19, &mut out), Err(InvalidHuffman));
        assert_eq!(out, b"before");
        decode(&encode_to_vec(b"after"), 5, &mut out).unwrap();
        assert_eq!(out, b"beforeafter");
    }

    #[test]
    fn bad_padding_and_the_end_of_string_symbol_are_rejected() {
        assert!(decode_to_vec(&[0b0001_1111]).is_ok(), "a and three ones");
        assert_eq!(decode_to_vec(&[0b0001_1000]), Err(InvalidHuffman), "zeros");
        assert_eq!(decode_to_vec(&[0xff]), Err(InvalidHuffman), "eight ones");
        assert_eq!(decode_to_vec(&[0b0001_1111, 0xff]), Err(InvalidHuffman), "eleven ones");
        assert_eq!(decode_to_vec(&[0xff, 0xff, 0xff, 0xff]), Err(InvalidHuffman), "the end of a string");
    }
}
