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
        let (year, month, day) = civil(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}/{month:02}/{day:02}-{hour:02}:{minute:02}:{second:02}")?;
        match f.alternate() {
            true => write!(f, ".{:06}", since.subsec_micros()),
            false => Ok(()),
        }
    }
}

/// Returns the year, month and day of a day since 1970 (Hinnant, `chrono-Compatible Low-Level Date Algorithms`).
fn civil(days: u64) -> (u64, u64, u64) {
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
}
