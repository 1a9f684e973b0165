use std::collections::{HashMap, HashSet};

/// The methods that take one message.
///
/// A call of one of them need not be opened before its message is here: what has come of it is kept back until the rest
/// has, and most such calls are given out whole.
#[derive(Clone, Debug, Default)]
pub struct Methods {
    services: HashMap<Box<str>, HashSet<Box<str>>>,
}

impl Methods {
    /// Adds a method.
    pub fn add(&mut self, service: &str, method: &str) {
        self.services.entry(service.into()).or_default().insert(method.into());
    }

    pub(super) fn has(&self, service: &str, method: &str) -> bool {
        self.services.get(service).is_some_and(|methods| methods.contains(method))
    }
}
