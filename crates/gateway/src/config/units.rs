//! Values with units.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

/// A share of the calls, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share(pub(crate) f64);

impl Default for Share {
    fn default() -> Self {
        Self(1.0)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(deserializer)?;
        match (0.0..=1.0).contains(&share) {
            true => Ok(Self(share)),
            false => Err(D::Error::custom(format!("{share} is not between 0 and 1"))),
        }
    }
}

/// A time: `500ms`, `2s`, `1m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

/// A text; other values are refused with what is wanted.
struct TextOf(&'static str);

impl Visitor<'_> for TextOf {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_any(TextOf("a time such as \"500ms\", \"5s\" or \"1m\""))?;
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let millis = match &text[digits.len()..] {
            "ms" => Some(1),
            "s" => Some(1000),
            "m" => Some(60_000),
            "h" => Some(3_600_000),
            _ => None,
        };
        let number: Option<u64> = digits.parse().ok();
        let millis = number.zip(millis).and_then(|(number, unit)| number.checked_mul(unit));
        let wrong = || D::Error::custom(format!("`{text}` is not a time such as 500ms, 2s or 1m"));
        millis.map(|millis| Self(Duration::from_millis(millis))).ok_or_else(wrong)
    }
}

/// A number of bytes: `64KiB`, `512MiB`, `2GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) usize);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text =
            deserializer.deserialize_any(TextOf("a size such as \"64KiB\", \"512MiB\" or \"2GiB\""))?;
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match &text[digits.len()..] {
            "KiB" => Some(1usize << 10),
            "MiB" => Some(1 << 20),
            "GiB" => Some(1 << 30),
            _ => None,
        };
        let bytes =
            digits.parse::<usize>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
        bytes.map(Self).ok_or_else(|| D::Error::custom(format!("`{text}` is not a size such as 64MiB")))
    }
}
