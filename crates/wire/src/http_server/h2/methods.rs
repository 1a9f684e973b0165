use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use polyrpc_core::Metadata;

/// The methods whose request is a single message.
///
/// Their calls are not opened before the message is complete: the received part is held until the rest arrives, so that
/// most calls are emitted as a whole.
#[derive(Clone, Debug, Default)]
pub struct Methods {
    services: HashMap<Box<str>, HashSet<Box<str>>>,
    dynamic: Option<Arc<dyn DynamicMethods>>,
}

/// Methods whose names are not known when the server starts, such as those that a proxy forwards.
pub trait DynamicMethods: fmt::Debug + Send + Sync {
    /// Returns whether the request of a call is a single message. It is called with the head of a call whose body is
    /// not complete yet.
    fn has_unary_request(&self, service: &str, method: &str, metadata: &Metadata) -> bool;
}

impl Methods {
    /// Adds a method.
    pub fn add(&mut self, service: &str, method: &str) {
        self.services.entry(service.into()).or_default().insert(method.into());
    }

    /// Sets the classifier of the methods that were not added by name.
    pub fn set_dynamic(&mut self, dynamic: Arc<dyn DynamicMethods>) {
        self.dynamic = Some(dynamic);
    }

    pub(super) fn has(&self, service: &str, method: &str) -> bool {
        self.services.get(service).is_some_and(|methods| methods.contains(method))
    }

    /// Returns whether the request of a call to a method that was not added is a single message.
    pub(super) fn has_dynamic_unary_request(&self, service: &str, method: &str, metadata: &Metadata) -> bool {
        self.dynamic.as_ref().is_some_and(|dynamic| dynamic.has_unary_request(service, method, metadata))
    }
}
