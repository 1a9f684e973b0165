use super::Value;
use super::layout::{FIRST_ENTRY, OFFSET, follow, u16_at, u32_at};

/// The fields of one table, looked up by id.
///
/// A table starts with the distance to its vtable, which contains the position of each field. No input is trusted: a
/// field located outside of the buffer is absent.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    buffer: &'a [u8],
    at: usize,
    vtable: usize,
    /// Length of the vtable in bytes, including its two length fields.
    vtable_len: usize,
}

impl<'a> Fields<'a> {
    /// A table without fields.
    pub const NONE: Self = Self { buffer: &[], at: 0, vtable: 0, vtable_len: 0 };

    /// Returns the fields of the root table; `None` if there is none.
    #[inline]
    pub fn root(buffer: &'a [u8]) -> Option<Self> {
        Self::at(buffer, u32_at(buffer, 0)? as usize)
    }

    /// Returns the fields of the table at `at`; `None` if it is malformed.
    #[inline]
    pub fn at(buffer: &'a [u8], at: usize) -> Option<Self> {
        let back = u32_at(buffer, at)?.cast_signed();
        let vtable =
            (at as i64).checked_sub(i64::from(back)).and_then(|vtable| usize::try_from(vtable).ok())?;
        let vtable_len = usize::from(u16_at(buffer, vtable)?);
        Some(Self { buffer, at, vtable, vtable_len })
    }

    /// Returns the field with this id; `None` if it is absent.
    #[inline]
    pub fn get<T: Value + ?Sized>(self, id: u16) -> Option<T::View<'a>> {
        T::view(self.buffer, self.position_of(id)?)
    }

    /// Returns the content of a union: the value with this id.
    #[inline]
    pub fn union<T: Value + ?Sized>(self, id: u16) -> Option<T::View<'a>> {
        T::view_in_union(self.buffer, self.position_of(id)?)
    }

    /// Returns the bytes of a struct, or of any inline value, if the schema is known only at run time.
    pub fn bytes(self, id: u16, len: usize) -> Option<&'a [u8]> {
        self.buffer.get(self.position_of(id)?..)?.get(..len)
    }

    /// Returns the bytes of a struct in a union.
    pub fn bytes_in_union(self, id: u16, len: usize) -> Option<&'a [u8]> {
        self.buffer.get(follow(self.buffer, self.position_of(id)?)?..)?.get(..len)
    }

    /// Returns the number of elements of a vector, and their bytes for elements of `size` bytes.
    pub fn elements(self, id: u16, size: usize) -> Option<(usize, &'a [u8])> {
        let at = follow(self.buffer, self.position_of(id)?)?;
        let count = u32_at(self.buffer, at)? as usize;
        let bytes = self.buffer.get(at.checked_add(OFFSET)?..)?.get(..count.checked_mul(size)?)?;
        Some((count, bytes))
    }

    /// Whether the field is present, even with its default value.
    #[inline]
    pub fn has(self, id: u16) -> bool {
        self.position_of(id).is_some()
    }

    #[inline]
    fn position_of(self, id: u16) -> Option<usize> {
        let entry = FIRST_ENTRY + 2 * usize::from(id);
        if entry + 2 > self.vtable_len {
            return None;
        }
        match u16_at(self.buffer, self.vtable + entry)? {
            0 => None,
            distance => Some(self.at + usize::from(distance)),
        }
    }
}
