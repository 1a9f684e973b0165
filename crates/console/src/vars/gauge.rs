use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::family::Sealed;
use super::registry::{self, Variable};
use super::value::{Kind, Reading, Value};

/// A number that goes up and down: bvar's `Status` and `PassiveStatus`. Clones are the same gauge.
#[derive(Clone)]
pub struct Gauge(Arc<Source>);

enum Source {
    /// The bits of a number.
    Set(AtomicU64),
    Read(Box<dyn Fn() -> f64 + Send + Sync>),
}

impl Default for Gauge {
    fn default() -> Self {
        Self(Arc::new(Source::Set(AtomicU64::new(0))))
    }
}

impl Gauge {
    /// Creates a gauge that is listed under this name, and [set](Self::set) by the program.
    pub fn new(name: &str) -> Self {
        let gauge = Self::default();
        registry::list(name, &gauge.0);
        gauge
    }

    /// Creates a gauge whose value a function reads, each second and whenever a page shows it; it must not block.
    pub fn from_fn(name: &str, read: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        let gauge = Self(Arc::new(Source::Read(Box::new(read))));
        registry::list(name, &gauge.0);
        gauge
    }

    /// Sets the value. Without effect if a function reads it.
    #[inline]
    pub fn set(&self, value: f64) {
        if let Source::Set(bits) = &*self.0 {
            bits.store(value.to_bits(), Ordering::Relaxed);
        }
    }

    /// Returns the value.
    pub fn value(&self) -> f64 {
        self.0.value()
    }
}

impl Source {
    fn value(&self) -> f64 {
        match self {
            Self::Set(bits) => f64::from_bits(bits.load(Ordering::Relaxed)),
            Self::Read(read) => read(),
        }
    }
}

impl Variable for Source {
    fn read(&self, name: &str, readings: &mut Vec<Reading>) {
        readings.push(Reading::new(name, Kind::Gauge, Value::Number(self.value())));
    }
}

impl Sealed for Gauge {
    fn read(&self, name: &str, readings: &mut Vec<Reading>) {
        self.0.read(name, readings);
    }
}

impl fmt::Debug for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gauge").field(&self.value()).finish()
    }
}
