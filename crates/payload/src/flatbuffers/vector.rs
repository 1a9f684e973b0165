use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;

use super::layout::{OFFSET, follow, u32_at};
use super::{Invalid, Keyed, Value, Verifier};

/// View of a vector in a buffer.
pub struct Vector<'a, T> {
    buffer: &'a [u8],
    /// Position of the first element's inline part.
    first: usize,
    len: usize,
    elements: PhantomData<fn() -> T>,
}

impl<'a, T: Value> Vector<'a, T> {
    /// Returns the vector at `at`; `None` if its elements are not all inside the buffer.
    fn at(buffer: &'a [u8], at: usize) -> Option<Self> {
        let len = u32_at(buffer, at)? as usize;
        let first = at + OFFSET;
        let bytes = len.checked_mul(T::SIZE)?;
        buffer.get(first..)?.get(..bytes)?;
        Some(Self { buffer, first, len, elements: PhantomData })
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the element at this index.
    pub fn get(&self, index: usize) -> Option<T::View<'a>> {
        if index >= self.len {
            return None;
        }
        T::view(self.buffer, self.first + index * T::SIZE)
    }

    /// Iterates over all elements, in order.
    pub fn iter(&self) -> Iter<'a, T> {
        Iter { vector: *self, next: 0 }
    }
}

impl<'a> Vector<'a, u8> {
    /// Returns the encoded elements.
    pub fn as_bytes(&self) -> &'a [u8] {
        // Checked when the view was created.
        self.buffer.get(self.first..self.first + self.len).unwrap_or_default()
    }
}

/// The distances to the values of several unions.
impl<'a> Vector<'a, u32> {
    /// Returns the value of the union at this index, which is always stored elsewhere.
    pub fn union<U: Value + ?Sized>(&self, index: usize) -> Option<U::View<'a>> {
        if index >= self.len {
            return None;
        }
        U::view_in_union(self.buffer, self.first + index * u32::SIZE)
    }
}

impl<'a, T: Keyed> Vector<'a, T> {
    /// Returns the element with this key, from a vector sorted by it.
    pub fn find(&self, key: &T::Key) -> Option<T::View<'a>> {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = low + (high - low) / 2;
            match T::compare(self.get(middle)?, key) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return self.get(middle),
            }
        }
        None
    }
}

impl<T> Clone for Vector<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Vector<'_, T> {}

/// An empty vector.
impl<T> Default for Vector<'_, T> {
    fn default() -> Self {
        Self { buffer: &[], first: 0, len: 0, elements: PhantomData }
    }
}

impl<'a, T: Value> IntoIterator for Vector<'a, T> {
    type Item = T::View<'a>;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<'a, T: Value> fmt::Debug for Vector<'a, T>
where
    T::View<'a>: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: Value> Value for [T] {
    type View<'a> = Vector<'a, T>;
    const SIZE: usize = OFFSET;
    const ALIGN: usize = OFFSET;
    const REFERS: bool = true;

    #[inline]
    fn view(buffer: &[u8], at: usize) -> Option<Vector<'_, T>> {
        Vector::at(buffer, follow(buffer, at)?)
    }

    fn verify(verifier: &mut Verifier<'_>, at: usize) -> Result<(), Invalid> {
        let at = verifier.follow(at)?;
        let (first, count) = verifier.elements(at, T::SIZE, T::ALIGN)?;
        match T::REFERS {
            true => (0..count).try_for_each(|n| T::verify(verifier, first + n * T::SIZE)),
            false => Ok(()),
        }
    }
}

/// Iterator over the elements of a vector.
pub struct Iter<'a, T> {
    vector: Vector<'a, T>,
    next: usize,
}

impl<'a, T: Value> Iterator for Iter<'a, T> {
    type Item = T::View<'a>;

    fn next(&mut self) -> Option<T::View<'a>> {
        let element = self.vector.get(self.next)?;
        self.next += 1;
        Some(element)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.vector.len - self.next;
        // A malformed element ends the iteration; a verified vector has none.
        (0, Some(left))
    }
}

impl<T> Clone for Iter<'_, T> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<T> fmt::Debug for Iter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").field("next", &self.next).field("of", &self.vector.len).finish()
    }
}
