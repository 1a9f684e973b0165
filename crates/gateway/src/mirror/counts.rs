use polyrpc_console::vars::{Counter, Family};
use serde::{Serialize, Serializer};

/// Outcomes of calls chosen for copying.
#[derive(Debug, Serialize)]
pub(crate) struct Counts {
    /// Compared, without a difference.
    pub(crate) equal: Count,
    /// Compared, with a difference.
    pub(crate) different: Count,
    /// The mirror's upstream did not answer in time, or not at all.
    pub(crate) failed: Count,
    /// The second primary did not answer.
    pub(crate) unmeasured: Count,
    /// Not copied: a limit was reached, or the call ended without an upstream's answer to compare with.
    pub(crate) dropped: Count,
    /// Not copied: the mirror's upstream is failing.
    pub(crate) paused: Count,
    /// Not copied: the message or its metadata cannot be sent to the mirror's upstream.
    pub(crate) untranslatable: Count,
}

/// A number of calls.
#[derive(Debug, Clone)]
pub(crate) struct Count(Counter);

impl Count {
    pub(super) fn add(&self) {
        self.0.add(1);
    }

    pub(crate) fn get(&self) -> i64 {
        self.0.value()
    }
}

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(self.get())
    }
}

impl Counts {
    /// Counts the copies of a route in a family with the labels `route` and `outcome`.
    pub(crate) fn new(family: &Family<Counter, 2>, route: &str) -> Self {
        let count = |outcome| Count(family.with([route, outcome]));
        Self {
            equal: count("equal"),
            different: count("different"),
            failed: count("failed"),
            unmeasured: count("unmeasured"),
            dropped: count("dropped"),
            paused: count("paused"),
            untranslatable: count("untranslatable"),
        }
    }
}
