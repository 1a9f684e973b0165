use super::Route;
use crate::call::StreamType;
use crate::codec::TypeSchema;

/// A method of a server, as [`Monitor::methods`](crate::server::Monitor::methods) describes it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MethodInfo {
    /// The service; empty for a plain function.
    pub service: String,
    /// The method, or the function's name.
    pub name: String,
    /// The directions in which it streams messages.
    pub stream_type: StreamType,
    /// Whether it is the framework's own: health, reflection, pages.
    pub is_standard: bool,
    /// Full names of the request and the reply in their `.proto`, if it is known.
    pub messages: Option<(String, String)>,
    /// Structure of requests and replies, as far as it is known.
    pub schemas: (TypeSchema, TypeSchema),
}

impl MethodInfo {
    pub(super) fn from_route(route: &Route, messages: Option<(String, String)>) -> Self {
        Self {
            service: route.name().service().to_owned(),
            name: route.name().method().to_owned(),
            stream_type: route.method().stream_type(),
            is_standard: route.is_standard(),
            messages,
            schemas: route.method().type_schemas(),
        }
    }
}
