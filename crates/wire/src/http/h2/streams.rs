use super::stream::Stream;

/// The streams of a connection that are neither idle nor closed.
///
/// Identifiers only grow, so that a list in their order allows binary search, grows at its end, and mostly shrinks near
/// its start; the streams themselves stay in their slots.
#[derive(Debug)]
pub(super) struct Streams<T> {
    /// Identifier and slot of each stream, ordered by identifier.
    order: Vec<(u32, u32)>,
    slots: Vec<Option<Stream<T>>>,
    free: Vec<u32>,
}

impl<T> Default for Streams<T> {
    fn default() -> Self {
        Self { order: Vec::new(), slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Streams<T> {
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Adds a stream, whose identifier must be above all others.
    pub(super) fn insert(&mut self, id: u32, stream: Stream<T>) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize] = Some(stream);
        self.order.push((id, slot));
    }

    pub(super) fn get(&self, id: u32) -> Option<&Stream<T>> {
        let at = self.position(id)?;
        self.slots[self.order[at].1 as usize].as_ref()
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Stream<T>> {
        let at = self.position(id)?;
        self.slots[self.order[at].1 as usize].as_mut()
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<Stream<T>> {
        let at = self.position(id)?;
        let (_, slot) = self.order.remove(at);
        self.free.push(slot);
        let stream = self.slots[slot as usize].take();
        if self.order.is_empty() {
            self.shrink();
        }
        stream
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream<T>> {
        self.slots.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream<T>> {
        self.slots.iter_mut().flatten()
    }

    /// Iterates over the streams and their identifiers, in order of the identifiers.
    pub(super) fn iter_with_ids(&self) -> impl Iterator<Item = (u32, &Stream<T>)> {
        self.order.iter().filter_map(|&(id, slot)| Some((id, self.slots[slot as usize].as_ref()?)))
    }

    /// Releases the memory of a connection that once had very many streams.
    fn shrink(&mut self) {
        if self.slots.len() > KEPT {
            *self = Self::default();
        }
    }

    fn position(&self, id: u32) -> Option<usize> {
        // Most responses concern the oldest stream, most frames the newest.
        match (self.order.first(), self.order.last()) {
            (Some((first, _)), _) if *first == id => Some(0),
            (_, Some((last, _))) if *last == id => Some(self.order.len() - 1),
            _ => self.order.binary_search_by_key(&id, |(id, _)| *id).ok(),
        }
    }
}

const KEPT: usize = 64;
