//! Violations that end a connection.

use std::fmt;

/// Violation of the protocol that ends a connection: its bytes are not valid, and failing a single call would not help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    reason: String,
    kind: ViolationKind,
}

/// Kind of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    /// Bytes that are not valid in the protocol.
    Malformed,
    /// A message or a head that exceeds its limit.
    TooLarge,
    /// More work than a well-behaved peer causes: resets, control frames, empty frames.
    Flood,
}

impl Violation {
    /// Creates a violation with a reason, in lower case and without a full stop.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), kind: ViolationKind::Malformed }
    }

    /// Creates a violation of a limit, with a reason as in [`new`](Self::new).
    #[cold]
    pub fn too_large(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), kind: ViolationKind::TooLarge }
    }

    /// Creates the violation of a message that exceeds the limit, in bytes.
    #[cold]
    pub fn message_too_large(length: usize, limit: usize) -> Self {
        Self::too_large(format!("message is too long: {length} bytes where {limit} are allowed"))
    }

    /// Creates the violation of a body, including everything in a frame after its header, that exceeds the limit, in
    /// bytes.
    #[cold]
    pub fn body_too_large(length: usize, limit: usize) -> Self {
        Self::too_large(format!("a body of {length} bytes exceeds the limit of {limit}"))
    }

    /// Returns the same violation with this kind.
    #[must_use]
    pub fn with_kind(self, kind: ViolationKind) -> Self {
        Self { kind, ..self }
    }

    /// Returns the kind of the violation.
    pub fn kind(&self) -> ViolationKind {
        self.kind
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Violation {}
