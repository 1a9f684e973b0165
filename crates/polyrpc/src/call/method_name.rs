use std::fmt;

/// The names of a method on the server.
pub(crate) struct MethodName {
    service: Box<str>,
    method: Box<str>,
    is_fallback: bool,
    is_topic: bool,
}

impl MethodName {
    pub(crate) fn new(service: &str, method: &str, is_fallback: bool) -> Self {
        Self { service: service.into(), method: method.into(), is_fallback, is_topic: false }
    }

    /// Creates the name of a subscription.
    pub(crate) fn topic(topic: &str) -> Self {
        Self { is_topic: true, ..Self::new("", topic, false) }
    }

    /// Returns the service's full name; empty for a function that belongs to none.
    pub(crate) fn service(&self) -> &str {
        &self.service
    }

    pub(crate) fn method(&self) -> &str {
        &self.method
    }

    /// Returns whether the method handles calls that no other method handles: see [`RequestedMethod`].
    pub(crate) fn is_fallback(&self) -> bool {
        self.is_fallback
    }

    /// Returns whether it is the topic of a subscription, which the subscriber chooses.
    pub(crate) fn is_topic(&self) -> bool {
        self.is_topic
    }
}

impl fmt::Debug for MethodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.method)
    }
}

/// The names that a call to a fallback has requested; kept in the call's context.
#[derive(Debug)]
pub(crate) struct RequestedMethod {
    pub(crate) service: Box<str>,
    pub(crate) method: Box<str>,
    pub(crate) oneway: bool,
}
