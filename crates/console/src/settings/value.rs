use std::time::Duration;

/// Type of a setting's value: `bool`, `u64`, `i64`, `f64`, and `Duration`, which is written as seconds (`0.5`).
pub trait SettingValue: Copy + PartialEq + Send + Sync + sealed::Sealed + 'static {}

impl SettingValue for bool {}
impl SettingValue for u64 {}
impl SettingValue for i64 {}
impl SettingValue for f64 {}
impl SettingValue for Duration {}

pub(super) mod sealed {
    /// A value that fits into an atomic.
    pub trait Sealed: Sized {
        fn to_bits(self) -> u64;
        fn from_bits(bits: u64) -> Self;
        fn parse(text: &str) -> Option<Self>;
        fn show(self) -> String;
    }
}

impl sealed::Sealed for bool {
    fn to_bits(self) -> u64 {
        u64::from(self)
    }

    fn from_bits(bits: u64) -> Self {
        bits != 0
    }

    /// gflags' words (`gflags.cc`, `FlagValue::ParseFrom`).
    fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "1" | "t" | "true" | "y" | "yes" => Some(true),
            "0" | "f" | "false" | "n" | "no" => Some(false),
            _ => None,
        }
    }

    fn show(self) -> String {
        self.to_string()
    }
}

impl sealed::Sealed for u64 {
    fn to_bits(self) -> u64 {
        self
    }

    fn from_bits(bits: u64) -> Self {
        bits
    }

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn show(self) -> String {
        self.to_string()
    }
}

impl sealed::Sealed for i64 {
    fn to_bits(self) -> u64 {
        self.cast_unsigned()
    }

    fn from_bits(bits: u64) -> Self {
        bits.cast_signed()
    }

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn show(self) -> String {
        self.to_string()
    }
}

impl sealed::Sealed for f64 {
    fn to_bits(self) -> u64 {
        Self::to_bits(self)
    }

    fn from_bits(bits: u64) -> Self {
        Self::from_bits(bits)
    }

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().filter(|value: &Self| value.is_finite())
    }

    fn show(self) -> String {
        self.to_string()
    }
}

impl sealed::Sealed for Duration {
    fn to_bits(self) -> u64 {
        u64::try_from(self.as_nanos()).unwrap_or(u64::MAX)
    }

    fn from_bits(bits: u64) -> Self {
        Self::from_nanos(bits)
    }

    fn parse(text: &str) -> Option<Self> {
        let seconds = text.strip_suffix('s').unwrap_or(text).parse().ok()?;
        Self::try_from_secs_f64(seconds).ok().filter(|duration| u64::try_from(duration.as_nanos()).is_ok())
    }

    fn show(self) -> String {
        self.as_secs_f64().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T: SettingValue>(text: &str) -> Option<String> {
        T::parse(text).map(|value| T::from_bits(value.to_bits()).show())
    }

    #[test]
    fn values_survive_their_bits_and_their_text() {
        assert_eq!(round_trip::<bool>("Yes").as_deref(), Some("true"));
        assert_eq!(round_trip::<i64>("-7").as_deref(), Some("-7"));
        assert_eq!(round_trip::<u64>("18446744073709551615").as_deref(), Some("18446744073709551615"));
        assert_eq!(round_trip::<f64>("-0.5").as_deref(), Some("-0.5"));
        assert_eq!(round_trip::<Duration>("1.5s").as_deref(), Some("1.5"));
    }

    #[test]
    fn other_texts_are_not_values() {
        for wrong in ["", "x", "-1", "1e400", "NaN", "inf"] {
            assert_eq!(round_trip::<Duration>(wrong), None, "{wrong}");
        }
        assert_eq!(
            (round_trip::<u64>("-1"), round_trip::<f64>("NaN"), round_trip::<bool>("2")),
            (None, None, None)
        );
    }
}
