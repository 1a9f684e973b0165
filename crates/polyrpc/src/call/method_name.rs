use std::fmt;

/// The names by which a server knows a method.
pub(crate) struct MethodName {
    service: Box<str>,
    method: Box<str>,
    is_fallback: bool,
}

impl MethodName {
    pub(crate) fn new(service: &str, method: &str, is_fallback: bool) -> Self {
        Self { service: service.into(), method: method.into(), is_fallback }
    }

    /// The service's name, in full; empty for a function that belongs to none.
    pub(crate) fn service(&self) -> &str {
        &self.service
    }

    pub(crate) fn method(&self) -> &str {
        &self.method
    }

    /// Whether the method takes what nothing else is there for: see [`RequestedMethod`].
    pub(crate) fn is_fallback(&self) -> bool {
        self.is_fallback
    }
}

impl fmt::Debug for MethodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.method)
    }
}

/// What a call to a fallback has asked for; it stands in the call's context.
#[derive(Debug)]
pub(crate) struct RequestedMethod {
    pub(crate) service: Box<str>,
    pub(crate) method: Box<str>,
    pub(crate) oneway: bool,
}
