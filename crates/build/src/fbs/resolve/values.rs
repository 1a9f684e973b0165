//! Numbers in schemas.

use super::fail;
use crate::Error;
use crate::fbs::ast::{Literal, Value};
use crate::fbs::load::SourceFile;

pub(super) fn integer(file: &SourceFile, literal: &Literal) -> Result<i128, Error> {
    let parsed = match &literal.value {
        Value::Number(number) => parse_integer(number),
        Value::Text(number) => parse_integer(number.trim()),
        Value::Word(word) if word == "true" => Some(1),
        Value::Word(word) if word == "false" => Some(0),
        _ => None,
    };
    parsed.ok_or_else(|| fail(file, literal.at, "expected an integer".into()))
}

fn parse_integer(number: &str) -> Option<i128> {
    let (negative, digits) = match number.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (digits, radix) = hexadecimal.map_or((digits, 10), |digits| (digits, 16));
    // Rust's own conversion accepts a further sign.
    let has_digits_only = digits.chars().all(|digit| digit.is_digit(radix));
    let value = u64::from_str_radix(digits, radix).ok().filter(|_| has_digits_only)?;
    Some(if negative { -i128::from(value) } else { value.into() })
}

pub(super) fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => parse_integer(number)
            .map(|integer| integer as f64)
            .or_else(|| hexadecimal_float(number))
            .or_else(|| number.parse().ok()),
        Value::Word(word) => match word.as_str() {
            "nan" => Some(f64::NAN),
            "-nan" => Some(-f64::NAN),
            "inf" | "infinity" => Some(f64::INFINITY),
            "-inf" | "-infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        Value::Text(_) | Value::Empty => None,
    }
}

/// Parses `0x1.8p1`, as in C.
fn hexadecimal_float(number: &str) -> Option<f64> {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(digits) => (-1.0, digits),
        None => (1.0, number),
    };
    let digits = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"))?;
    let (mantissa, exponent) = digits.split_once(['p', 'P'])?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mantissa = format!("{whole}{fraction}")
        .chars()
        .try_fold(0.0, |sum, c| c.to_digit(16).map(|digit| sum * 16.0 + f64::from(digit)))?;
    let exponent = exponent.parse::<i32>().ok()?.checked_sub(4 * i32::try_from(fraction.len()).ok()?)?;
    Some(sign * mantissa * 2.0_f64.powi(exponent))
}
