use std::cmp::Ordering;

use super::layout::follow;
use super::{Invalid, Verifier};

/// A type of fields and of vector elements.
///
/// A scalar, an enum or a struct is stored inline; a [`Text`](super::Text), a `[T]` or a table is stored elsewhere,
/// with the distance to it inline.
pub trait Value: 'static {
    /// Result of reading: the value itself, or a view of it.
    type View<'a>;

    /// Inline size in bytes.
    const SIZE: usize;

    /// Alignment of the inline part, as required by Google's verifiers. Reading does not depend on it.
    const ALIGN: usize;

    /// Whether the inline part is a distance to the value.
    const REFERS: bool = false;

    /// Reads the value with its inline part at `at`; `None` if it is outside of the buffer.
    fn view(buffer: &[u8], at: usize) -> Option<Self::View<'_>>;

    /// Does the same for the value of a union, whose inline part is always a distance.
    #[inline]
    fn view_in_union(buffer: &[u8], at: usize) -> Option<Self::View<'_>> {
        let at = if Self::REFERS { at } else { follow(buffer, at)? };
        Self::view(buffer, at)
    }

    /// Verifies that the value with its inline part at `at` lies in the buffer, with everything it refers to.
    ///
    /// # Errors
    ///
    /// Why it is malformed.
    fn verify(verifier: &mut Verifier<'_>, at: usize) -> Result<(), Invalid>;
}

/// A value that is stored inline and read by copy: a scalar, an enum, a struct.
pub trait Inline: for<'a> Value<View<'a> = Self> + Copy {
    /// Writes the value into its `SIZE` zeroed bytes.
    fn write(self, out: &mut [u8]);
}

/// A table or a struct with a key, by which vectors of it are sorted.
pub trait Keyed: Value {
    /// Type that the key is compared with.
    type Key: ?Sized;

    /// Compares the key of an element with another key.
    fn compare(element: Self::View<'_>, key: &Self::Key) -> Ordering;
}

impl Verifier<'_> {
    /// Verifies a value of `T::SIZE` bytes without references.
    ///
    /// # Errors
    ///
    /// If it lies outside of the buffer, or is not aligned.
    #[inline]
    pub fn inline<T: Value>(&mut self, at: usize) -> Result<(), Invalid> {
        self.check_aligned(at, T::ALIGN)?;
        self.check_range(at, T::SIZE)
    }
}

macro_rules! scalars {
    ($($scalar:ident)*) => {
        $(impl Value for $scalar {
            type View<'a> = Self;
            const SIZE: usize = size_of::<Self>();
            const ALIGN: usize = size_of::<Self>();

            #[inline]
            fn view(buffer: &[u8], at: usize) -> Option<Self> {
                Some(Self::from_le_bytes(*buffer.get(at..)?.first_chunk()?))
            }

            #[inline]
            fn verify(verifier: &mut Verifier<'_>, at: usize) -> Result<(), Invalid> {
                verifier.inline::<Self>(at)
            }
        }

        impl Inline for $scalar {
            #[inline]
            fn write(self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_le_bytes());
            }
        })*
    };
}

scalars!(i8 u8 i16 u16 i32 u32 i64 u64 f32 f64);

/// Any byte other than 0 is true.
impl Value for bool {
    type View<'a> = Self;
    const SIZE: usize = 1;
    const ALIGN: usize = 1;

    #[inline]
    fn view(buffer: &[u8], at: usize) -> Option<Self> {
        buffer.get(at).map(|byte| *byte != 0)
    }

    #[inline]
    fn verify(verifier: &mut Verifier<'_>, at: usize) -> Result<(), Invalid> {
        verifier.inline::<Self>(at)
    }
}

impl Inline for bool {
    #[inline]
    fn write(self, out: &mut [u8]) {
        out.copy_from_slice(&[u8::from(self)]);
    }
}

/// A fixed-length array in a struct.
impl<T: Inline + Default, const N: usize> Value for [T; N] {
    type View<'a> = Self;
    const SIZE: usize = N * T::SIZE;
    const ALIGN: usize = T::ALIGN;

    fn view(buffer: &[u8], at: usize) -> Option<Self> {
        let mut array = [T::default(); N];
        for (n, element) in array.iter_mut().enumerate() {
            *element = T::view(buffer, at + n * T::SIZE)?;
        }
        Some(array)
    }

    fn verify(verifier: &mut Verifier<'_>, at: usize) -> Result<(), Invalid> {
        verifier.inline::<Self>(at)
    }
}

impl<T: Inline + Default, const N: usize> Inline for [T; N] {
    fn write(self, out: &mut [u8]) {
        for (element, out) in self.into_iter().zip(out.chunks_exact_mut(T::SIZE)) {
            element.write(out);
        }
    }
}

/// Reads a member of a struct, `offset` bytes after its start `at`.
#[inline]
pub fn member<T: Inline>(buffer: &[u8], at: usize, offset: usize) -> Option<T> {
    T::view(buffer, at.checked_add(offset)?)
}
