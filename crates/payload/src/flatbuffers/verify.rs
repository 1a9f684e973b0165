//! Verification of a buffer against its schema.
//!
//! The checks and their limits are those of Google's verifiers (flatbuffers `rust/flatbuffers/src/verifier.rs`,
//! `include/flatbuffers/verifier.h`), and the order of fields is the schema's.

use std::fmt;

use super::layout::{OFFSET, u32_at};

/// Limits of a verification.
///
/// Besides, the number of checks is limited to 16 for each byte of the buffer. Without shared parts there are fewer than
/// two, so that this only refuses a buffer with parts that are shared many times over: a few kilobytes, in which each of a
/// thousand tables refers to the same vector of a thousand strings, would otherwise take a million checks.
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
pub(super) enum What {
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
    pub(super) fn new(what: What) -> Self {
        Self { what, path: Vec::new() }
    }

    #[cold]
    pub(super) fn within(mut self, field: &'static str) -> Self {
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
    pub(super) buffer: &'a [u8],
    limits: &'a Limits,
    depth: usize,
    tables: usize,
    apparent_size: usize,
    /// Checks that may still be made.
    pub(super) checks_left: usize,
}

/// Maximum number of checks for each byte of a buffer: the time that a message takes is proportional to its length.
const CHECKS_PER_BYTE: usize = 16;

impl<'a> Verifier<'a> {
    /// Creates a verifier for `buffer`.
    pub fn new(buffer: &'a [u8], limits: &'a Limits) -> Self {
        let checks_left = buffer.len().saturating_mul(CHECKS_PER_BYTE);
        Self { buffer, limits, depth: 0, tables: 0, apparent_size: 0, checks_left }
    }

    /// Verifies the string to which the distance at `at` refers.
    pub(super) fn string(&mut self, at: usize) -> Result<(), Invalid> {
        let at = self.follow(at)?;
        let (start, len) = self.elements(at, 1, 1)?;
        if self.buffer.get(start + len) != Some(&0) {
            return Err(Invalid::new(What::NoNullTerminator { at }));
        }
        Ok(())
    }

    /// Returns the position of a vector's first element, and the number of elements.
    pub(super) fn elements(
        &mut self,
        at: usize,
        size: usize,
        align: usize,
    ) -> Result<(usize, usize), Invalid> {
        let count = self.distance(at)?;
        let first = at + OFFSET;
        self.check_aligned(first, align)?;
        self.check_range(first, count.saturating_mul(size))?;
        Ok((first, count))
    }

    /// Follows the distance stored at `at`.
    #[inline]
    pub(super) fn follow(&mut self, at: usize) -> Result<usize, Invalid> {
        match self.distance(at)? {
            0 => Err(Invalid::new(What::Nowhere { at })),
            distance => Ok(at.saturating_add(distance)),
        }
    }

    #[inline]
    fn distance(&mut self, at: usize) -> Result<usize, Invalid> {
        self.check_aligned(at, OFFSET)?;
        self.check_range(at, OFFSET)?;
        Ok(u32_at(self.buffer, at).unwrap_or_default() as usize)
    }

    #[inline]
    pub(super) fn check_aligned(&self, at: usize, align: usize) -> Result<(), Invalid> {
        if at.is_multiple_of(align) { Ok(()) } else { Err(Invalid::new(What::Unaligned { at, align })) }
    }

    #[inline]
    pub(super) fn check_range(&mut self, at: usize, len: usize) -> Result<(), Invalid> {
        if at.checked_add(len).is_none_or(|end| end > self.buffer.len()) {
            return Err(Invalid::new(What::OutOfRange { at, len }));
        }
        self.apparent_size += len;
        if self.apparent_size > self.limits.apparent_size {
            return Err(Invalid::new(What::Limit("the apparent size")));
        }
        self.count_check()
    }

    /// Counts the check of one part.
    #[inline]
    pub(super) fn count_check(&mut self) -> Result<(), Invalid> {
        match self.checks_left.checked_sub(1) {
            Some(left) => self.checks_left = left,
            None => {
                return Err(Invalid::new(What::Limit("the number of checks for a message of this length")));
            }
        }
        Ok(())
    }

    /// Counts a table and its nesting, until it is left.
    #[inline]
    pub(super) fn enter(&mut self) -> Result<(), Invalid> {
        self.depth += 1;
        self.tables += 1;
        if self.depth > self.limits.depth {
            return Err(Invalid::new(What::Limit("the depth")));
        }
        if self.tables > self.limits.tables {
            return Err(Invalid::new(What::Limit("the number of tables")));
        }
        Ok(())
    }

    #[inline]
    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Verifies a nested buffer, whose content counts as if it were part of this one.
    pub(super) fn verify_nested(
        &mut self,
        buffer: &'a [u8],
        verify: impl FnOnce(&mut Self) -> Result<(), Invalid>,
    ) -> Result<(), Invalid> {
        let mut inner = Self { buffer, ..*self };
        verify(&mut inner)?;
        (self.tables, self.apparent_size) = (inner.tables, inner.apparent_size);
        self.checks_left = inner.checks_left;
        Ok(())
    }
}
