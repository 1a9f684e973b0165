//! Verification of a buffer against its schema.
//!
//! The checks and their limits are those of Google's verifiers (flatbuffers `rust/flatbuffers/src/verifier.rs`,
//! `include/flatbuffers/verifier.h`), and the order of fields is the schema's.

use std::fmt;

use super::layout::{FIRST_ENTRY, OFFSET, behind, u16_at, u32_at};
use super::{Table, Value};

/// Limits of a verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Maximum nesting depth of tables. 64.
    pub depth: usize,
    /// Maximum number of tables, each counted as often as it is reached. 1,000,000.
    pub tables: usize,
    /// Maximum apparent size in bytes: a shared part counts for each reference. 2 GiB.
    pub apparent_size: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth: 64, tables: 1_000_000, apparent_size: 1 << 31 }
    }
}

/// Why a buffer does not match its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    what: What,
    /// Path of fields to the error, the outermost last.
    path: Vec<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    OutOfRange { at: usize, len: usize },
    Unaligned { at: usize, align: usize },
    Short,
    Nowhere { at: usize },
    Missing,
    NoNullTerminator { at: usize },
    Union,
    Limit(&'static str),
}

impl Invalid {
    #[cold]
    fn new(what: What) -> Self {
        Self { what, path: Vec::new() }
    }

    #[cold]
    fn within(mut self, field: &'static str) -> Self {
        self.path.push(field);
        self
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, field) in self.path.iter().rev().enumerate() {
            write!(f, "{}{field}", if n == 0 { "" } else { "." })?;
        }
        if !self.path.is_empty() {
            f.write_str(": ")?;
        }
        match self.what {
            What::OutOfRange { at, len } => write!(f, "{len} bytes at {at} are not in the message"),
            What::Unaligned { at, align } => {
                write!(f, "what begins at {at} must begin at a multiple of {align}")
            }
            What::Short => f.write_str("it is shorter than an empty table"),
            What::Nowhere { at } => write!(f, "what is at {at} refers to itself"),
            What::Missing => f.write_str("it is required and absent"),
            What::NoNullTerminator { at } => write!(f, "the string at {at} does not end with a zero"),
            What::Union => f.write_str("the union has a value and no type, or not as many of each"),
            What::Limit(limit) => write!(f, "the limit on {limit} is exceeded"),
        }
    }
}

impl std::error::Error for Invalid {}

/// Traverses a buffer and checks everything reachable.
#[derive(Debug)]
pub struct Verifier<'a> {
    buffer: &'a [u8],
    limits: &'a Limits,
    depth: usize,
    tables: usize,
    apparent_size: usize,
}

impl<'a> Verifier<'a> {
    /// Creates a verifier for `buffer`.
    pub fn new(buffer: &'a [u8], limits: &'a Limits) -> Self {
        Self { buffer, limits, depth: 0, tables: 0, apparent_size: 0 }
    }

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

    /// Verifies a value of `T::SIZE` bytes without references.
    ///
    /// # Errors
    ///
    /// If it lies outside of the buffer, or is not aligned.
    #[inline]
    pub fn inline<T: Value>(&mut self, at: usize) -> Result<(), Invalid> {
        self.aligned(at, T::ALIGN)?;
        self.range(at, T::SIZE)
    }

    /// Verifies the table to which the distance at `at` refers.
    pub(super) fn table<T: Table>(&mut self, at: usize) -> Result<(), Invalid> {
        let at = self.follow(at)?;
        let mut fields = TableVerifier::enter(self, at)?;
        T::verify(&mut fields)?;
        fields.leave();
        Ok(())
    }

    pub(super) fn string(&mut self, at: usize) -> Result<(), Invalid> {
        let at = self.follow(at)?;
        let (start, len) = self.elements(at, 1, 1)?;
        if self.buffer.get(start + len) != Some(&0) {
            return Err(Invalid::new(What::NoNullTerminator { at }));
        }
        Ok(())
    }

    pub(super) fn vector<T: Value>(&mut self, at: usize) -> Result<(), Invalid> {
        let at = self.follow(at)?;
        let (first, count) = self.elements(at, T::SIZE, T::ALIGN)?;
        match T::REFERS {
            true => (0..count).try_for_each(|n| T::verify(self, first + n * T::SIZE)),
            false => Ok(()),
        }
    }

    /// Returns the position of a vector's first element, and the number of elements.
    fn elements(&mut self, at: usize, size: usize, align: usize) -> Result<(usize, usize), Invalid> {
        let count = self.distance(at)?;
        let first = at + OFFSET;
        self.aligned(first, align)?;
        self.range(first, count.saturating_mul(size))?;
        Ok((first, count))
    }

    /// Follows the distance stored at `at`.
    #[inline]
    fn follow(&mut self, at: usize) -> Result<usize, Invalid> {
        match self.distance(at)? {
            0 => Err(Invalid::new(What::Nowhere { at })),
            distance => Ok(at.saturating_add(distance)),
        }
    }

    #[inline]
    fn distance(&mut self, at: usize) -> Result<usize, Invalid> {
        self.aligned(at, OFFSET)?;
        self.range(at, OFFSET)?;
        Ok(u32_at(self.buffer, at).unwrap_or_default() as usize)
    }

    #[inline]
    fn aligned(&self, at: usize, align: usize) -> Result<(), Invalid> {
        if at.is_multiple_of(align) { Ok(()) } else { Err(Invalid::new(What::Unaligned { at, align })) }
    }

    #[inline]
    fn range(&mut self, at: usize, len: usize) -> Result<(), Invalid> {
        if at.checked_add(len).is_none_or(|end| end > self.buffer.len()) {
            return Err(Invalid::new(What::OutOfRange { at, len }));
        }
        self.apparent_size += len;
        if self.apparent_size > self.limits.apparent_size {
            return Err(Invalid::new(What::Limit("the apparent size")));
        }
        Ok(())
    }
}

/// Verifies the fields of one table.
#[derive(Debug)]
pub struct TableVerifier<'v, 'a> {
    verifier: &'v mut Verifier<'a>,
    at: usize,
    vtable: usize,
    vtable_len: usize,
}

impl<'v, 'a> TableVerifier<'v, 'a> {
    fn enter(verifier: &'v mut Verifier<'a>, at: usize) -> Result<Self, Invalid> {
        verifier.aligned(at, OFFSET)?;
        verifier.range(at, OFFSET)?;
        let back = u32_at(verifier.buffer, at).unwrap_or_default().cast_signed();
        let vtable = (at as i64)
            .checked_sub(i64::from(back))
            .and_then(|vtable| usize::try_from(vtable).ok())
            .ok_or_else(|| Invalid::new(What::OutOfRange { at: 0, len: OFFSET }))?;
        verifier.aligned(vtable, 2)?;
        verifier.range(vtable, 2)?;
        let vtable_len = usize::from(u16_at(verifier.buffer, vtable).unwrap_or_default());
        verifier.aligned(vtable + vtable_len, 2)?;
        verifier.range(vtable, vtable_len)?;
        verifier.depth += 1;
        verifier.tables += 1;
        if verifier.depth > verifier.limits.depth {
            return Err(Invalid::new(What::Limit("the depth")));
        }
        if verifier.tables > verifier.limits.tables {
            return Err(Invalid::new(What::Limit("the number of tables")));
        }
        Ok(Self { verifier, at, vtable, vtable_len })
    }

    fn leave(self) {
        self.verifier.depth -= 1;
    }

    /// Verifies an optional field.
    ///
    /// # Errors
    ///
    /// Why it is malformed.
    #[inline]
    pub fn field<T: Value + ?Sized>(&mut self, name: &'static str, id: u16) -> Result<(), Invalid> {
        match self.place(id) {
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
        match self.place(id) {
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
        let kind = id.checked_sub(1).and_then(|id| self.place(id));
        let checked = match (kind, self.place(id)) {
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
        let kinds = id.checked_sub(1).and_then(|id| self.place(id));
        let checked = match (kinds, self.place(id)) {
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
            if kind != NONE {
                check(kind, &mut UnionVerifier { verifier, at })?;
            }
        }
        Ok(())
    }

    /// Verifies a field of bytes that hold a nested FlatBuffer.
    ///
    /// # Errors
    ///
    /// Why the bytes or their content are malformed.
    pub fn nested<T: Table>(&mut self, name: &'static str, id: u16) -> Result<(), Invalid> {
        self.field::<[u8]>(name, id)?;
        let Some(at) = self.place(id).and_then(|at| behind(self.verifier.buffer, at)) else { return Ok(()) };
        let len = u32_at(self.verifier.buffer, at).unwrap_or_default() as usize;
        let buffer = self.verifier.buffer.get(at + OFFSET..at + OFFSET + len).unwrap_or_default();
        // Its content counts as if it were part of the outer buffer.
        let outer = &mut *self.verifier;
        let (depth, tables, apparent_size) = (outer.depth, outer.tables, outer.apparent_size);
        let mut inner = Verifier { buffer, limits: outer.limits, depth, tables, apparent_size };
        inner.root::<T>().map_err(|invalid| invalid.within(name))?;
        (outer.tables, outer.apparent_size) = (inner.tables, inner.apparent_size);
        Ok(())
    }

    #[inline]
    fn place(&self, id: u16) -> Option<usize> {
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

/// Length of a root without fields in bytes: the distances to it and to its vtable, and the vtable's two lengths.
const SHORTEST: usize = 12;

/// Type of an empty union.
const NONE: u8 = 0;
