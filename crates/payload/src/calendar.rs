//! The Gregorian calendar, for times in text form.
//!
//! Years are counted from March in eras of 400, so that the leap day is the last of a year and all eras have the same
//! number of days.

/// Seconds per day.
pub const DAY: i64 = 86_400;

/// Returns year, month and day of the day `days` days after 1970-01-01.
pub fn date(days: i64) -> (i64, i64, i64) {
    let days = days + BEFORE_1970;
    let (era, of_era) = (days.div_euclid(ERA), days.rem_euclid(ERA));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let year = year + era * 400;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

/// Returns the days from 1970-01-01 to a date: the inverse of [`date`].
pub fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * ERA + of_era * 365 + of_era / 4 - of_era / 100 + of_year - BEFORE_1970
}

/// Returns the number of days of a month.
pub fn days_in(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days per 400 years.
const ERA: i64 = 146_097;

/// Days from 0000-03-01 to 1970-01-01.
const BEFORE_1970: i64 = 719_468;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_ten_thousand_years_round_trips() {
        let mut next = (-400, 3, 1);
        for day in days(-400, 3, 1)..=days(9999, 12, 31) {
            let (year, month, of_month) = date(day);
            assert_eq!((year, month, of_month), next);
            assert_eq!(days(year, month, of_month), day);
            next = match (month, of_month) {
                (12, 31) => (year + 1, 1, 1),
                (_, last) if last == days_in(year, month) => (year, month + 1, 1),
                _ => (year, month, of_month + 1),
            };
        }
    }

    #[test]
    fn days_are_counted_from_1970() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(days(1, 1, 1) * DAY, -62_135_596_800);
        assert_eq!(
            (days_in(1900, 2), days_in(2000, 2), days_in(2023, 2), days_in(2024, 2)),
            (28, 29, 28, 29)
        );
    }
}
