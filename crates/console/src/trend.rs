//! The history of a number: 60 seconds, 60 minutes, 24 hours and 30 days, as in bvar (`bvar/detail/series.h`).

/// Values of the last seconds, minutes, hours and days.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trend {
    seconds: Ring<60>,
    minutes: Ring<60>,
    hours: Ring<24>,
    days: Ring<30>,
}

impl Trend {
    /// Adds the value of a second. A minute is the average of its seconds, an hour of its minutes, a day of its hours.
    pub(crate) fn push(&mut self, value: f64) {
        if !self.seconds.push(value as f32) {
            return;
        }
        let minute = self.seconds.average();
        if !self.minutes.push(minute) {
            return;
        }
        let hour = self.minutes.average();
        if self.hours.push(hour) {
            let day = self.hours.average();
            self.days.push(day);
        }
    }

    /// Replaces the value of the last minute by a more accurate one than its seconds give: a percentile.
    pub(crate) fn replace_minute(&mut self, value: f64) {
        self.minutes.replace_last(value as f32);
    }

    /// Replaces the value of the last hour likewise.
    pub(crate) fn replace_hour(&mut self, value: f64) {
        self.hours.replace_last(value as f32);
    }

    /// Replaces the value of the last day likewise.
    pub(crate) fn replace_day(&mut self, value: f64) {
        self.days.replace_last(value as f32);
    }

    /// Returns all 174 values, from the earliest day to the last second.
    pub(crate) fn points(&self) -> impl Iterator<Item = f32> {
        self.days.iter().chain(self.hours.iter()).chain(self.minutes.iter()).chain(self.seconds.iter())
    }

    /// Returns the values of the last 60 minutes, 24 hours and 30 days.
    pub(crate) fn longer_series(&self) -> [Vec<f32>; 3] {
        [self.minutes.iter().collect(), self.hours.iter().collect(), self.days.iter().collect()]
    }

    /// Returns the values of the last 60 seconds.
    pub(crate) fn seconds(&self) -> impl Iterator<Item = f32> {
        self.seconds.iter()
    }
}

/// The last `N` values.
#[derive(Debug, Clone)]
struct Ring<const N: usize> {
    values: [f32; N],
    next: u8,
}

impl<const N: usize> Default for Ring<N> {
    fn default() -> Self {
        Self { values: [0.0; N], next: 0 }
    }
}

impl<const N: usize> Ring<N> {
    /// Adds a value. Returns whether this completes a round.
    fn push(&mut self, value: f32) -> bool {
        if let Some(slot) = self.values.get_mut(usize::from(self.next)) {
            *slot = value;
        }
        self.next = (self.next + 1) % N as u8;
        self.next == 0
    }

    fn replace_last(&mut self, value: f32) {
        let last = (usize::from(self.next) + N - 1) % N;
        if let Some(slot) = self.values.get_mut(last) {
            *slot = value;
        }
    }

    fn average(&self) -> f32 {
        let sum: f64 = self.values.iter().map(|value| f64::from(*value)).sum();
        (sum / N as f64) as f32
    }

    fn iter(&self) -> impl Iterator<Item = f32> {
        let (after, before) = self.values.split_at(usize::from(self.next).min(N));
        before.iter().chain(after).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_minutes_hours_and_days() {
        let mut trend = Trend::default();
        let day = 24 * 60 * 60;
        for second in 0..2 * day + 61 {
            trend.push(f64::from(second));
        }
        let points: Vec<f32> = trend.points().collect();
        assert_eq!(points.len(), 174);
        let expect = |at: usize, want: f64| {
            let got = f64::from(points[at]);
            assert!((got - want).abs() <= want * 1e-5, "{at}: {got}, not {want}");
        };
        let last = f64::from(2 * day + 60);
        expect(173, last);
        expect(114, last - 59.0);
        // The last whole minute, hour and day; and nothing of three days ago.
        expect(113, f64::from(2 * day) + 29.5);
        expect(53, f64::from(2 * day) - 1800.5);
        expect(29, f64::from(day) * 1.5 - 0.5);
        expect(28, f64::from(day) * 0.5 - 0.5);
        expect(27, 0.0);
        trend.replace_minute(7.0);
        assert_eq!(trend.points().nth(113), Some(7.0));
        assert_eq!(trend.seconds().last(), Some(last as f32));
    }
}
