//! Numbers for readers.

use std::fmt;

/// A time in nanoseconds: `870 ns`, `12.3 µs`, `4.56 ms`, `1.20 s`.
#[derive(Debug, Clone, Copy)]
pub struct Nanoseconds(pub f64);

impl fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0;
        let text = match nanos.abs() {
            ..999.5 => format!("{nanos:.0} ns"),
            ..999.5e3 => format!("{} µs", three_digits(nanos / 1e3)),
            ..999.5e6 => format!("{} ms", three_digits(nanos / 1e6)),
            _ => format!("{} s", three_digits(nanos / 1e9)),
        };
        f.pad(&text)
    }
}

/// A count or rate, rounded to an integer, with thousands separators: `93,412`.
#[derive(Debug, Clone, Copy)]
pub struct Count(pub f64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:.0}", self.0.abs());
        let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
        if self.0.round() < 0.0 {
            text.push('−');
        }
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad(&text)
    }
}

/// A size: `870 B`, `12.3 KiB`, `4.56 MiB`.
#[derive(Debug, Clone, Copy)]
pub struct Bytes(pub f64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0;
        let text = match bytes.abs() {
            ..1023.5 => format!("{bytes:.0} B"),
            ..1_048_064.0 => format!("{} KiB", three_digits(bytes / 1024.0)),
            ..1_073_217_536.0 => format!("{} MiB", three_digits(bytes / 1_048_576.0)),
            _ => format!("{} GiB", three_digits(bytes / 1_073_741_824.0)),
        };
        f.pad(&text)
    }
}

/// Three significant digits, of larger numbers all: `4.56`, `45.6`, `456`, `4560`.
pub(crate) fn three_digits(value: f64) -> String {
    match value.abs() {
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A quantile as a percentile: `p99.9`.
pub(crate) fn percentile(quantile: f64) -> String {
    let text = format!("{:.4}", quantile * 100.0);
    format!("p{}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Date and time in UTC: `2026-03-01 12:00:05 UTC`.
pub(crate) fn utc(seconds_since_1970: f64) -> String {
    let seconds = seconds_since_1970.max(0.0) as u64;
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Date of a day since 1970-01-01 (Hinnant, "chrono-compatible low-level date algorithms").
fn date(days: u64) -> (u64, u64, u64) {
    // Years begin in March here, so that the day of a leap year is the last.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

/// Control characters could change the terminal.
pub(crate) fn to_printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        let times = [0.4, 870.0, 999.6, 12_345.0, 999_600.0, 4_560_000.0, 1.2e9, 75e9]
            .map(|n| Nanoseconds(n).to_string());
        assert_eq!(times, ["0 ns", "870 ns", "1.00 µs", "12.3 µs", "1.00 ms", "4.56 ms", "1.20 s", "75.0 s"]);
        assert_eq!(
            [0.4, 999.0, 93_411.6, -1234.0].map(|n| Count(n).to_string()),
            ["0", "999", "93,412", "−1,234"]
        );
        assert_eq!([100.0, 2048.0, 5e6].map(|n| Bytes(n).to_string()), ["100 B", "2.00 KiB", "4.77 MiB"]);
        assert_eq!([0.5, 0.99, 0.999, 0.9999].map(percentile), ["p50", "p99", "p99.9", "p99.99"]);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(utc(0.0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_400.0), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_700_000_000.7), "2023-11-14 22:13:20 UTC");
        assert_eq!(utc(4_102_444_799.0), "2099-12-31 23:59:59 UTC");
    }
}
