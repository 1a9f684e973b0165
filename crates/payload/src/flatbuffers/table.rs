use std::fmt;

use super::layout::{OFFSET, follow};
use super::verify::What;
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
        Fields::at(buffer, follow(buffer, at)?).map(T::over)
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

impl Verifier<'_> {
    /// Verifies the whole buffer with root `T`.
    ///
    /// # Errors
    ///
    /// Why it is malformed.
    #[inline]
    pub fn root<T: Table>(&mut self) -> Result<(), Invalid> {
        if self.buffer.len() < SHORTEST {
            return Err(Invalid::new(What::Short));
        }
        self.table::<T>(0)
    }

    /// Verifies the table to which the distance at `at` refers.
    fn table<T: Table>(&mut self, at: usize) -> Result<(), Invalid> {
        let at = self.follow(at)?;
        let mut fields = TableVerifier::enter(self, at)?;
        T::verify(&mut fields)?;
        fields.leave();
        Ok(())
    }
}

impl TableVerifier<'_, '_> {
    /// Verifies a field of bytes that hold a nested FlatBuffer.
    ///
    /// # Errors
    ///
    /// Why the bytes or their content are malformed.
    pub fn nested<T: Table>(&mut self, name: &'static str, id: u16) -> Result<(), Invalid> {
        self.field::<[u8]>(name, id)?;
        let Some(buffer) = self.bytes(id) else { return Ok(()) };
        self.verifier.verify_nested(buffer, Verifier::root::<T>).map_err(|invalid| invalid.within(name))
    }
}

/// Length of a root without fields in bytes: the distances to it and to its vtable, and the vtable's two lengths.
const SHORTEST: usize = 12;
