//! Integers of JSON that a binary format without a description cannot hold.

use polyrpc::Format;

use crate::failure::Failure;

/// Fails if the JSON has an integer of more than 64 bits: as a floating-point number it would be another one.
pub(super) fn check(json: &[u8], format: Format) -> Result<(), Failure> {
    match numbers(json).find(|number| is_too_large(number)) {
        Some(number) => Err(Failure::new(format!(
            "the argument cannot be sent: {} does not fit into the 64 bits of an integer in {}",
            String::from_utf8_lossy(number),
            format.as_str()
        ))),
        None => Ok(()),
    }
}

/// The numbers of a JSON text, outside its strings.
fn numbers(json: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut in_string, mut is_escaped) = (false, false);
    json.split(move |byte| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            _ => {}
        }
        in_string || !(byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
    })
}

fn is_too_large(word: &[u8]) -> bool {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    let is_integer = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(word).ok().and_then(|text| text.parse::<i128>().ok());
    let fits = number.is_some_and(|number| u64::try_from(number).is_ok() || i64::try_from(number).is_ok());
    is_integer && !fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_of_more_than_64_bits_is_an_error_and_other_numbers_are_not() {
        let check =
            |json: &str| check(json.as_bytes(), Format::MessagePack).map_err(|it| it.text().to_owned());
        for json in [
            "18446744073709551615",
            r#"{"n":-9223372036854775808}"#,
            r#"["123456789012345678901234567890", "a\\\"99999999999999999999"]"#,
            "[1e300, 99999999999999999999.5, null]",
        ] {
            assert_eq!(check(json), Ok(()), "{json}");
        }
        for json in
            ["18446744073709551616", r#"{"n\\":[-9223372036854775809]}"#, r#"{"":99999999999999999999}"#]
        {
            let error = check(json).unwrap_err();
            assert!(error.contains("does not fit into the 64 bits"), "{json}: {error}");
        }
    }
}
