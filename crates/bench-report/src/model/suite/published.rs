//! A figure of a document.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::format::Count;

/// A published figure as an interval, since it was rounded: in `[1, 2]` the document has whole milliseconds, cut off.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Published {
    /// A figure without known rounding.
    Exact(f64),
    /// Low and high end.
    Between(f64, f64),
}

impl Published {
    /// Low end.
    pub fn low(self) -> f64 {
        match self {
            Self::Exact(value) | Self::Between(value, _) => value,
        }
    }

    /// High end.
    pub fn high(self) -> f64 {
        match self {
            Self::Exact(value) | Self::Between(_, value) => value,
        }
    }

    /// The least interval that contains both.
    pub fn hull(self, other: Self) -> Self {
        let (low, high) = (self.low().min(other.low()), self.high().max(other.high()));
        if low == high { Self::Exact(low) } else { Self::Between(low, high) }
    }

    /// The ratio to another figure. `None` if it has no bound, since the other one may be 0.
    pub fn ratio(self, to: Self) -> Option<Self> {
        let (low, high) = (self.low() / to.high(), self.high() / to.low());
        let is_bounded = low.is_finite() && high.is_finite() && low > 0.0;
        is_bounded.then_some(if low == high { Self::Exact(low) } else { Self::Between(low, high) })
    }

    /// `Some(true)` if all of it is above 1, `Some(false)` if all of it is below.
    pub fn is_above_one(self) -> Option<bool> {
        match () {
            () if self.low() > 1.0 => Some(true),
            () if self.high() < 1.0 => Some(false),
            () => None,
        }
    }
}

impl fmt::Display for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(value) => write!(f, "{}", Number(*value)),
            Self::Between(low, high) => write!(f, "{} – {}", Number(*low), Number(*high)),
        }
    }
}

/// With thousands separators if it has no fraction, else with up to three decimals.
struct Number(f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.fract() == 0.0 {
            return fmt::Display::fmt(&Count(self.0), f);
        }
        let text = format!("{:.3}", self.0);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_of_rounded_figures_is_an_interval() {
        let ratio = Published::Between(2.0, 3.0).ratio(Published::Between(7.0, 8.0)).unwrap();
        assert_eq!(ratio, Published::Between(0.25, 3.0 / 7.0));
        assert_eq!(ratio.is_above_one(), Some(false));
        // A mean of 0 ms may be any time below 1 ms.
        assert_eq!(Published::Exact(2.0).ratio(Published::Between(0.0, 1.0)), None);
        assert_eq!(Published::Exact(3.0).ratio(Published::Exact(1.5)), Some(Published::Exact(2.0)));
        assert_eq!(Published::Between(0.9, 1.1).is_above_one(), None);
        let both = Published::Exact(560.0).hull(Published::Exact(562.0));
        assert_eq!(both, Published::Between(560.0, 562.0));
        assert_eq!(both.hull(Published::Exact(561.0)), both);
        assert_eq!(Published::Exact(1.0).hull(Published::Exact(1.0)), Published::Exact(1.0));
    }

    #[test]
    fn figures_are_shown_as_published() {
        let shown = [Published::Exact(164_338.0), Published::Between(0.0, 1.0), Published::Exact(63.3)]
            .map(|figure| figure.to_string());
        assert_eq!(shown, ["164,338", "0 – 1", "63.3"]);
    }

    #[test]
    fn json_form_is_a_number_or_a_pair() {
        let read: Vec<Published> = serde_json::from_str("[5, [0, 1.5]]").unwrap();
        assert_eq!(read, [Published::Exact(5.0), Published::Between(0.0, 1.5)]);
        assert_eq!(serde_json::to_string(&read).unwrap(), "[5.0,[0.0,1.5]]");
    }
}
