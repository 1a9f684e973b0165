use super::value::{OFFSET, behind, u16_at, u32_at};
use super::{Table, Value};

/// The fields of one table, found by their ids.
///
/// A table begins with the distance to its vtable, which says where each field lies. Nothing is trusted: a
/// field whose place is not in the buffer is absent.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    buffer: &'a [u8],
    at: usize,
    vtable: usize,
    /// Bytes of the vtable, its own two lengths included.
    vtable_len: usize,
}

impl<'a> Fields<'a> {
    /// A table without any.
    pub const NONE: Self = Self { buffer: &[], at: 0, vtable: 0, vtable_len: 0 };

    /// Those of the root table; `None` if there is none.
    #[inline]
    pub fn root(buffer: &'a [u8]) -> Option<Self> {
        Self::at(buffer, u32_at(buffer, 0)? as usize)
    }

    /// Those of the table that begins `at`; `None` if none can.
    #[inline]
    pub fn at(buffer: &'a [u8], at: usize) -> Option<Self> {
        let back = u32_at(buffer, at)?.cast_signed();
        let vtable =
            (at as i64).checked_sub(i64::from(back)).and_then(|vtable| usize::try_from(vtable).ok())?;
        let vtable_len = usize::from(u16_at(buffer, vtable)?);
        Some(Self { buffer, at, vtable, vtable_len })
    }

    /// The field with this id; `None` if the table has none.
    #[inline]
    pub fn get<T: Value + ?Sized>(self, id: u16) -> Option<T::View<'a>> {
        T::view(self.buffer, self.place(id)?)
    }

    /// The table that a union holds: the value with this id.
    #[inline]
    pub fn union<T: Value + ?Sized>(self, id: u16) -> Option<T::View<'a>> {
        T::view_in_union(self.buffer, self.place(id)?)
    }

    /// The table in a field that must be there; one without fields if it is not, which verifying would have told.
    #[inline]
    pub fn table<T: Table>(self, id: u16) -> T::Ref<'a> {
        self.get::<T>(id).unwrap_or_else(|| T::over(Fields::NONE))
    }

    /// The bytes of a struct, or of whatever lies in its place, for who learns the schema at run time.
    pub fn bytes(self, id: u16, len: usize) -> Option<&'a [u8]> {
        self.buffer.get(self.place(id)?..)?.get(..len)
    }

    /// The bytes of a struct that a union holds.
    pub fn bytes_in_union(self, id: u16, len: usize) -> Option<&'a [u8]> {
        self.buffer.get(behind(self.buffer, self.place(id)?)?..)?.get(..len)
    }

    /// How many elements a vector has, and their bytes if each takes so many.
    pub fn elements(self, id: u16, size: usize) -> Option<(usize, &'a [u8])> {
        let at = behind(self.buffer, self.place(id)?)?;
        let count = u32_at(self.buffer, at)? as usize;
        let bytes = self.buffer.get(at.checked_add(OFFSET)?..)?.get(..count.checked_mul(size)?)?;
        Some((count, bytes))
    }

    /// Whether the field is there, be it with its default.
    #[inline]
    pub fn has(self, id: u16) -> bool {
        self.place(id).is_some()
    }

    #[inline]
    fn place(self, id: u16) -> Option<usize> {
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

/// Bytes of a vtable before its first entry: its own length and the table's.
pub(super) const FIRST_ENTRY: usize = 4;
