use super::layout::{FIRST_ENTRY, OFFSET, follow, u16_at, u32_at};
use super::verify::What;
use super::{Invalid, Value, Verifier};

/// Verifies the fields of one table.
#[derive(Debug)]
pub struct TableVerifier<'v, 'a> {
    pub(super) verifier: &'v mut Verifier<'a>,
    at: usize,
    vtable: usize,
    vtable_len: usize,
}

impl<'v, 'a> TableVerifier<'v, 'a> {
    /// Enters the table at `at`.
    pub(super) fn enter(verifier: &'v mut Verifier<'a>, at: usize) -> Result<Self, Invalid> {
        verifier.check_aligned(at, OFFSET)?;
        verifier.check_range(at, OFFSET)?;
        let back = u32_at(verifier.buffer, at).unwrap_or_default().cast_signed();
        let vtable = (at as i64)
            .checked_sub(i64::from(back))
            .and_then(|vtable| usize::try_from(vtable).ok())
            .ok_or_else(|| Invalid::new(What::OutOfRange { at: 0, len: OFFSET }))?;
        verifier.check_aligned(vtable, 2)?;
        verifier.check_range(vtable, 2)?;
        let vtable_len = usize::from(u16_at(verifier.buffer, vtable).unwrap_or_default());
        verifier.check_aligned(vtable + vtable_len, 2)?;
        verifier.check_range(vtable, vtable_len)?;
        verifier.enter()?;
        Ok(Self { verifier, at, vtable, vtable_len })
    }

    pub(super) fn leave(self) {
        self.verifier.leave();
    }

    /// Verifies an optional field.
    ///
    /// # Errors
    ///
    /// Why it is malformed.
    #[inline]
    pub fn field<T: Value + ?Sized>(&mut self, name: &'static str, id: u16) -> Result<(), Invalid> {
        match self.position_of(id) {
            None => Ok(()),
            Some(at) => T::verify(self.verifier, at).map_err(|invalid| invalid.within(name)),
        }
    }

    /// Verifies a required field.
    ///
    /// # Errors
    ///
    /// See [`field`](Self::field); also if it is absent.
    #[inline]
    pub fn required<T: Value + ?Sized>(&mut self, name: &'static str, id: u16) -> Result<(), Invalid> {
        match self.position_of(id) {
            None => Err(Invalid::new(What::Missing).within(name)),
            Some(at) => T::verify(self.verifier, at).map_err(|invalid| invalid.within(name)),
        }
    }

    /// Verifies a union: the id of its type precedes that of its value. A type that `check` does not know belongs to a
    /// newer schema.
    ///
    /// # Errors
    ///
    /// Why it is malformed.
    pub fn union(
        &mut self,
        name: &'static str,
        id: u16,
        required: bool,
        check: impl Fn(u8, &mut UnionVerifier<'_, 'a>) -> Result<(), Invalid>,
    ) -> Result<(), Invalid> {
        let kind = id.checked_sub(1).and_then(|id| self.position_of(id));
        let checked = match (kind, self.position_of(id)) {
            (_, None) if required => Err(Invalid::new(What::Missing)),
            (None, None) => Ok(()),
            (None, Some(_)) => Err(Invalid::new(What::Union)),
            (Some(kind), None) => self.verifier.inline::<u8>(kind),
            (Some(kind), Some(at)) => self.verifier.inline::<u8>(kind).and_then(|()| {
                let kind = self.verifier.buffer.get(kind).copied().unwrap_or_default();
                check(kind, &mut UnionVerifier { verifier: self.verifier, at })
            }),
        };
        checked.map_err(|invalid| invalid.within(name))
    }

    /// Verifies a vector of unions: the id of the vector of their types precedes that of their values.
    ///
    /// # Errors
    ///
    /// Why it is malformed.
    pub fn unions(
        &mut self,
        name: &'static str,
        id: u16,
        required: bool,
        check: impl Fn(u8, &mut UnionVerifier<'_, 'a>) -> Result<(), Invalid>,
    ) -> Result<(), Invalid> {
        let kinds = id.checked_sub(1).and_then(|id| self.position_of(id));
        let checked = match (kinds, self.position_of(id)) {
            (_, None) if required => Err(Invalid::new(What::Missing)),
            (None, None) => Ok(()),
            (Some(kinds), Some(values)) => self.each_union(kinds, values, check),
            (None, Some(_)) | (Some(_), None) => Err(Invalid::new(What::Union)),
        };
        checked.map_err(|invalid| invalid.within(name))
    }

    fn each_union(
        &mut self,
        kinds: usize,
        values: usize,
        check: impl Fn(u8, &mut UnionVerifier<'_, 'a>) -> Result<(), Invalid>,
    ) -> Result<(), Invalid> {
        let verifier = &mut *self.verifier;
        let kinds = verifier.follow(kinds)?;
        let (first_kind, count) = verifier.elements(kinds, 1, 1)?;
        let values = verifier.follow(values)?;
        let (first_value, other_count) = verifier.elements(values, OFFSET, OFFSET)?;
        if count != other_count {
            return Err(Invalid::new(What::Union));
        }
        for n in 0..count {
            let kind = verifier.buffer.get(first_kind + n).copied().unwrap_or_default();
            let at = first_value + n * OFFSET;
            if kind == NONE {
                verifier.count_check()?;
            } else {
                check(kind, &mut UnionVerifier { verifier, at })?;
            }
        }
        Ok(())
    }

    /// Returns the bytes of a verified vector of bytes.
    pub(super) fn bytes(&self, id: u16) -> Option<&'a [u8]> {
        let buffer = self.verifier.buffer;
        let at = follow(buffer, self.position_of(id)?)?;
        let len = u32_at(buffer, at).unwrap_or_default() as usize;
        Some(buffer.get(at + OFFSET..at + OFFSET + len).unwrap_or_default())
    }

    #[inline]
    fn position_of(&self, id: u16) -> Option<usize> {
        let entry = FIRST_ENTRY + 2 * usize::from(id);
        if entry + 2 > self.vtable_len {
            return None;
        }
        // The whole vtable lies in the buffer.
        match u16_at(self.verifier.buffer, self.vtable + entry)? {
            0 => None,
            distance => Some(self.at + usize::from(distance)),
        }
    }
}

/// Verifies the value of one union.
#[derive(Debug)]
pub struct UnionVerifier<'v, 'a> {
    verifier: &'v mut Verifier<'a>,
    at: usize,
}

impl UnionVerifier<'_, '_> {
    /// Verifies that the value is a table or a string.
    ///
    /// # Errors
    ///
    /// Why it is malformed.
    pub fn value<T: Value>(&mut self) -> Result<(), Invalid> {
        T::verify(self.verifier, self.at)
    }

    /// Verifies that the value is a struct, which is stored elsewhere in a union.
    ///
    /// # Errors
    ///
    /// If it lies outside of the buffer.
    pub fn structure<T: Value>(&mut self) -> Result<(), Invalid> {
        let at = self.verifier.follow(self.at)?;
        T::verify(self.verifier, at)
    }
}

/// Type of an empty union.
const NONE: u8 = 0;
