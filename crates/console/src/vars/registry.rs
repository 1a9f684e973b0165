//! The variables of the process, by name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::name::to_underscored;
use super::value::Reading;

/// A variable that can be read.
pub(super) trait Variable: Send + Sync {
    /// Adds its values.
    fn read(&self, name: &str, readings: &mut Vec<Reading>);

    /// Takes the sample of a second.
    fn sample(&self) {}
}

static VARIABLES: Mutex<BTreeMap<String, Weak<dyn Variable>>> = Mutex::new(BTreeMap::new());

/// Maximum number of listed variables.
const MAX_VARIABLES: usize = 10_000;

fn lock() -> MutexGuard<'static, BTreeMap<String, Weak<dyn Variable>>> {
    VARIABLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lists a variable under a name, which is converted to bvar's rules, for as long as the variable exists.
///
/// If the name is taken, it stays with its variable: the new one works, but is not listed.
pub(super) fn list(name: &str, variable: &Arc<impl Variable + 'static>) {
    let name = to_underscored(name);
    let mut variables = lock();
    variables.retain(|_, known| known.strong_count() > 0);
    if name.is_empty() || variables.contains_key(&name) || variables.len() >= MAX_VARIABLES {
        tracing::warn!(name, "a variable is not listed: its name is taken or empty, or there are too many");
        return;
    }
    let variable: Arc<dyn Variable> = variable.clone();
    variables.insert(name, Arc::downgrade(&variable));
}

/// Returns the variables that exist. They are read without the lock, since a gauge is read by the program's code.
fn all() -> Vec<(String, Arc<dyn Variable>)> {
    lock().iter().filter_map(|(name, known)| Some((name.clone(), known.upgrade()?))).collect()
}

/// Reads every variable.
pub(crate) fn read_all() -> Vec<Reading> {
    let mut readings = Vec::new();
    for (name, variable) in all() {
        variable.read(&name, &mut readings);
    }
    readings
}

/// Takes the samples of a second.
pub(crate) fn sample() {
    all().iter().for_each(|(_, variable)| variable.sample());
}
