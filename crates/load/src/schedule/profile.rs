use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::Rate;

/// Rate of calls over time.
#[derive(Debug, Clone, PartialEq)]
pub enum Profile {
    /// The same rate all the time.
    Constant(Rate),
    /// A rate that changes along straight lines.
    Stages(Stages),
}

impl Profile {
    /// Rate at the start, in calls per second.
    pub(crate) fn initial_rate(&self) -> f64 {
        match self {
            Self::Constant(rate) => rate.calls_per_second(),
            Self::Stages(stages) => stages.segments.first().map_or(0.0, |first| first.from * 1e9),
        }
    }

    /// Highest rate, in calls per second.
    pub fn highest_rate(&self) -> f64 {
        match self {
            Self::Constant(rate) => rate.calls_per_second(),
            Self::Stages(stages) => {
                stages.segments.iter().fold(0.0, |most, segment| segment.from.max(segment.to).max(most)) * 1e9
            }
        }
    }

    /// Time in nanoseconds when this number of calls has been made at the profile's rate, if that is ever reached.
    pub(crate) fn time_of(&self, calls: f64) -> Option<u64> {
        match self {
            Self::Constant(rate) => Some((calls / rate.calls_per_ns()) as u64),
            Self::Stages(stages) => stages.time_of(calls),
        }
    }
}

/// Points in time and the rates there, joined by straight lines: `0:1k,30s:50k,2m:50k` rises for 30 seconds and stays for
/// another 90.
#[derive(Debug, Clone, PartialEq)]
pub struct Stages {
    segments: Vec<Segment>,
}

/// Line between two points, in nanoseconds and calls per nanosecond.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Segment {
    start: f64,
    length: f64,
    from: f64,
    to: f64,
    /// Calls before the start.
    before: f64,
}

impl Segment {
    fn calls(&self) -> f64 {
        (self.from + self.to) / 2.0 * self.length
    }

    /// Time from the start until this number of calls: the root of `from·t + slope/2·t² = calls` in the form that is
    /// precise for small slopes.
    fn time_of(&self, calls: f64) -> f64 {
        let slope = (self.to - self.from) / self.length;
        let root = (self.from * self.from + 2.0 * slope * calls).max(0.0).sqrt();
        match self.from + root {
            _ if calls <= 0.0 => 0.0,
            0.0 => self.length,
            sum => 2.0 * calls / sum,
        }
    }
}

impl Stages {
    /// The points in time and their calls per second.
    pub fn points(&self) -> Vec<(Duration, f64)> {
        let at = |nanos: f64| Duration::from_nanos(nanos as u64);
        let starts = self.segments.iter().map(|segment| (at(segment.start), segment.from * 1e9));
        let last = self.segments.last().map(|last| (at(last.start + last.length), last.to * 1e9));
        starts.chain(last).collect()
    }

    /// Joins points of a time and calls per second, in the order of time from 0.
    ///
    /// # Errors
    ///
    /// If there are fewer than two points, the first is not at 0, times do not rise, or every rate is zero.
    pub fn new(points: &[(Duration, f64)]) -> Result<Self, String> {
        let [(Duration::ZERO, _), _, ..] = points else {
            return Err("stages need two points or more, the first at time 0".to_owned());
        };
        let mut before = 0.0;
        let mut segments = Vec::with_capacity(points.len() - 1);
        for pair in points.windows(2) {
            let [(start, from), (end, to)] = *pair else { continue };
            if end <= start {
                return Err("the times of stages must rise".to_owned());
            }
            if ![from, to].iter().all(|rate| (0.0..=Rate::MAX as f64).contains(rate)) {
                return Err(format!("the rates of stages are between 0 and {}", Rate::MAX));
            }
            let (from, to) = (from / 1e9, to / 1e9);
            let (start, length) = (start.as_nanos() as f64, (end - start).as_nanos() as f64);
            let segment = Segment { start, length, from, to, before };
            before += segment.calls();
            segments.push(segment);
        }
        match before > 0.0 {
            true => Ok(Self { segments }),
            false => Err("every rate of the stages is zero".to_owned()),
        }
    }

    /// Time of the last point.
    pub fn duration(&self) -> Duration {
        let last = self.segments.last();
        Duration::from_nanos(last.map_or(0.0, |last| last.start + last.length) as u64)
    }

    pub(super) fn time_of(&self, calls: f64) -> Option<u64> {
        let at = self.segments.partition_point(|segment| segment.before + segment.calls() <= calls);
        let segment = self.segments.get(at)?;
        Some((segment.start + segment.time_of(calls - segment.before)) as u64)
    }
}

impl FromStr for Stages {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let point = |point: &str| {
            let (time, rate) = point
                .trim()
                .split_once(':')
                .ok_or_else(|| format!("`{point}` is not a stage: expected TIME:RATE"))?;
            let rate = match rate {
                "0" => 0.0,
                rate => rate.parse::<Rate>()?.calls_per_second(),
            };
            Ok((duration(time)?, rate))
        };
        let points: Vec<_> = text.split(',').map(point).collect::<Result<_, String>>()?;
        Self::new(&points)
    }
}

/// Parses `500ms`, `1.5s`, `2m`, `1h`; a plain number is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("`{text}` is not a duration: expected seconds, or a number and ns, us, ms, s, m or h");
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let seconds = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(rate) => rate.fmt(f),
            Self::Stages(stages) => {
                let Some(first) = stages.segments.first() else { return Ok(()) };
                write!(f, "0s:{}", first.from * 1e9)?;
                let mut points = stages.segments.iter();
                points.try_for_each(|it| write!(f, ",{}s:{}", (it.start + it.length) / 1e9, it.to * 1e9))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ramp_reaches_the_integral_of_its_rate() {
        let stages: Stages = "0:0,10s:100,20s:100".parse().unwrap();
        assert_eq!(stages.duration(), Duration::from_secs(20));
        // 500 calls while it rises, half of the rate after half of the time.
        assert_eq!(stages.time_of(125.0), Some(5_000_000_000));
        assert_eq!(stages.time_of(500.0), Some(10_000_000_000));
        assert_eq!(stages.time_of(1000.0), Some(15_000_000_000));
        assert_eq!(stages.time_of(1500.0), None);
    }

    #[test]
    fn points_describe_the_same_stages() {
        let stages: Stages = "0:100,10s:1k,20s:500".parse().unwrap();
        let again = Stages::new(&stages.points()).unwrap();
        assert_eq!(again.points(), stages.points());
        assert_eq!(again.time_of(3_000.0), stages.time_of(3_000.0));
    }

    #[test]
    fn invalid_stages_are_rejected_with_the_reason() {
        for (text, reason) in [
            ("0:1k", "two points"),
            ("1s:1k,2s:1k", "at time 0"),
            ("0:1k,5s:2k,5s:3k", "must rise"),
            ("0:0,5s:0", "is zero"),
            ("0:1k,5s", "TIME:RATE"),
            ("0:1k,5x:1k", "not a duration"),
        ] {
            let refused = text.parse::<Stages>().unwrap_err();
            assert!(refused.contains(reason), "{text}: {refused}");
        }
    }
}
