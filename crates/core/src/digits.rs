//! Decimal and hexadecimal digits without `std::fmt`, whose cost every call would pay.

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
    fn only_hexadecimal_digits_have_a_value() {
        assert_eq!(
            [b'0', b'9', b'a', b'F', b'g', b' ', 0xff].map(hexadecimal),
            [Some(0), Some(9), Some(10), Some(15), None, None, None]
        );
    }
}
