//! Timestamps (RFC 3339) and durations in ProtoJSON.

use super::super::number::{put_int, put_uint};
use crate::calendar::{DAY, date, days, days_in};

/// Seconds and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Time {
    pub(super) seconds: i64,
    pub(super) nanos: i32,
}

impl Time {
    /// Appends a point in time, counted from 1970: `2023-11-14T22:13:20.000000005Z`. `None` if it is not in the years 1
    /// to 9999.
    pub(super) fn put_timestamp(self, out: &mut Vec<u8>) -> Option<()> {
        if !(FIRST_SECOND..=LAST_SECOND).contains(&self.seconds) || !(0..BILLION).contains(&self.nanos) {
            return None;
        }
        let (year, month, day) = date(self.seconds.div_euclid(DAY));
        let second = self.seconds.rem_euclid(DAY);
        put_padded(out, year, 4);
        for (mark, value) in
            [(b'-', month), (b'-', day), (b'T', second / 3600), (b':', second / 60 % 60), (b':', second % 60)]
        {
            out.push(mark);
            put_padded(out, value, 2);
        }
        put_fraction(out, self.nanos.unsigned_abs());
        out.push(b'Z');
        Some(())
    }

    pub(super) fn parse_timestamp(text: &str) -> Option<Self> {
        let mut rest = text;
        let mut number = |digits: usize, mark: Option<char>| {
            let (taken, after) = rest.split_at_checked(digits)?;
            rest = match mark {
                Some(mark) => after.strip_prefix(mark)?,
                None => after,
            };
            digits_only(taken)
        };
        let (year, month, day) = (number(4, Some('-'))?, number(2, Some('-'))?, number(2, Some('T'))?);
        let (hour, minute, second) = (number(2, Some(':'))?, number(2, Some(':'))?, number(2, None)?);
        let (nanos, zone) = match rest.strip_prefix('.') {
            Some(fraction) => {
                let length = fraction.bytes().take_while(u8::is_ascii_digit).count();
                let (digits, zone) = fraction.split_at(length);
                (parse_fraction(digits)?, zone)
            }
            None => (0, rest),
        };
        let offset = parse_zone(zone)?;
        let in_range = year >= 1 && (1..=12).contains(&month) && hour < 24 && minute < 60 && second < 60;
        if !in_range || day < 1 || day > days_in(year, month) {
            return None;
        }
        let seconds = days(year, month, day) * DAY + hour * 3600 + minute * 60 + second - offset;
        (FIRST_SECOND..=LAST_SECOND).contains(&seconds).then_some(Self { seconds, nanos })
    }

    /// Appends a duration: `-1.500s`. `None` if it is longer than 10000 years, or if its parts have different signs.
    pub(super) fn put_duration(self, out: &mut Vec<u8>) -> Option<()> {
        let same_sign = self.seconds == 0 || self.nanos == 0 || (self.seconds < 0) == (self.nanos < 0);
        if self.seconds.abs() > LONGEST || self.nanos.abs() >= BILLION || !same_sign {
            return None;
        }
        if self.seconds == 0 && self.nanos < 0 {
            out.push(b'-');
        }
        put_int(out, self.seconds);
        put_fraction(out, self.nanos.unsigned_abs());
        out.push(b's');
        Some(())
    }

    pub(super) fn parse_duration(text: &str) -> Option<Self> {
        let number = text.strip_suffix('s')?;
        let unsigned = number.strip_prefix('-').unwrap_or(number);
        let (whole, nanos) = match unsigned.split_once('.') {
            Some((whole, fraction)) => (whole, parse_fraction(fraction)?),
            None => (unsigned, 0),
        };
        let seconds = digits_only(whole).filter(|seconds| *seconds <= LONGEST)?;
        let sign = if unsigned.len() < number.len() { -1 } else { 1 };
        Some(Self { seconds: seconds * sign, nanos: nanos * sign as i32 })
    }
}

fn digits_only(text: &str) -> Option<i64> {
    // Twelve digits suffice for the longest duration, and cannot overflow.
    let digits = (1..=12).contains(&text.len()) && text.bytes().all(|digit| digit.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

/// Parses one to nine fraction digits, in nanoseconds.
fn parse_fraction(digits: &str) -> Option<i32> {
    let missing = 9_usize.checked_sub(digits.len())?;
    Some(digits_only(digits)? as i32 * 10_i32.pow(missing as u32))
}

/// Parses a zone offset: the seconds to be subtracted.
fn parse_zone(zone: &str) -> Option<i64> {
    if zone == "Z" {
        return Some(0);
    }
    let sign = match zone.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    if hours.len() != 2 || minutes.len() != 2 {
        return None;
    }
    let (hours, minutes) = (digits_only(hours)?, digits_only(minutes)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

fn put_padded(out: &mut Vec<u8>, value: i64, width: usize) {
    let start = out.len();
    put_uint(out, value.unsigned_abs());
    while out.len() - start < width {
        out.insert(start, b'0');
    }
}

/// Writes no digits, or as many groups of three as needed.
fn put_fraction(out: &mut Vec<u8>, nanos: u32) {
    let (value, width) = match nanos {
        0 => return,
        nanos if nanos % 1_000_000 == 0 => (nanos / 1_000_000, 3),
        nanos if nanos % 1_000 == 0 => (nanos / 1_000, 6),
        nanos => (nanos, 9),
    };
    out.push(b'.');
    put_padded(out, value.into(), width);
}

const BILLION: i32 = 1_000_000_000;
/// 0001-01-01T00:00:00Z
const FIRST_SECOND: i64 = -62_135_596_800;
/// 9999-12-31T23:59:59Z
const LAST_SECOND: i64 = 253_402_300_799;
/// Seconds in 10000 years (google/protobuf/duration.proto).
const LONGEST: i64 = 315_576_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn timestamp(seconds: i64, nanos: i32) -> Option<String> {
        let mut out = Vec::new();
        Time { seconds, nanos }.put_timestamp(&mut out)?;
        String::from_utf8(out).ok()
    }

    #[test]
    fn timestamp_has_0_3_6_or_9_fraction_digits() {
        assert_eq!(timestamp(0, 0).unwrap(), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(1_700_000_000, 5).unwrap(), "2023-11-14T22:13:20.000000005Z");
        assert_eq!(timestamp(1_700_000_000, 500_000_000).unwrap(), "2023-11-14T22:13:20.500Z");
        assert_eq!(timestamp(FIRST_SECOND, 0).unwrap(), "0001-01-01T00:00:00Z");
        assert_eq!(timestamp(LAST_SECOND, 999_999_999).unwrap(), "9999-12-31T23:59:59.999999999Z");
        assert_eq!(timestamp(LAST_SECOND + 1, 0), None);
        assert_eq!(timestamp(0, -1), None);
    }

    #[test]
    fn timestamp_is_read_with_any_offset() {
        let parse = Time::parse_timestamp;
        let expected = Some(Time { seconds: 1_700_000_000, nanos: 500_000_000 });
        assert_eq!(parse("2023-11-14T22:13:20.5Z"), expected);
        assert_eq!(parse("2023-11-15T00:13:20.500+02:00"), expected);
        assert_eq!(parse("2023-11-14T16:43:20.500000000-05:30"), expected);
        for wrong in [
            "",
            "Z",
            "2023-11-14",
            "2023-11-14T22:13:20",
            "2023-02-29T00:00:00Z",
            "2023-11-14T24:00:00Z",
            "2023-11-14T22:13:20.Z",
            "2023-11-14T22:13:20.0000000001Z",
            "0000-01-01T00:00:00Z",
            "2023-11-14t22:13:20Z",
            "9999-12-31T23:59:59-01:00",
            "2023-11-14T22:13:20+1:00",
            "+023-11-14T22:13:20Z",
            "2023-11-14T22:13:20é",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn duration_is_written_and_read() {
        for (text, seconds, nanos) in [
            ("0s", 0, 0),
            ("1.500s", 1, 500_000_000),
            ("-0.000001s", 0, -1000),
            ("-3.000000001s", -3, -1),
            ("315576000000s", LONGEST, 0),
        ] {
            let mut out = Vec::new();
            Time { seconds, nanos }.put_duration(&mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), text);
            assert_eq!(Time::parse_duration(text), Some(Time { seconds, nanos }));
        }
        for wrong in ["", "s", "1", "1.s", ".5s", "1e3s", "--1s", "+1s", "315576000001s", "1.0000000000s"] {
            assert_eq!(Time::parse_duration(wrong), None, "{wrong}");
        }
        assert_eq!(Time { seconds: 1, nanos: -1 }.put_duration(&mut Vec::new()), None);
    }
}
