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
    /// If the stream cannot continue: a message beyond the limit, a malformed definition.
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
    pub fn mid_value(&self) -> bool {
        self.expects_value
    }

    /// Returns the approximate number of bytes held: defined types, and an incomplete value.
    pub fn held(&self) -> usize {
        let open = self.open.as_ref().map_or(0, |open| open.walk.held());
        self.dictionary.held() + CACHED_DEFINITIONS_OVERHEAD * self.definitions_cache.bytes + open
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
        if let Some(definitions) = self.definitions_cache.plain(of, &self.dictionary) {
            return Ok(Some(Value { definitions, message: message.clone() }));
        }
        let mut walk = ValueWalk::new();
        let whole = walk.begin(of, &mut cursor, &mut self.dictionary, &UnchangedNames, &self.limits);
        match whole {
            Ok(true) => Ok(Some(self.end(of, walk))),
            Ok(false) => {
                self.open = Some(Box::new(Open { of, walk, taken: message.len() }));
                Ok(None)
            }
            // The decoder will report the same error.
            Err(_) => {
                let definitions = self.definitions_cache.of(&[of], &self.dictionary);
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
            return Ok(Some(self.end(open.of, open.walk)));
        }
        self.open = Some(open);
        Ok(None)
    }

    /// Returns a value in one piece, with all its definitions.
    fn end(&mut self, of: i32, walk: ValueWalk) -> Value {
        let (content, mut types) = walk.finish();
        types.push(of);
        let mut message = Vec::with_capacity(content.len() + 8);
        let mark = begin(&mut message);
        put_int(&mut message, of.into());
        message.extend_from_slice(&content);
        end(&mut message, mark);
        types.sort_unstable();
        types.dedup();
        Value { definitions: self.definitions_cache.of(&types, &self.dictionary), message: message.into() }
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
    fn of(dictionary: &Dictionary, types: &[i32]) -> (Arc<Self>, bool) {
        let (bytes, complete) = dictionary.closure(types);
        // They were parsed before, one by one, and checked against the stream's limits.
        let limits = Limits { types: usize::MAX, definitions: usize::MAX, ..Limits::default() };
        let table = Split::of(&bytes, &limits).map(|split| split.table).unwrap_or_default();
        (Arc::new(Self { bytes, table }), complete)
    }
}

/// Cached definitions of the types of earlier values: of one type, or of one and those in its interfaces.
#[derive(Debug, Default)]
struct TypeDefinitionsCache {
    /// By the types' numbers, in order.
    known: HashMap<Box<[i32]>, Known>,
    /// For types that need no definitions.
    none: Arc<TypeDefinitions>,
    bytes: usize,
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

impl TypeDefinitionsCache {
    /// Returns the definitions of a type without interfaces, which could add more.
    fn plain(&mut self, of: i32, dictionary: &Dictionary) -> Option<Arc<TypeDefinitions>> {
        if (0..id::INTERFACE).contains(&of) {
            return Some(self.none.clone());
        }
        dictionary.table().find(of)?;
        let definitions = self.of(&[of], dictionary);
        (!definitions.table.is_dynamic()).then_some(definitions)
    }

    fn of(&mut self, types: &[i32], dictionary: &Dictionary) -> Arc<TypeDefinitions> {
        let there_are = dictionary.table().len();
        if let Some(known) = self.known.get(types)
            && known.missing.is_none_or(|there_were| there_were == there_are)
        {
            return known.definitions.clone();
        }
        let (definitions, complete) = TypeDefinitions::of(dictionary, types);
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
        definitions
    }
}
