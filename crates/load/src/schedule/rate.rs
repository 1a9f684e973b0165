use std::fmt;
use std::str::FromStr;

/// Number of calls per time, as a fraction, so that the time of any call is computed without rounding errors that add up.
///
/// Parsed from `500`, `20k`, `1.5M`, with an optional `/s`, `/m` or `/h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    calls: u64,
    /// Nanoseconds in which this number of calls is made.
    period: u64,
}

impl Rate {
    /// A rate of this number of calls per second.
    ///
    /// # Errors
    ///
    /// If the rate is zero or above [`MAX`](Self::MAX).
    pub fn per_second(calls: u64) -> Result<Self, String> {
        Self::new(calls, SECOND)
    }

    /// A rate rounded to thousandths of a call per second.
    ///
    /// # Errors
    ///
    /// See [`per_second`](Self::per_second).
    pub fn from_f64(per_second: f64) -> Result<Self, String> {
        Self::new((per_second * 1e3).round() as u64, SECOND * 1000)
    }

    /// A rate of this number of calls in this number of nanoseconds.
    ///
    /// # Errors
    ///
    /// As [`per_second`](Self::per_second), and if the period is zero.
    pub fn new(calls: u64, period: u64) -> Result<Self, String> {
        let rate = Self { calls, period };
        match calls {
            _ if period == 0 => Err("the period of the rate is zero".to_owned()),
            0 => Err("the rate is zero".to_owned()),
            _ if rate.calls_per_second() > Self::MAX as f64 => {
                Err(format!("the rate is above {} calls a second", Self::MAX))
            }
            _ => Ok(rate),
        }
    }

    /// The fraction: a number of calls, and the nanoseconds in which they are made.
    pub fn fraction(self) -> (u64, u64) {
        (self.calls, self.period)
    }

    /// Calls per second.
    pub fn calls_per_second(self) -> f64 {
        self.calls_per_ns() * SECOND as f64
    }

    pub(crate) fn calls_per_ns(self) -> f64 {
        self.calls as f64 / self.period as f64
    }

    /// Time of call number `index`, in nanoseconds.
    pub(crate) fn time_of(self, index: u64) -> u64 {
        let time = u128::from(index) * u128::from(self.period) / u128::from(self.calls);
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// One call per second.
    pub(crate) const ONE: Self = Self { calls: 1, period: SECOND };
    /// Highest rate, in calls per second.
    pub const MAX: u64 = 1_000_000_000;
}

const SECOND: u64 = 1_000_000_000;

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is not a rate: expected calls per second, as in 500, 20k, 1.5M or 30/m");
        let (number, unit) = text.split_once('/').unwrap_or((text, "s"));
        let period = match unit {
            "s" => SECOND,
            "m" => 60 * SECOND,
            "h" => 3600 * SECOND,
            _ => return Err(wrong()),
        };
        let (digits, multiple) = match number.char_indices().next_back() {
            Some((at, 'k' | 'K')) => (&number[..at], 1_000),
            Some((at, 'M' | 'm')) => (&number[..at], 1_000_000),
            _ => (number, 1),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let plain = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
        if !plain(whole) || !plain(fraction) || digits.is_empty() || digits == "." || fraction.len() > 6 {
            return Err(wrong());
        }
        let scale = 10_u64.pow(fraction.len() as u32);
        let mantissa: u64 = format!("{whole}{fraction}").parse().map_err(|_| wrong())?;
        let calls = mantissa.checked_mul(multiple).ok_or_else(wrong)?;
        Self::new(calls, period * scale)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In the smallest unit in which it has at most three decimals, as it was probably written.
        let thousandths =
            |seconds: u64| u128::from(self.calls) * u128::from(seconds) * u128::from(SECOND) * 1000;
        let is_short = |seconds| thousandths(seconds).is_multiple_of(u128::from(self.period));
        let units = [("s", 1), ("m", 60), ("h", 3600)];
        let (unit, seconds) = units.into_iter().find(|(_, seconds)| is_short(*seconds)).unwrap_or(units[0]);
        match is_short(seconds) {
            true => write!(f, "{}/{unit}", (thousandths(seconds) / u128::from(self.period)) as f64 / 1000.0),
            false => write!(f, "{}/s", self.calls_per_second()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_parsed_with_their_units() {
        for (text, per_second) in
            [("500", 500.0), ("20k", 20e3), ("1.5M", 1.5e6), ("0.25", 0.25), ("30/m", 0.5), ("2k/s", 2e3)]
        {
            let rate: Rate = text.parse().unwrap();
            assert!((rate.calls_per_second() - per_second).abs() < 1e-9 * per_second, "{text}");
        }
        for wrong in ["", "0", "k", "-1", "1e3", "5/x", "1.2.3", ".", "2G", "99999M"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn rate_is_shown_in_the_unit_in_which_it_is_short() {
        for (text, shown) in [
            ("10/m", "10/m"),
            ("30/m", "0.5/s"),
            ("1/h", "1/h"),
            ("20k", "20000/s"),
            ("0.25", "0.25/s"),
            ("1.5M", "1500000/s"),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.to_string(), shown);
            assert!(
                (shown.parse::<Rate>().unwrap().calls_per_second() - rate.calls_per_second()).abs() < 1e-9
            );
        }
    }

    #[test]
    fn times_do_not_drift() {
        let rate = Rate::per_second(3).unwrap();
        assert_eq!(
            [0, 1, 2, 3].map(|index| rate.time_of(index)),
            [0, 333_333_333, 666_666_666, 1_000_000_000]
        );
        assert_eq!(rate.time_of(3 * 86_400 * 365), 86_400 * 365 * SECOND);
    }
}
