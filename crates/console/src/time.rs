//! Dates as brpc writes them: `2026/11/20-21:47:00`, in UTC here, since the system's zone is not known without a C library.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A time as `YYYY/MM/DD-hh:mm:ss`, with `.microseconds` in the alternate form (`{:#}`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Date(pub(crate) SystemTime);

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.0.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let seconds = since.as_secs();
        let (year, month, day) = civil_from_days(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}/{month:02}/{day:02}-{hour:02}:{minute:02}:{second:02}")?;
        match f.alternate() {
            true => write!(f, ".{:06}", since.subsec_micros()),
            false => Ok(()),
        }
    }
}

/// Parses a date as brpc's pages take it: `2026/11/20-21:47:00`, with or without a fraction of a second.
pub(crate) fn parse(text: &str) -> Option<SystemTime> {
    let (day, time) = text.split_once('-')?;
    let numbers = |text: &str, by: char| -> Option<[u64; 3]> {
        let numbers: Vec<u64> = text.split(by).map(str::parse).collect::<Result<_, _>>().ok()?;
        numbers.try_into().ok()
    };
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let ([year, month, day], [hour, minute, second]) = (numbers(day, '/')?, numbers(time, ':')?);
    let fraction: f64 = format!("0.{fraction}").parse().ok()?;
    let is_date = (1970..10_000).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    UNIX_EPOCH
        .checked_add(Duration::from_secs(seconds))?
        .checked_add(Duration::try_from_secs_f64(fraction).ok()?)
}

/// Returns the number of a day since 1970, the reverse of [`civil_from_days`].
fn days_from_civil(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Returns the year, month and day of a day since 1970 (Hinnant, `chrono-Compatible Low-Level Date Algorithms`).
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds: u64| Date(UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 5)).to_string();
        assert_eq!(at(0), "1970/01/01-00:00:00");
        assert_eq!(at(951_782_399), "2000/02/28-23:59:59");
        assert_eq!(at(951_782_400), "2000/02/29-00:00:00");
        assert_eq!(at(1_795_211_220), "2026/11/20-21:47:00");
        let date = Date(UNIX_EPOCH + Duration::from_micros(1_000_042));
        assert_eq!(format!("{date:#}"), "1970/01/01-00:00:01.000042");
    }

    #[test]
    fn dates_are_parsed() {
        for seconds in [0, 951_782_400, 951_868_799, 1_795_210_020, 4_102_444_799] {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(parse(&Date(time).to_string()), Some(time), "{seconds}");
            let later = time + Duration::from_micros(250_000);
            assert_eq!(parse(&format!("{:#}", Date(later))), Some(later));
        }
        for wrong in [
            "",
            "2026/11/20",
            "2026/13/01-00:00:00",
            "1969/01/01-00:00:00",
            "2026/1/1-24:00:00",
            "a/b/c-d:e:f",
            "2026/1/1-1:1:1.x",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
