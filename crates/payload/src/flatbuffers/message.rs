use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;

use super::{Build, Builder, Fields, Invalid, Limits, TableVerifier, Verifier};

/// A table of a schema. Generated code implements it by a type that is never made, so that a table can be
/// named without the lifetime of a buffer.
pub trait Table: Sized + 'static {
    /// The table where it lies in a buffer.
    type Ref<'a>: Copy + fmt::Debug;

    /// The full name in the schema: `test.BenchmarkRequest`.
    const NAME: &'static str;

    /// The four letters that the schema gives its files, for a root that has them.
    const FILE_IDENTIFIER: Option<[u8; 4]> = None;

    /// The typed view of these fields.
    fn over(fields: Fields<'_>) -> Self::Ref<'_>;

    /// Checks every field that the schema knows.
    ///
    /// # Errors
    ///
    /// What is wrong with the first that is wrong.
    fn verify(fields: &mut TableVerifier<'_, '_>) -> Result<(), Invalid>;
}

/// A table of a schema that is learned at run time: its fields are all there is to say of it. Verifying finds out
/// whether it is a table, and no more.
#[derive(Debug)]
pub enum Opaque {}

impl Table for Opaque {
    type Ref<'a> = Fields<'a>;

    const NAME: &'static str = "a table";

    fn over(fields: Fields<'_>) -> Fields<'_> {
        fields
    }

    fn verify(_: &mut TableVerifier<'_, '_>) -> Result<(), Invalid> {
        Ok(())
    }
}

/// A whole FlatBuffer whose root is a `T`: bytes that are read where they lie.
///
/// A message that was received shares the memory it was received into; reading it copies and allocates
/// nothing. Clones share the bytes too.
pub struct Message<T> {
    bytes: Bytes,
    table: PhantomData<fn() -> T>,
}

impl<T: Table> Message<T> {
    /// Takes bytes that came from elsewhere, once they were verified.
    ///
    /// # Errors
    ///
    /// When a part of the message lies outside of it, or is not what the schema says.
    pub fn read(bytes: impl Into<Bytes>) -> Result<Self, Invalid> {
        Self::read_within(bytes, &Limits::default())
    }

    /// [`read`](Self::read) with other limits.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn read_within(bytes: impl Into<Bytes>, limits: &Limits) -> Result<Self, Invalid> {
        let message = Self::unverified(bytes);
        Verifier::new(&message.bytes, limits).root::<T>()?;
        Ok(message)
    }

    /// Takes bytes as they are. What is broken in them reads as if it were absent: there is nothing unsafe in
    /// it, but what is missing is not noticed.
    pub fn unverified(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), table: PhantomData }
    }

    /// Writes a message.
    pub fn build(content: &impl Build<Table = T>) -> Self {
        let mut builder = Builder::new();
        let root = content.build(&mut builder);
        builder.finish(root)
    }

    /// The root table.
    pub fn root(&self) -> T::Ref<'_> {
        T::over(Fields::root(&self.bytes).unwrap_or(Fields::NONE))
    }

    /// Whether the message bears the identifier that the schema gives its files.
    pub fn has_identifier(&self) -> bool {
        T::FILE_IDENTIFIER.is_some_and(|identifier| self.bytes.get(4..8) == Some(&identifier[..]))
    }

    /// The encoded message.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The encoded message, without a share in it staying behind.
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
