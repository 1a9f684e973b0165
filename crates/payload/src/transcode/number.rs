//! Text forms of numbers.

use std::io::Write;

pub(super) use polyrpc_core::digits::put_decimal as put_uint;

/// Appends an integer.
pub(super) fn put_int(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    put_uint(out, value.unsigned_abs());
}

/// Appends a finite number like Go and ECMAScript: `3`, `0.1`, `1e+21`, `1.5e-7` (Go `encoding/json/encode.go`,
/// `floatEncoder`; protobuf-go `internal/encoding/json`).
pub(super) fn put_go(out: &mut Vec<u8>, value: f64) {
    Decimal::from_float(value).put(out, Layout { exponent_sign: true, ..JSON });
}

/// Like [`put_go`], with no more digits than identify a 32-bit float.
pub(super) fn put_go_f32(out: &mut Vec<u8>, value: f32) {
    Decimal::from_float(value).put(out, Layout { exponent_sign: true, ..JSON });
}

/// Appends a finite number like RapidJSON: `3.0`, `0.1`, `1e21`, `1.5e-7` (`rapidjson/internal/dtoa.h`).
pub(super) fn put_rapidjson(out: &mut Vec<u8>, value: f64) {
    Decimal::from_float(value).put(out, Layout { point_zero: true, ..JSON });
}

/// Appends any number like C++ protobuf's text format: with 15 digits if they suffice, else with 17
/// (`stubs/strutil.cc`, `SimpleDtoa`).
pub(super) fn put_cpp(out: &mut Vec<u8>, value: f64) {
    if put_not_finite(out, value) {
        return;
    }
    match Decimal::new(format_args!("{value:.14e}")) {
        decimal if decimal.parse() == Some(value) => decimal.put(out, printf_g(15)),
        _ => Decimal::new(format_args!("{value:.16e}")).put(out, printf_g(17)),
    }
}

/// Like [`put_cpp`] for 32 bits: with 6 digits if they suffice, else with 9.
pub(super) fn put_cpp_f32(out: &mut Vec<u8>, value: f32) {
    if put_not_finite(out, value.into()) {
        return;
    }
    match Decimal::new(format_args!("{value:.5e}")) {
        decimal if decimal.parse() == Some(value) => decimal.put(out, printf_g(6)),
        _ => Decimal::new(format_args!("{value:.8e}")).put(out, printf_g(9)),
    }
}

fn put_not_finite(out: &mut Vec<u8>, value: f64) -> bool {
    let name: &[u8] = match value {
        value if value.is_nan() => b"nan",
        f64::INFINITY => b"inf",
        f64::NEG_INFINITY => b"-inf",
        _ => return false,
    };
    out.extend_from_slice(name);
    true
}

/// Decimal form of a finite number.
struct Decimal {
    /// In Rust's notation: `-1.5e-7`.
    text: [u8; 32],
    length: usize,
}

/// Format of a decimal number.
#[derive(Clone, Copy)]
struct Layout {
    /// Exponents below this use exponential notation.
    lowest: i32,
    /// Exponents from this on use exponential notation.
    highest: i32,
    /// `1e+21` instead of `1e21`.
    exponent_sign: bool,
    /// `1e-07` instead of `1e-7`.
    exponent_digits: usize,
    /// `3.0` instead of `3`.
    point_zero: bool,
}

const JSON: Layout =
    Layout { lowest: -6, highest: 21, exponent_sign: false, exponent_digits: 1, point_zero: false };

/// C's `%.{precision}g`.
fn printf_g(precision: i32) -> Layout {
    Layout { lowest: -4, highest: precision, exponent_sign: true, exponent_digits: 2, point_zero: false }
}

impl Decimal {
    /// Returns the fewest digits that identify the number.
    fn from_float(value: impl std::fmt::LowerExp) -> Self {
        Self::new(format_args!("{value:e}"))
    }

    fn new(text: std::fmt::Arguments<'_>) -> Self {
        let mut decimal = Self { text: [0; 32], length: 0 };
        let mut rest = decimal.text.as_mut_slice();
        // The longest is -1.7976931348623157e-308.
        let _ = rest.write_fmt(text);
        decimal.length = 32 - rest.len();
        decimal
    }

    fn text(&self) -> &str {
        self.text.get(..self.length).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default()
    }

    fn parse<F: std::str::FromStr>(&self) -> Option<F> {
        self.text().parse().ok()
    }

    fn put(&self, out: &mut Vec<u8>, layout: Layout) {
        let (mantissa, exponent) = self.text().split_once('e').unwrap_or_default();
        let exponent: i32 = exponent.parse().unwrap_or_default();
        let unsigned = mantissa.strip_prefix('-').unwrap_or(mantissa);
        if unsigned.len() < mantissa.len() {
            out.push(b'-');
        }
        let (first, others) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let others = others.trim_end_matches('0');
        if exponent < layout.lowest || exponent >= layout.highest {
            put_with_exponent(out, first, others, exponent, layout);
        } else {
            put_plain(out, first, others, exponent, layout);
        }
    }
}

fn put_with_exponent(out: &mut Vec<u8>, first: &str, others: &str, exponent: i32, layout: Layout) {
    out.extend_from_slice(first.as_bytes());
    if !others.is_empty() {
        out.push(b'.');
        out.extend_from_slice(others.as_bytes());
    }
    out.push(b'e');
    match exponent < 0 {
        true => out.push(b'-'),
        false if layout.exponent_sign => out.push(b'+'),
        false => {}
    }
    let exponent = exponent.unsigned_abs();
    if exponent < 10 && layout.exponent_digits == 2 {
        out.push(b'0');
    }
    put_uint(out, exponent.into());
}

fn put_plain(out: &mut Vec<u8>, first: &str, others: &str, exponent: i32, layout: Layout) {
    let (first, others) = (first.as_bytes(), others.as_bytes());
    let Ok(exponent) = usize::try_from(exponent) else {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + exponent.unsigned_abs() as usize - 1, b'0');
        out.extend_from_slice(first);
        return out.extend_from_slice(others);
    };
    out.extend_from_slice(first);
    let (whole, fraction) = others.split_at(exponent.min(others.len()));
    out.extend_from_slice(whole);
    out.resize(out.len() + exponent - whole.len(), b'0');
    if !fraction.is_empty() {
        out.push(b'.');
        out.extend_from_slice(fraction);
    } else if layout.point_zero {
        out.extend_from_slice(b".0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_all<T>(put: fn(&mut Vec<u8>, T), values: impl IntoIterator<Item = T>) -> Vec<String> {
        let text = |value| {
            let mut out = Vec::new();
            put(&mut out, value);
            String::from_utf8(out).unwrap()
        };
        values.into_iter().map(text).collect()
    }

    const VALUES: [f64; 10] = [0.0, -0.0, 3.0, -1.25, 0.1, 1e20, 1e21, 1e-6, 1.5e-7, 1e300];

    #[test]
    fn go_omits_an_unneeded_decimal_point() {
        let expected = [
            "0",
            "-0",
            "3",
            "-1.25",
            "0.1",
            "100000000000000000000",
            "1e+21",
            "0.000001",
            "1.5e-7",
            "1e+300",
        ];
        assert_eq!(put_all(put_go, VALUES), expected);
        assert_eq!(put_all(put_go_f32, [0.1_f32, 16_777_216.0]), ["0.1", "16777216"]);
    }

    #[test]
    fn rapidjson_writes_doubles_with_a_decimal_point() {
        let expected = [
            "0.0",
            "-0.0",
            "3.0",
            "-1.25",
            "0.1",
            "100000000000000000000.0",
            "1e21",
            "0.000001",
            "1.5e-7",
            "1e300",
        ];
        assert_eq!(put_all(put_rapidjson, VALUES), expected);
    }

    #[test]
    fn cpp_formats_numbers_as_printf() {
        let expected = ["0", "-0", "3", "-1.25", "0.1", "1e+20", "1e+21", "1e-06", "1.5e-07", "1e+300"];
        assert_eq!(put_all(put_cpp, VALUES), expected);
        let values = [1e14, 1e15, 0.1 + 0.2, 5e-324, f64::NAN, f64::NEG_INFINITY];
        let expected =
            ["100000000000000", "1e+15", "0.30000000000000004", "4.94065645841247e-324", "nan", "-inf"];
        assert_eq!(put_all(put_cpp, values), expected);
        let values = [0.1_f32, 16_777_216.0, 1e6, f32::MAX];
        assert_eq!(put_all(put_cpp_f32, values), ["0.1", "16777216", "1e+06", "3.40282347e+38"]);
    }

    #[test]
    fn integers_keep_all_digits() {
        assert_eq!(put_all(put_int, [0, -1, i64::MIN]), ["0", "-1", "-9223372036854775808"]);
        assert_eq!(put_all(put_uint, [u64::MAX]), ["18446744073709551615"]);
    }
}
