use std::collections::{HashMap, HashSet};

/// The methods that take one message.
///
/// Their calls are not opened before the message is complete: the received part is held until the rest arrives, so that
/// most calls are emitted as a whole.
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
