//! Decimal and hexadecimal digits: written without `std::fmt`, whose cost every call would pay, and read without signs.

use std::str::FromStr;

/// Appends a number in decimal.
pub fn put_decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut left = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        left -= 1;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(left..).unwrap_or_default());
}

/// Parses a number that consists of decimal digits only: Rust's own conversion accepts a sign, too.
pub fn parse_decimal<N: FromStr>(text: &str) -> Option<N> {
    let has_digits_only = text.bytes().all(|byte| byte.is_ascii_digit());
    has_digits_only.then(|| text.parse().ok())?
}

/// Does the same, but rejects leading zeros, so that a number has one text only.
pub fn parse_canonical_decimal<N: FromStr>(text: &str) -> Option<N> {
    let is_padded = text.len() > 1 && text.starts_with('0');
    (!is_padded).then(|| parse_decimal(text))?
}

/// Returns the value of a hexadecimal digit.
pub fn hexadecimal(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 7, 10, 99, 100, 65_535, u64::MAX - 1, u64::MAX] {
            let mut out = b"=".to_vec();
            put_decimal(&mut out, number);
            assert_eq!(String::from_utf8(out).unwrap(), format!("={number}"));
        }
    }

    #[test]
    fn numbers_with_signs_or_blanks_are_not_parsed() {
        assert_eq!(["0", "007", "255"].map(parse_decimal::<u8>), [Some(0), Some(7), Some(255)]);
        for wrong in ["", "+1", "-1", "-0", " 1", "1 ", "0x1", "1.0", "٣", "256"] {
            assert_eq!(parse_decimal::<u8>(wrong), None, "{wrong}");
        }
        assert_eq!(parse_decimal::<i32>("-1"), None);
    }

    #[test]
    fn canonical_numbers_have_no_leading_zeros() {
        assert_eq!(["0", "7", "70"].map(parse_canonical_decimal::<u8>), [Some(0), Some(7), Some(70)]);
        for wrong in ["", "00", "07", "007", "+7", "256"] {
            assert_eq!(parse_canonical_decimal::<u8>(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_hexadecimal_digits_have_a_value() {
        assert_eq!(
            [b'0', b'9', b'a', b'F', b'g', b' ', 0xff].map(hexadecimal),
            [Some(0), Some(9), Some(10), Some(15), None, None, None]
        );
    }
}
