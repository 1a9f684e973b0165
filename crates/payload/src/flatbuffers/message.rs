use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;

use super::{Fields, Invalid, Limits, Table, Verifier};

/// A complete FlatBuffer with root `T`, read in place.
///
/// A received message shares the memory of the input; reading it copies and allocates nothing. Clones share the bytes,
/// too.
pub struct Message<T> {
    bytes: Bytes,
    table: PhantomData<fn() -> T>,
}

impl<T: Table> Message<T> {
    /// Verifies received bytes and takes them as a message.
    ///
    /// # Errors
    ///
    /// If a part of the message lies outside of the bytes, or does not match the schema.
    pub fn read(bytes: impl Into<Bytes>) -> Result<Self, Invalid> {
        Self::read_within(bytes, &Limits::default())
    }

    /// Like [`read`](Self::read), with other limits.
    ///
    /// # Errors
    ///
    /// See [`read`](Self::read).
    pub fn read_within(bytes: impl Into<Bytes>, limits: &Limits) -> Result<Self, Invalid> {
        let message = Self::unverified(bytes);
        Verifier::new(&message.bytes, limits).root::<T>()?;
        Ok(message)
    }

    /// Takes bytes without verification. Malformed parts read as if they were absent: this is memory safe, but missing
    /// data is not detected.
    pub fn unverified(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), table: PhantomData }
    }

    /// Returns the root table.
    pub fn root(&self) -> T::Ref<'_> {
        T::over(Fields::root(&self.bytes).unwrap_or(Fields::NONE))
    }

    /// Whether the message has the schema's file identifier.
    pub fn has_identifier(&self) -> bool {
        T::FILE_IDENTIFIER.is_some_and(|identifier| self.bytes.get(4..8) == Some(&identifier[..]))
    }

    /// Returns the encoded message.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the encoded message without keeping a reference to it.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }
}

impl<T> Clone for Message<T> {
    fn clone(&self) -> Self {
        Self { bytes: self.bytes.clone(), table: PhantomData }
    }
}

impl<T: Table> fmt::Debug for Message<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root().fmt(f)
    }
}
