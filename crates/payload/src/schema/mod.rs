//! Messages, enums and services declared in `.proto` files.
//!
//! A [`Pool`] is built from a serialized `FileDescriptorSet`, as written by protoc with `--include_imports
//! --descriptor_set_out`. An untrusted set is safe to load: it may be rejected, but it neither causes a panic nor takes
//! more memory than its size allows.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

mod build;
mod field;
mod message;
mod required;

pub use self::field::{Cardinality, EnumId, EnumType, EnumValue, Field, Kind, MessageId};
pub(crate) use self::message::FieldSet;
pub use self::message::{MessageType, Spelling, WellKnown};
pub use self::required::MissingField;

/// All declarations of a set of `.proto` files. Cloning it is cheap.
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

#[derive(Default)]
struct Inner {
    encoded: Vec<u8>,
    messages: Vec<MessageType>,
    enums: Vec<EnumType>,
    services: Vec<ServiceType>,
    by_name: HashMap<Box<str>, MessageId>,
}

impl Pool {
    /// Parses a serialized `google.protobuf.FileDescriptorSet`, which must contain every file that another one imports.
    ///
    /// # Errors
    ///
    /// An [`Error`] describes why the set is invalid: it is not protobuf, a name is declared twice, a type is missing.
    pub fn decode(set: &[u8]) -> Result<Self, Error> {
        build::pool(set).map(|inner| Self(Arc::new(inner)))
    }

    /// Returns the set from which the pool was built, byte for byte.
    pub fn encoded(&self) -> &[u8] {
        &self.0.encoded
    }

    /// Returns the message with this full name: `example.EchoRequest`.
    pub fn message(&self, full_name: &str) -> Option<Message> {
        self.0.by_name.get(full_name).map(|&id| self.message_at(id))
    }

    /// Returns the message that a [`Kind`] or another message of this pool refers to.
    pub fn message_at(&self, id: MessageId) -> Message {
        Message { pool: self.clone(), id }
    }

    /// Iterates over all messages, including nested ones and map entries.
    pub fn messages(&self) -> impl Iterator<Item = Message> + '_ {
        (0..self.0.messages.len() as u32).map(|index| self.message_at(MessageId(index)))
    }

    /// Iterates over all services.
    pub fn services(&self) -> impl Iterator<Item = Service<'_>> {
        self.0.services.iter().map(|data| Service { pool: self, data })
    }

    /// Returns the service with this full name: `example.EchoService`.
    pub fn service(&self, full_name: &str) -> Option<Service<'_>> {
        self.services().find(|service| service.full_name() == full_name)
    }

    /// Iterates over all enums, including nested ones.
    pub fn enums(&self) -> impl Iterator<Item = &EnumType> {
        self.0.enums.iter()
    }

    /// Returns the enum that a [`Kind`] of this pool refers to.
    pub fn enum_type(&self, id: EnumId) -> &EnumType {
        &self.0.enums[id.0 as usize]
    }

    pub(crate) fn message_type(&self, id: MessageId) -> &MessageType {
        &self.0.messages[id.0 as usize]
    }

    pub(crate) fn message_id(&self, full_name: &str) -> Option<MessageId> {
        self.0.by_name.get(full_name).copied()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("messages", &self.0.messages.len())
            .field("enums", &self.0.enums.len())
            .field("services", &self.0.services.len())
            .finish()
    }
}

/// A message of a [`Pool`]. Cloning it is cheap; its declaration is in [`MessageType`].
#[derive(Clone)]
pub struct Message {
    pool: Pool,
    id: MessageId,
}

impl Message {
    /// Returns the pool that contains it.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Checks that `bytes`, the message in protobuf's binary format, contain every required field, including those of
    /// nested messages. Malformed bytes are not detected.
    ///
    /// # Errors
    ///
    /// The first missing field.
    pub fn check_required(&self, bytes: &[u8]) -> Result<(), MissingField> {
        if self.has_required() { required::check(&self.pool, self, bytes) } else { Ok(()) }
    }
}

impl Deref for Message {
    type Target = MessageType;

    fn deref(&self) -> &MessageType {
        self.pool.message_type(self.id)
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Message").field(&self.full_name()).finish()
    }
}

/// A service of a [`Pool`].
#[derive(Clone, Copy)]
pub struct Service<'p> {
    pool: &'p Pool,
    data: &'p ServiceType,
}

struct ServiceType {
    full_name: Box<str>,
    methods: Vec<MethodType>,
}

impl<'p> Service<'p> {
    /// Returns the name with its package: `example.EchoService`.
    pub fn full_name(&self) -> &'p str {
        &self.data.full_name
    }

    /// Iterates over the methods in the order of their declaration.
    pub fn methods(&self) -> impl Iterator<Item = Method<'p>> + use<'p> {
        let pool = self.pool;
        self.data.methods.iter().map(move |data| Method { pool, data })
    }
}

impl fmt::Debug for Service<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Service").field(&self.full_name()).finish()
    }
}

/// A method of a [`Service`].
#[derive(Clone, Copy)]
pub struct Method<'p> {
    pool: &'p Pool,
    data: &'p MethodType,
}

struct MethodType {
    name: Box<str>,
    input: MessageId,
    output: MessageId,
    client_streaming: bool,
    server_streaming: bool,
    http_rule: Option<Box<[u8]>>,
    no_side_effects: bool,
    idempotent: bool,
    deprecated: bool,
}

impl<'p> Method<'p> {
    /// Returns the name within its service.
    pub fn name(&self) -> &'p str {
        &self.data.name
    }

    /// Returns the request message.
    pub fn input(&self) -> Message {
        self.pool.message_at(self.data.input)
    }

    /// Returns the response message.
    pub fn output(&self) -> Message {
        self.pool.message_at(self.data.output)
    }

    /// Whether the caller sends a stream of messages.
    pub fn client_streaming(&self) -> bool {
        self.data.client_streaming
    }

    /// Whether the response is a stream of messages.
    pub fn server_streaming(&self) -> bool {
        self.data.server_streaming
    }

    /// Whether it is declared free of side effects (`idempotency_level = NO_SIDE_EFFECTS`).
    pub fn has_no_side_effects(&self) -> bool {
        self.data.no_side_effects
    }

    /// Whether it is declared to have no further effect if it is repeated (`idempotency_level = IDEMPOTENT`), or no
    /// effect at all.
    pub fn is_idempotent(&self) -> bool {
        self.data.idempotent || self.data.no_side_effects
    }

    /// Whether it is declared as deprecated.
    pub fn is_deprecated(&self) -> bool {
        self.data.deprecated
    }

    /// Returns the option `google.api.http`, if it is declared: a serialized `google.api.HttpRule`.
    pub fn http_rule(&self) -> Option<&'p [u8]> {
        self.data.http_rule.as_deref()
    }
}

impl fmt::Debug for Method<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Method").field(&self.name()).finish()
    }
}

/// Why a set of files is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    reason: String,
}

impl Error {
    #[cold]
    fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Error {}

#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
#[cfg(test)]
mod tests;
