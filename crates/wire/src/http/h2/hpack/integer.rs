//! Integers with an N-bit prefix in a byte that also holds flags (RFC 7541, §5.1).

/// Appends `value` with a prefix of `bits` bits; `flags` are the bits above them.
pub(super) fn encode(value: usize, bits: u32, flags: u8, out: &mut Vec<u8>) {
    let max_prefix_value = (1 << bits) - 1;
    if value < max_prefix_value {
        return out.push(flags | value as u8);
    }
    out.push(flags | max_prefix_value as u8);
    let mut rest = value - max_prefix_value;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Decodes an integer with a prefix of `bits` bits from the front; `None` if it is truncated or exceeds any valid
/// length or index.
pub(super) fn decode(bytes: &mut &[u8], bits: u32) -> Option<usize> {
    let (&first, mut rest) = bytes.split_first()?;
    let max_prefix_value = (1 << bits) - 1;
    let mut value = usize::from(first) & max_prefix_value;
    if value == max_prefix_value {
        for shift in [0, 7, 14, 21] {
            let (&byte, behind) = rest.split_first()?;
            rest = behind;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                *bytes = rest;
                return Some(value);
            }
        }
        return None;
    }
    *bytes = rest;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_examples_are_encoded_and_decoded() {
        // RFC 7541, C.1.
        for (value, bits, want) in [(10, 5, &[10][..]), (1337, 5, &[31, 154, 10]), (42, 8, &[42])] {
            let mut out = Vec::new();
            encode(value, bits, 0, &mut out);
            assert_eq!(out, want);
            assert_eq!(decode(&mut &out[..], bits), Some(value));
        }
    }

    #[test]
    fn truncated_or_too_large_integer_is_none() {
        assert_eq!(decode(&mut &[][..], 5), None);
        assert_eq!(decode(&mut &[31][..], 5), None);
        assert_eq!(decode(&mut &[31, 0x80, 0x80, 0x80, 0x80, 0][..], 5), None);
        assert_eq!(decode(&mut &[31, 0xff, 0xff, 0xff, 0x7f][..], 5), Some(31 + (1 << 28) - 1));
    }
}
