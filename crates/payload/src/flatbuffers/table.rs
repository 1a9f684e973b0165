use std::fmt;

use super::layout::{OFFSET, behind};
use super::{Fields, Invalid, TableVerifier, Value, Verifier};

/// A table of a schema. Generated code implements it for an uninhabited type, so that a table can be named without the
/// lifetime of a buffer.
pub trait Table: Sized + 'static {
    /// View of the table in a buffer.
    type Ref<'a>: Copy + fmt::Debug;

    /// Full name in the schema: `test.BenchmarkRequest`.
    const NAME: &'static str;

    /// The schema's file identifier, for a root that has one.
    const FILE_IDENTIFIER: Option<[u8; 4]> = None;

    /// Returns the typed view of these fields.
    fn over(fields: Fields<'_>) -> Self::Ref<'_>;

    /// Verifies every field of the schema.
    ///
    /// # Errors
    ///
    /// The first malformed field.
    fn verify(fields: &mut TableVerifier<'_, '_>) -> Result<(), Invalid>;
}

/// A table whose schema is known only at run time. Verification checks only that it is a table.
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

impl<T: Table> Value for T {
    type View<'a> = T::Ref<'a>;
    const SIZE: usize = OFFSET;
    const ALIGN: usize = OFFSET;
    const REFERS: bool = true;

    #[inline]
    fn view(buffer: &[u8], at: usize) -> Option<T::Ref<'_>> {
        Fields::at(buffer, behind(buffer, at)?).map(T::over)
    }

    #[inline]
    fn verify(verifier: &mut Verifier<'_>, at: usize) -> Result<(), Invalid> {
        verifier.table::<T>(at)
    }
}

impl<'a> Fields<'a> {
    /// Returns the table in a required field; an empty one if it is absent, which verification would have reported.
    #[inline]
    pub fn table<T: Table>(self, id: u16) -> T::Ref<'a> {
        self.get::<T>(id).unwrap_or_else(|| T::over(Fields::NONE))
    }
}
