use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use polyrpc_core::Metadata;

/// The methods that take one message.
///
/// Their calls are not opened before the message is complete: the received part is held until the rest arrives, so that
/// most calls are emitted as a whole.
#[derive(Clone, Debug, Default)]
pub struct Methods {
    services: HashMap<Box<str>, HashSet<Box<str>>>,
    others: Option<Arc<dyn OtherMethods>>,
}

/// The methods that are not known by name when the server starts, such as those that a proxy forwards.
pub trait OtherMethods: fmt::Debug + Send + Sync {
    /// Returns whether a call takes one message, by its head. It is asked for calls of which more is to come.
    fn takes_one(&self, service: &str, method: &str, metadata: &Metadata) -> bool;
}

impl Methods {
    /// Adds a method.
    pub fn add(&mut self, service: &str, method: &str) {
        self.services.entry(service.into()).or_default().insert(method.into());
    }

    /// Sets who knows the methods that are not added.
    pub fn set_others(&mut self, others: Arc<dyn OtherMethods>) {
        self.others = Some(others);
    }

    pub(super) fn has(&self, service: &str, method: &str) -> bool {
        self.services.get(service).is_some_and(|methods| methods.contains(method))
    }

    /// Returns whether a call of a method that was not added takes one message.
    pub(super) fn others_take_one(&self, service: &str, method: &str, metadata: &Metadata) -> bool {
        self.others.as_ref().is_some_and(|others| others.takes_one(service, method, metadata))
    }
}
