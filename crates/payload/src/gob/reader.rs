use std::collections::HashMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use serde::de::DeserializeOwned;

use super::dictionary::Dictionary;
use super::number::{Cursor, begin, end, put_int, uint};
use super::types::{Table, id};
use super::value_walk::{UnchangedNames, ValueWalk};
use super::{Error, Limits, Split, decode};

/// State of one direction of a received gob stream: the types that the peer has defined.
///
/// ```
/// use bytes::BytesMut;
/// use polyrpc_payload::gob::{Limits, Reader};
///
/// let mut reader = Reader::new(Limits::default());
/// let mut inbox = BytesMut::from(&b"\x08\x0c\x00\x05hel"[..]);
/// assert!(reader.next(&mut inbox)?.is_none());
/// assert_eq!(reader.wanted(), 9);
/// inbox.extend_from_slice(b"lo");
/// let value = reader.next(&mut inbox)?.expect("a whole value");
/// assert_eq!(value.decode::<String>()?, "hello");
/// # Ok::<(), polyrpc_payload::gob::Error>(())
/// ```
#[derive(Debug)]
pub struct Reader {
    limits: Limits,
    dictionary: Dictionary,
    wanted: usize,
    /// Definitions were received without their value.
    expects_value: bool,
    /// A value that started in earlier messages.
    open: Option<Box<Open>>,
    definitions_cache: TypeDefinitionsCache,
}

#[derive(Debug)]
struct Open {
    of: i32,
    walk: ValueWalk,
    taken: usize,
}

impl Reader {
    /// Whether a part of a value was taken whose other parts are further messages.
    pub fn is_within_value(&self) -> bool {
        self.open.is_some()
    }

    /// Creates a reader at the start of a stream.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            dictionary: Dictionary::default(),
            wanted: 0,
            expects_value: false,
            open: None,
            definitions_cache: TypeDefinitionsCache::default(),
        }
    }

    /// Removes the next top-level value from `inbox`; `None` if more bytes are needed.
    ///
    /// Type definitions are stored as they arrive. A value that cannot be decoded, because its type is missing for
    /// instance, is returned like any other, and reports the error when it is decoded: the stream stays usable.
    ///
    /// # Errors
    ///
    /// If the stream cannot continue: a message beyond the limit, a malformed definition, or new types before so many
    /// values that collecting their definitions would take much more time than the bytes received.
    pub fn next(&mut self, inbox: &mut BytesMut) -> Result<Option<Value>, Error> {
        while let Some(message) = self.message(inbox)? {
            if let Some(value) = self.take(message)? {
                self.expects_value = false;
                return Ok(Some(value));
            }
            self.expects_value = true;
        }
        Ok(None)
    }

    /// Returns how many bytes the inbox must hold before more can be read; 0 if unknown.
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// Whether a value has started and is incomplete: its type definitions, or a part of it, were received.
    pub fn is_mid_value(&self) -> bool {
        self.expects_value
    }

    /// Returns the approximate number of bytes held: defined types, and an incomplete value.
    pub fn held(&self) -> usize {
        let open = self.open.as_ref().map_or(0, |open| open.walk.held());
        self.dictionary.held() + CACHED_DEFINITIONS_OVERHEAD * self.definitions_cache.held() + open
    }

    /// Removes one message, including its length prefix.
    fn message(&mut self, inbox: &mut BytesMut) -> Result<Option<Bytes>, Error> {
        self.wanted = 0;
        let Some((length, width)) = uint(inbox)? else { return Ok(None) };
        let whole = usize::try_from(length)
            .ok()
            .filter(|&length| length <= self.limits.message)
            .and_then(|length| length.checked_add(width))
            .ok_or_else(|| Error::new(format!("a message of {length} bytes")))?;
        if inbox.len() < whole {
            self.wanted = whole;
            return Ok(None);
        }
        self.definitions_cache.received += whole;
        Ok(Some(inbox.split_to(whole).freeze()))
    }

    fn take(&mut self, message: Bytes) -> Result<Option<Value>, Error> {
        let mut cursor = Cursor::new(&message);
        cursor.uint()?;
        match self.open.take() {
            Some(open) => self.resume(open, &mut cursor),
            None if cursor.ahead().id()? < 0 => self.define(&mut cursor).map(|()| None),
            None => self.begin(&message),
        }
    }

    fn define(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Error> {
        self.dictionary.define(cursor, &self.limits)?;
        if cursor.is_empty() { Ok(()) } else { Err(Error::new("extra data in buffer")) }
    }

    fn begin(&mut self, message: &Bytes) -> Result<Option<Value>, Error> {
        let mut cursor = Cursor::new(message);
        cursor.uint()?;
        let of = cursor.id()?;
        if let Some(definitions) = self.definitions_cache.plain_definitions(of, &self.dictionary)? {
            return Ok(Some(Value { definitions, message: message.clone() }));
        }
        let mut walk = ValueWalk::new();
        let whole = walk.begin(of, &mut cursor, &mut self.dictionary, &UnchangedNames, &self.limits);
        match whole {
            Ok(true) => self.end(of, walk).map(Some),
            Ok(false) => {
                self.open = Some(Box::new(Open { of, walk, taken: message.len() }));
                Ok(None)
            }
            // The decoder will report the same error.
            Err(_) => {
                let definitions = self.definitions_cache.get_or_collect(&[of], &self.dictionary)?;
                Ok(Some(Value { definitions, message: message.clone() }))
            }
        }
    }

    fn resume(&mut self, mut open: Box<Open>, cursor: &mut Cursor<'_>) -> Result<Option<Value>, Error> {
        open.taken += cursor.len();
        if open.taken > self.limits.message {
            return Err(Error::new(format!("a value of {} bytes", open.taken)));
        }
        if open.walk.resume(cursor, &mut self.dictionary, &UnchangedNames, &self.limits)? {
            return self.end(open.of, open.walk).map(Some);
        }
        self.open = Some(open);
        Ok(None)
    }

    /// Returns a value in one piece, with all its definitions.
    fn end(&mut self, of: i32, walk: ValueWalk) -> Result<Value, Error> {
        let (content, mut types) = walk.finish();
        types.push(of);
        let mut message = Vec::with_capacity(content.len() + 8);
        let mark = begin(&mut message);
        put_int(&mut message, of.into());
        message.extend_from_slice(&content);
        end(&mut message, mark);
        types.sort_unstable();
        types.dedup();
        let definitions = self.definitions_cache.get_or_collect(&types, &self.dictionary)?;
        Ok(Value { definitions, message: message.into() })
    }
}

/// Memory of a definitions byte, including the table built from it.
const CACHED_DEFINITIONS_OVERHEAD: usize = 8;

/// A self-contained value: the definitions of its types, and its bytes. A clone shares both.
#[derive(Clone, Debug)]
pub struct Value {
    definitions: Arc<TypeDefinitions>,
    /// Including its length prefix.
    message: Bytes,
}

impl Value {
    /// Decodes it as a Rust value.
    ///
    /// # Errors
    ///
    /// If it is not compatible with `T` by Go's rules (`README.md`).
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let mut cursor = Cursor::new(&self.message);
        cursor.uint()?;
        let of = cursor.id()?;
        decode::value(&self.definitions.bytes, &self.definitions.table, of, cursor)
    }

    /// Returns a gob stream of this value alone: the definitions of its types, then the value.
    pub fn into_bytes(self) -> Bytes {
        if self.definitions.bytes.is_empty() {
            return self.message;
        }
        [&self.definitions.bytes[..], &self.message].concat().into()
    }
}

/// Definitions that a value needs.
#[derive(Debug, Default)]
struct TypeDefinitions {
    bytes: Vec<u8>,
    table: Table,
}

impl TypeDefinitions {
    /// Also returns whether the definitions are complete.
    fn collect(dictionary: &Dictionary, types: &[i32]) -> (Arc<Self>, bool) {
        let (bytes, complete) = dictionary.closure(types);
        (Self::from_bytes(bytes), complete)
    }

    fn from_bytes(bytes: Vec<u8>) -> Arc<Self> {
        // They were parsed before, one by one, and checked against the stream's limits.
        let limits = Limits { types: usize::MAX, definitions: usize::MAX, ..Limits::default() };
        let table = Split::parse(&bytes, &limits).map(|split| split.table).unwrap_or_default();
        Arc::new(Self { bytes, table })
    }
}

/// Cached definitions of the types of earlier values: of one type, or of one and those in its interfaces.
///
/// Types that refer to each other share definitions, so that those of all types together may be very much longer than
/// what the peer has sent: in a ring of 4,000 types, the definitions of each are the whole dictionary. The peer's bytes
/// therefore earn an allowance of work. When it is used up, values get the whole dictionary, which contains what they need
/// and is collected only once.
#[derive(Debug, Default)]
struct TypeDefinitionsCache {
    /// By the types' numbers, in order.
    known: HashMap<Box<[i32]>, Known>,
    /// For types that need no definitions.
    none: Arc<TypeDefinitions>,
    /// All definitions, and the number of types then.
    whole: Option<(Arc<TypeDefinitions>, usize)>,
    /// Bytes in `known`.
    bytes: usize,
    /// Bytes received so far.
    received: usize,
    /// Bytes of definitions collected so far.
    collected: usize,
}

#[derive(Debug)]
struct Known {
    definitions: Arc<TypeDefinitions>,
    /// Number of types when one was missing, which may have been defined since; `None` if none was.
    missing: Option<usize>,
}

impl Known {
    /// Memory of the entry of these types, with definitions as the stream had them.
    fn size(&self, types: &[i32]) -> usize {
        const ENTRY: usize = 128;
        ENTRY + size_of_val(types) + self.definitions.bytes.len()
    }
}

/// Bytes of definitions that may be collected for each received byte.
const COLLECTED_PER_BYTE: usize = 64;

/// Bytes of definitions that may be collected in any case.
const COLLECTED: usize = 1 << 20;

impl TypeDefinitionsCache {
    /// Returns the definitions of a type without interfaces, which could add more.
    fn plain_definitions(
        &mut self,
        of: i32,
        dictionary: &Dictionary,
    ) -> Result<Option<Arc<TypeDefinitions>>, Error> {
        if (0..id::INTERFACE).contains(&of) {
            return Ok(Some(self.none.clone()));
        }
        if dictionary.table().find(of).is_none() {
            return Ok(None);
        }
        let definitions = self.get_or_collect(&[of], dictionary)?;
        Ok((!definitions.table.is_dynamic()).then_some(definitions))
    }

    fn get_or_collect(
        &mut self,
        types: &[i32],
        dictionary: &Dictionary,
    ) -> Result<Arc<TypeDefinitions>, Error> {
        let there_are = dictionary.table().len();
        if let Some(known) = self.known.get(types)
            && known.missing.is_none_or(|there_were| there_were == there_are)
        {
            return Ok(known.definitions.clone());
        }
        let allowance = COLLECTED.saturating_add(self.received.saturating_mul(COLLECTED_PER_BYTE));
        if self.collected > allowance {
            return self.all_definitions(dictionary, allowance);
        }
        let (definitions, complete) = TypeDefinitions::collect(dictionary, types);
        self.collected += definitions.bytes.len();
        let known = Known { definitions: definitions.clone(), missing: (!complete).then_some(there_are) };
        // Many types that refer to each other would exceed the stream's limit many times, and so would many types that are
        // not defined, whose definitions are empty.
        let size = known.size(types);
        if self.bytes + size > 4 * dictionary.bytes().len().max(4 << 10) {
            self.known.clear();
            self.bytes = 0;
        }
        self.bytes += size;
        if let Some(replaced) = self.known.insert(types.into(), known) {
            self.bytes -= replaced.size(types);
        }
        Ok(definitions)
    }

    /// Returns all definitions. They are collected again when there are more types, as often as another allowance
    /// permits.
    #[cold]
    fn all_definitions(
        &mut self,
        dictionary: &Dictionary,
        allowance: usize,
    ) -> Result<Arc<TypeDefinitions>, Error> {
        let there_are = dictionary.table().len();
        if let Some((whole, there_were)) = &self.whole
            && *there_were == there_are
        {
            return Ok(whole.clone());
        }
        if self.collected > allowance.saturating_mul(2) {
            return Err(Error::new("too many types that refer to each other are defined between values"));
        }
        let whole = TypeDefinitions::from_bytes(dictionary.bytes().to_vec());
        self.collected += whole.bytes.len();
        self.whole = Some((whole.clone(), there_are));
        Ok(whole)
    }

    /// Returns the bytes of the definitions that it holds.
    fn held(&self) -> usize {
        self.bytes + self.whole.as_ref().map_or(0, |(whole, _)| whole.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::IgnoredAny;

    use crate::gob::number::put_bytes;
    use crate::gob::types::{self, Shape};

    /// Defines a slice of another type.
    fn define(of: i32, elem: i32, inbox: &mut BytesMut) {
        let mut definition = Vec::new();
        types::define(&mut definition, of, "Name", &Shape::Slice { elem });
        inbox.extend_from_slice(&definition);
    }

    /// An empty value of a slice type.
    fn empty(of: i32, inbox: &mut BytesMut) {
        let (mut content, mut message) = (Vec::new(), Vec::new());
        put_int(&mut content, of.into());
        content.extend_from_slice(&[0, 0]);
        put_bytes(&mut message, &content);
        inbox.extend_from_slice(&message);
    }

    #[test]
    fn definitions_of_types_in_a_ring_are_collected_in_proportion_to_the_bytes_received() {
        const TYPES: i32 = 4000;
        let (mut reader, mut inbox) = (Reader::new(Limits::default()), BytesMut::new());
        (0..TYPES).for_each(|n| define(100 + n, 100 + (n + 1) % TYPES, &mut inbox));
        for n in 0..4_000 {
            empty(100 + n % 200, &mut inbox);
            let value = reader.next(&mut inbox).unwrap().expect("a value");
            if n % 500 == 0 {
                // The whole dictionary serves as well as the type's own definitions.
                assert!(value.decode::<IgnoredAny>().is_ok());
                assert!(crate::gob::from_slice::<IgnoredAny>(&value.into_bytes()).is_ok());
            }
        }
        let cache = &reader.definitions_cache;
        let most = COLLECTED + 3 * (256 << 10) + COLLECTED_PER_BYTE * cache.received;
        // 400 MB before.
        assert!(cache.collected <= most, "{} for {} bytes", cache.collected, cache.received);
        assert!(cache.held() <= 6 * (256 << 10), "{}", cache.held());
    }

    #[test]
    fn stream_that_defines_a_type_of_a_chain_before_each_value_is_ended_or_cheap() {
        let (mut reader, mut inbox) = (Reader::new(Limits::default()), BytesMut::new());
        define(100, 2, &mut inbox);
        let mut ended = None;
        for n in 101..4000 {
            define(n, n - 1, &mut inbox);
            empty(n, &mut inbox);
            if let Err(error) = reader.next(&mut inbox) {
                ended = Some(error.to_string());
                break;
            }
        }
        let cache = &reader.definitions_cache;
        let most = 2 * (COLLECTED + COLLECTED_PER_BYTE * cache.received) + (256 << 10);
        assert!(cache.collected <= most, "{} for {} bytes", cache.collected, cache.received);
        assert!(ended.is_some_and(|why| why.contains("refer to each other")));
    }

    #[test]
    fn many_types_with_a_large_one_in_common_are_served_without_an_end() {
        let (mut reader, mut inbox) = (Reader::new(Limits::default()), BytesMut::new());
        define(100, 2, &mut inbox);
        (101..1000).for_each(|n| define(n, n - 1, &mut inbox));
        (1000..1500).for_each(|n| define(n, 999, &mut inbox));
        for n in 0..10_000 {
            empty(1000 + n % 500, &mut inbox);
            assert!(reader.next(&mut inbox).unwrap().is_some());
        }
    }
}
