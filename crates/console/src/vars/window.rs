use std::fmt;
use std::sync::Arc;

use super::counter::Counter;
use super::max::Max;
use super::registry::{self, Variable};
use super::value::{Kind, Reading, Value};
use super::windows::{DEFAULT_SECONDS, MAX_SECONDS};

/// A variable of which there are windows: [`Counter`], [`Max`].
pub trait Windowed: sealed::Sealed {}

impl Windowed for Counter {}
impl Windowed for Max {}

mod sealed {
    pub trait Sealed {
        /// Keeps the last seconds from now on.
        fn keep(&self);

        /// Returns the value of the last so many seconds.
        fn value_over(&self, seconds: usize) -> i64;
    }
}

impl sealed::Sealed for Counter {
    fn keep(&self) {
        self.keep_past();
    }

    fn value_over(&self, seconds: usize) -> i64 {
        Self::value_over(self, seconds).0
    }
}

impl sealed::Sealed for Max {
    fn keep(&self) {}

    fn value_over(&self, seconds: usize) -> i64 {
        Self::value_over(self, seconds)
    }
}

/// Value of a variable over the last seconds: the increase of a [`Counter`], the largest number of a [`Max`].
#[derive(Clone)]
pub struct Window(Arc<WindowOf>);

struct WindowOf {
    variable: Box<dyn sealed::Sealed + Send + Sync>,
    seconds: usize,
}

impl Window {
    /// Creates a window of so many seconds, from 1 to 60, that is listed under this name.
    pub fn new(name: &str, of: &(impl Windowed + Clone + Send + Sync + 'static), seconds: usize) -> Self {
        of.keep();
        let window = Self(Arc::new(WindowOf {
            variable: Box::new(of.clone()),
            seconds: seconds.clamp(1, MAX_SECONDS),
        }));
        registry::list(name, &window.0);
        window
    }

    /// Returns the value.
    pub fn value(&self) -> i64 {
        self.0.variable.value_over(self.0.seconds)
    }
}

impl Variable for WindowOf {
    fn read(&self, name: &str, readings: &mut Vec<Reading>) {
        let value = self.variable.value_over(self.seconds);
        readings.push(Reading::new(name, Kind::Gauge, Value::Integer(value)));
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window").field("seconds", &self.0.seconds).field("value", &self.value()).finish()
    }
}

/// Increase of a [`Counter`] per second, on average over the last ten: bvar's `PerSecond`.
#[derive(Clone)]
pub struct PerSecond(Arc<RateOf>);

struct RateOf(Counter);

impl PerSecond {
    /// Creates a rate that is listed under this name.
    pub fn new(name: &str, of: &Counter) -> Self {
        of.keep_past();
        let rate = Self(Arc::new(RateOf(of.clone())));
        registry::list(name, &rate.0);
        rate
    }

    /// Returns the rate.
    pub fn value(&self) -> f64 {
        self.0.value()
    }
}

impl RateOf {
    fn value(&self) -> f64 {
        let (added, seconds) = self.0.value_over(DEFAULT_SECONDS);
        added as f64 / seconds.max(1) as f64
    }
}

impl Variable for RateOf {
    fn read(&self, name: &str, readings: &mut Vec<Reading>) {
        readings.push(Reading::new(name, Kind::Gauge, Value::Number(self.value())));
    }
}

impl fmt::Debug for PerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PerSecond").field(&self.value()).finish()
    }
}
