use std::cmp::Ordering;

use super::fields::Fields;
use super::{Invalid, Table, Vector, Verifier};

/// What a field can hold, and a vector's element be.
///
/// A scalar, an enum or a struct lies in its place; a [`Text`](super::Text), a `[T]` or a table lies elsewhere, and its
/// place holds the distance to it.
pub trait Value: 'static {
    /// What is read: the value itself, or a view of where it lies.
    type View<'a>;

    /// Bytes that it takes in its place.
    const SIZE: usize;

    /// What its place is a multiple of, as Google's verifiers demand. Reading does not need it.
    const ALIGN: usize;

    /// Whether its place holds a distance to where it lies.
    const REFERS: bool = false;

    /// Reads the value whose place is `at`; `None` if it does not lie in the buffer.
    fn view(buffer: &[u8], at: usize) -> Option<Self::View<'_>>;

    /// The same for the value of a union, whose place always holds a distance.
    #[inline]
    fn view_in_union(buffer: &[u8], at: usize) -> Option<Self::View<'_>> {
        let at = if Self::REFERS { at } else { behind(buffer, at)? };
        Self::view(buffer, at)
    }

    /// Checks that the value whose place is `at` lies in the buffer, with all that hangs on it.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    fn verify(verifier: &mut Verifier<'_>, at: usize) -> Result<(), Invalid>;
}

/// A value that lies in its place and is read as itself: a scalar, an enum, a struct.
pub trait Inline: for<'a> Value<View<'a> = Self> + Copy {
    /// Writes the value into its `SIZE` bytes, which are zero.
    fn write(self, place: &mut [u8]);
}

/// A table or a struct with a key, by which vectors of it are sorted.
pub trait Keyed: Value {
    /// What its key is compared with.
    type Key: ?Sized;

    /// How the key of an element lies to another.
    fn compare(element: Self::View<'_>, key: &Self::Key) -> Ordering;
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
            fn write(self, place: &mut [u8]) {
                place.copy_from_slice(&self.to_le_bytes());
            }
        })*
    };
}

scalars!(i8 u8 i16 u16 i32 u32 i64 u64 f32 f64);

/// A byte that is not 0 is true.
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
    fn write(self, place: &mut [u8]) {
        place.copy_from_slice(&[u8::from(self)]);
    }
}

/// A struct's array of fixed length.
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
    fn write(self, place: &mut [u8]) {
        for (element, place) in self.into_iter().zip(place.chunks_exact_mut(T::SIZE)) {
            element.write(place);
        }
    }
}

impl<T: Value> Value for [T] {
    type View<'a> = Vector<'a, T>;
    const SIZE: usize = OFFSET;
    const ALIGN: usize = OFFSET;
    const REFERS: bool = true;

    #[inline]
    fn view(buffer: &[u8], at: usize) -> Option<Vector<'_, T>> {
        Vector::at(buffer, behind(buffer, at)?)
    }

    fn verify(verifier: &mut Verifier<'_>, at: usize) -> Result<(), Invalid> {
        verifier.vector::<T>(at)
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

/// A member of a struct, `offset` bytes behind its beginning `at`.
#[inline]
pub fn member<T: Inline>(buffer: &[u8], at: usize, offset: usize) -> Option<T> {
    T::view(buffer, at.checked_add(offset)?)
}

/// Where the distance that lies `at` leads to.
#[inline]
pub(super) fn behind(buffer: &[u8], at: usize) -> Option<usize> {
    at.checked_add(u32_at(buffer, at)? as usize)
}

#[inline]
pub(super) fn u32_at(buffer: &[u8], at: usize) -> Option<u32> {
    u32::view(buffer, at)
}

#[inline]
pub(super) fn u16_at(buffer: &[u8], at: usize) -> Option<u16> {
    u16::view(buffer, at)
}

/// Bytes of a distance.
pub(super) const OFFSET: usize = 4;
