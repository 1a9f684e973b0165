//! `grpc-timeout`: at most eight digits and a unit (PROTOCOL-HTTP2.md, "Timeout").

use std::time::Duration;

use polyrpc_core::digits::put_decimal;

/// Parses the caller's timeout; `None` if the text is malformed.
pub(crate) fn read(text: &[u8]) -> Option<Duration> {
    let (unit, digits) = text.split_last()?;
    if digits.is_empty() || digits.len() > 8 {
        return None;
    }
    let value = digits
        .iter()
        .try_fold(0, |value, digit| digit.is_ascii_digit().then(|| value * 10 + u64::from(digit - b'0')))?;
    Some(match unit {
        b'H' => Duration::from_secs(value * 3600),
        b'M' => Duration::from_secs(value * 60),
        b'S' => Duration::from_secs(value),
        b'm' => Duration::from_millis(value),
        b'u' => Duration::from_micros(value),
        b'n' => Duration::from_nanos(value),
        _ => return None,
    })
}

/// Appends a duration in the finest unit for which eight digits suffice.
///
/// A fraction of the unit is rounded up: the server must not give up before the caller does.
pub(crate) fn write(timeout: Duration, text: &mut Vec<u8>) {
    const UNITS: [(u128, u8); 6] = [
        (1, b'n'),
        (1_000, b'u'),
        (1_000_000, b'm'),
        (1_000_000_000, b'S'),
        (60 * 1_000_000_000, b'M'),
        (3600 * 1_000_000_000, b'H'),
    ];
    let nanos = timeout.as_nanos();
    let fits = |unit: &&(u128, u8)| nanos.div_ceil(unit.0) <= MAX_VALUE;
    let (unit, letter) = UNITS.iter().find(fits).unwrap_or(&UNITS[5]);
    put_decimal(text, nanos.div_ceil(*unit).min(MAX_VALUE) as u64);
    text.push(*letter);
}

/// Largest number with eight digits.
const MAX_VALUE: u128 = 99_999_999;

#[cfg(test)]
mod tests {
    use super::*;

    fn write_to_string(timeout: Duration) -> String {
        let mut text = Vec::new();
        write(timeout, &mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn every_unit_is_parsed() {
        for (text, want) in [
            ("1H", Duration::from_secs(3600)),
            ("2M", Duration::from_secs(120)),
            ("3S", Duration::from_secs(3)),
            ("4m", Duration::from_millis(4)),
            ("5u", Duration::from_micros(5)),
            ("6n", Duration::from_nanos(6)),
            ("99999999H", Duration::from_secs(99_999_999 * 3600)),
        ] {
            assert_eq!(read(text.as_bytes()), Some(want), "{text}");
        }
    }

    #[test]
    fn invalid_timeout_is_none() {
        for text in ["", "S", "1", "1s", "-1S", "1.5S", "123456789n", "1 S", "1SS"] {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn timeout_is_written_in_the_finest_unit_and_never_shortened() {
        assert_eq!(write_to_string(Duration::ZERO), "0n");
        assert_eq!(write_to_string(Duration::from_nanos(99_999_999)), "99999999n");
        assert_eq!(write_to_string(Duration::from_nanos(100_000_001)), "100001u");
        assert_eq!(write_to_string(Duration::from_secs(10)), "10000000u");
        assert_eq!(write_to_string(Duration::from_secs(100)), "100000m");
        assert_eq!(write_to_string(Duration::MAX), "99999999H");
    }

    #[test]
    fn written_timeout_is_read_as_no_less() {
        for nanos in [1, 999, 123_456_789, 98_765_432_123_456, 7_777_777_777_777_777_777] {
            let timeout = Duration::from_nanos(nanos);
            assert!(read(write_to_string(timeout).as_bytes()).unwrap() >= timeout, "{nanos}");
        }
    }
}
