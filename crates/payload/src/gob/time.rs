use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use polyrpc_core::digits::parse_decimal;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Error;
use crate::calendar::{DAY, date, days, days_in};

/// A point in time, Go's `time.Time`. In other formats it is an RFC 3339 text.
///
/// Go's type encodes itself: gob sees only opaque bytes (`encodeTime` below `Time.MarshalBinary` in Go's
/// `time/time.go`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds since 1970-01-01T00:00:00Z.
    seconds: i64,
    nanos: u32,
    /// Offset of local time from UTC in seconds; `None` for UTC itself, which Go distinguishes from a zone with offset
    /// zero.
    offset: Option<i32>,
}

/// Marker by which gob distinguishes it from other types; other formats ignore it.
pub(super) const NAME: &str = "polyrpc gob time";

/// Go's zero time.
pub(super) const ZERO: &str = "0001-01-01T00:00:00Z";

/// From the first day of the year 1 to 1970.
const YEAR_1: i64 = -62_135_596_800;

impl Default for Time {
    /// Go's zero time, the start of the year 1.
    fn default() -> Self {
        Self { seconds: YEAR_1, nanos: 0, offset: None }
    }
}

impl Time {
    /// Creates a time in UTC. A second has at most 10⁹ nanoseconds; more carry over to the next.
    pub fn utc(seconds: i64, nanos: u32) -> Self {
        let (more, nanos) = (nanos / NANOS, nanos % NANOS);
        Self { seconds: seconds.saturating_add(more.into()), nanos, offset: None }
    }

    /// Returns seconds since 1970-01-01T00:00:00Z.
    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// Returns nanoseconds since the start of the second.
    pub fn nanos(self) -> u32 {
        self.nanos
    }

    /// Decodes a self-encoded value, if a type with this name may be a time: behind a pointer it has no name
    /// (`getTypeInfo` in Go's `encoding/gob/type.go`).
    pub(super) fn for_type(name: &str, bytes: &[u8]) -> Option<Self> {
        matches!(name, "Time" | "").then(|| Self::from_binary(bytes).ok()).flatten()
    }

    /// Decodes the output of `Time.MarshalBinary`.
    pub(super) fn from_binary(bytes: &[u8]) -> Result<Self, Error> {
        let broken = || Error::new("Time.UnmarshalBinary: invalid data");
        let (&version, rest) = bytes.split_first().ok_or_else(broken)?;
        let (seconds, rest) = rest.split_first_chunk().ok_or_else(broken)?;
        let (nanos, rest) = rest.split_first_chunk().ok_or_else(broken)?;
        let (minutes, rest) = rest.split_first_chunk().ok_or_else(broken)?;
        let minutes = i32::from(i16::from_be_bytes(*minutes));
        let offset = match (version, rest) {
            (1, []) => minutes * 60,
            // For zones that are not whole minutes from UTC.
            (2, &[more]) => minutes * 60 + i32::from(more as i8),
            _ => return Err(Error::new("Time.UnmarshalBinary: unsupported version")),
        };
        let nanos = u32::from_be_bytes(*nanos);
        if nanos >= NANOS {
            return Err(broken());
        }
        Ok(Self {
            seconds: i64::from_be_bytes(*seconds).wrapping_add(YEAR_1),
            nanos,
            offset: (offset != UTC).then_some(offset),
        })
    }

    pub(super) fn to_binary(self) -> Vec<u8> {
        let offset = self.offset.unwrap_or(UTC);
        let (minutes, more) = (offset / 60, offset % 60);
        let mut bytes = vec![if more == 0 { 1 } else { 2 }];
        bytes.extend(self.seconds.wrapping_sub(YEAR_1).to_be_bytes());
        bytes.extend(self.nanos.to_be_bytes());
        bytes.extend((minutes as i16).to_be_bytes());
        bytes.extend((more != 0).then_some(more as u8));
        bytes
    }

    pub(super) fn is_zero(self) -> bool {
        self == Self::default()
    }
}

/// Marks UTC in place of an offset.
const UTC: i32 = -60;

const NANOS: u32 = 1_000_000_000;

impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Self {
        let whole = |since: Duration| i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Self::utc(whole(since), since.subsec_nanos()),
            Err(before) => match (whole(before.duration()), before.duration().subsec_nanos()) {
                (seconds, 0) => Self::utc(-seconds, 0),
                (seconds, nanos) => Self::utc(-seconds - 1, NANOS - nanos),
            },
        }
    }
}

/// RFC 3339, with as many fraction digits as needed.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local = self.seconds.saturating_add(self.offset.unwrap_or_default().into());
        let (days, second) = (local.div_euclid(DAY), local.rem_euclid(DAY));
        let (year, month, day) = date(days);
        let sign = if year < 0 { "-" } else { "" };
        write!(f, "{sign}{:04}-{month:02}-{day:02}T", year.abs())?;
        write!(f, "{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)?;
        if self.nanos > 0 {
            let digits = format!("{:09}", self.nanos);
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        match self.offset {
            None | Some(0) => f.write_str("Z"),
            Some(offset) => {
                let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.abs() / 60);
                write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
            }
        }
    }
}

impl FromStr for Time {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text).ok_or_else(|| Error::new(format!("{text:?} is no time as of RFC 3339")))
    }
}

fn parse(text: &str) -> Option<Time> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let zone = rest.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = rest.split_at_checked(zone)?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let (year, month, day) = year_month_day(date)?;
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    if hour >= 24 || minute >= 60 || second >= 60 {
        return None;
    }
    let offset = offset(zone)?;
    let of_day = hour * 3600 + minute * 60 + second - i64::from(offset.unwrap_or_default());
    let seconds = days(year, month, day).checked_mul(DAY)?.checked_add(of_day)?;
    Some(Time { seconds, nanos: nanos(fraction)?, offset })
}

/// Years beyond RFC 3339's four digits are accepted: Go has such times, and they must round-trip.
fn year_month_day(date: &str) -> Option<(i64, i64, i64)> {
    let (sign, date) = date.strip_prefix('-').map_or((1, date), |date| (-1, date));
    let digits = date.find('-').filter(|digits| (4..=12).contains(digits))?;
    let [year, month, day] = numbers(date, '-', [digits, 2, 2])?;
    let year = sign * year;
    let is_one = (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
    is_one.then_some((year, month, day))
}

/// Parses numbers with these digit counts.
fn numbers(text: &str, between: char, digits: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(between);
    let mut next = |digits: usize| {
        let part = parts.next().filter(|part| part.len() == digits)?;
        parse_decimal(part)
    };
    let numbers = [next(digits[0])?, next(digits[1])?, next(digits[2])?];
    parts.next().is_none().then_some(numbers)
}

fn nanos(fraction: &str) -> Option<u32> {
    let digits = fraction.get(..fraction.len().min(9))?;
    if digits.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    format!("{digits:0<9}").parse().ok()
}

fn offset(zone: &str) -> Option<Option<i32>> {
    let sign = match zone {
        "Z" | "z" => return Some(None),
        _ if zone.starts_with('-') => -1,
        _ => 1,
    };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let [hours, minutes, _] = numbers(&format!("{hours}:{minutes}:0"), ':', [2, 2, 1])?;
    (hours < 24 && minutes < 60).then_some(Some(sign * (hours * 3600 + minutes * 60) as i32))
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(NAME, &self.to_string())
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> de::Visitor<'de> for Text {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time as of RFC 3339")
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<Time, D::Error> {
                inner.deserialize_str(self)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Time, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_newtype_struct(NAME, Text)
    }
}
