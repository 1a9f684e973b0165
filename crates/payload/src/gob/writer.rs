use std::any::TypeId;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use polyrpc_core::append::append;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::dictionary::Dictionary;
use super::number::{Cursor, begin, end, put_int};
use super::types::{Definition, Kind, Shape, Table, define, id};
use super::value_walk::{Names, ValueWalk};
use super::{Error, Limits, Split, encode, read_sole, schema_of_type, to_vec};

/// State of one direction of a sent gob stream: the types that the peer knows.
///
/// ```
/// use polyrpc_payload::gob;
/// use polyrpc_payload::gob::Writer;
///
/// let (mut writer, mut out) = (Writer::new(), Vec::new());
/// writer.value(&gob::to_vec(&vec![1u64, 2])?, &mut out)?;
/// assert_eq!(out, b"\x0b\x7f\x02\x01\x02\xff\x80\x00\x01\x06\x00\x00\x06\xff\x80\x00\x02\x01\x02");
/// out.clear();
/// // The type is known by now.
/// writer.encode(&vec![3u64], &mut out)?;
/// assert_eq!(out, b"\x05\xff\x80\x00\x01\x03");
/// # Ok::<(), gob::Error>(())
/// ```
#[derive(Debug)]
pub struct Writer {
    dictionary: Dictionary,
    next: i32,
    /// Numbers of Rust types.
    types: HashMap<TypeId, i32>,
    /// Renamings for the types of these definitions.
    definitions_cache: HashMap<Box<[u8]>, Arc<Renaming>>,
}

/// The peer's decoder keeps all definitions, so that there must be a limit.
const LIMITS: fn() -> Limits = || Limits { definitions: 16 << 20, types: 1 << 16, ..Limits::default() };

/// Number of different definitions that are cached. There are few, unless the application forwards received values.
const MAX_CACHED_DEFINITIONS: usize = 1024;

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

impl Writer {
    /// Creates a writer at the start of a stream.
    pub fn new() -> Self {
        Self::starting_at(id::FIRST)
    }

    /// Creates a writer that numbers its types from `next` on.
    pub(super) fn starting_at(next: i32) -> Self {
        let (types, definitions_cache) = (HashMap::new(), HashMap::new());
        Self { dictionary: Dictionary::default(), next, types, definitions_cache }
    }

    /// Appends the value of a separate stream, as created by [`to_vec`] and
    /// [`Value::into_bytes`](super::Value::into_bytes): its types get the numbers of this stream, and known types are
    /// not defined again.
    ///
    /// # Errors
    ///
    /// If `body` is not such a stream. Nothing is appended then.
    pub fn value(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let (definitions, of) = definitions(body)?;
        let known = self.definitions_cache.get(definitions);
        // The definitions do not show the content of a top-level interface.
        if let Some(renaming) = known.filter(|renaming| !renaming.dynamic && of != id::INTERFACE) {
            return write_plain(body.get(definitions.len()..).unwrap_or_default(), renaming, out);
        }
        self.write_unknown(body, out)
    }

    /// Appends a Rust value.
    ///
    /// # Errors
    ///
    /// See [`to_vec`]. Nothing is appended then.
    pub fn encode<T>(&mut self, value: &T, out: &mut Vec<u8>) -> Result<(), Error>
    where
        T: Serialize + DeserializeOwned + 'static,
    {
        let description: Rc<_> = schema_of_type::description::<T>()?;
        match self.types.get(&TypeId::of::<T>()) {
            Some(&of) => encode::message(value, &description, of, out),
            None if description.is_dynamic() => self.value(&to_vec(value)?, out),
            None => {
                let body = to_vec(value)?;
                self.value(&body, out)?;
                let renaming = self.definitions_cache.get(description.definitions());
                let of = renaming.and_then(|renaming| renaming.name(description.id()).ok());
                self.types.extend(of.map(|of| (TypeId::of::<T>(), of)));
                Ok(())
            }
        }
    }

    #[cold]
    fn write_unknown(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let limits = LIMITS();
        let split = Split::parse(body, &limits)?;
        if split.is_plain() {
            let renaming = self.adopt(split.definitions, &split.table, out)?;
            write_plain(split.rest, &renaming, out)
        } else {
            self.write_dynamic(&read_sole(body, limits)?.into_bytes(), out)
        }
    }

    /// Appends a value that contains types, too.
    fn write_dynamic(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let limits = LIMITS();
        let split = Split::parse(body, &limits)?;
        let (of, mut content) = split.value()?;
        // First unchanged, to check whether it is complete.
        let mut check = Dictionary::default();
        let mut definitions = Cursor::new(split.definitions);
        while !definitions.is_empty() {
            check.define(&mut Cursor::new(definitions.bytes()?), &limits)?;
        }
        let same = ValueWalk::new().begin(
            of,
            &mut content.ahead(),
            &mut check,
            &super::value_walk::UnchangedNames,
            &limits,
        )?;
        if !same {
            return Err(Error::truncated());
        }
        let renaming = self.adopt(split.definitions, &split.table, out)?;
        let mut walk = ValueWalk::new();
        walk.begin(of, &mut content, &mut check, &*renaming, &limits)?;
        let mark = begin(out);
        put_int(out, renaming.name(of)?.into());
        append(out, &walk.finish().0);
        end(out, mark);
        Ok(())
    }

    /// Assigns numbers to types here, and defines new ones.
    fn adopt(
        &mut self,
        definitions: &[u8],
        table: &Table,
        out: &mut Vec<u8>,
    ) -> Result<Arc<Renaming>, Error> {
        if let Some(known) = self.definitions_cache.get(definitions) {
            return Ok(known.clone());
        }
        let theirs = Types { bytes: definitions, table };
        let mut renaming = Renaming { ids: Vec::new(), dynamic: table.is_dynamic() };
        let (mut new, mut comparisons_left) = (Vec::new(), MAX_COMPARISONS);
        let mut all: Vec<_> = table.definitions().collect();
        all.sort_unstable_by_key(|definition| definition.id);
        for definition in all {
            let here = match self.find(&theirs, definition, &mut comparisons_left) {
                Some(known) => known,
                None => {
                    new.push(*definition);
                    self.next += 1;
                    self.next - 1
                }
            };
            renaming.ids.push((definition.id, here));
        }
        // They keep the order of the other stream.
        new.sort_unstable_by_key(|definition| Table::message(definition).start);
        for definition in new {
            self.define(&theirs, &definition, &renaming, out)?;
        }
        if self.definitions_cache.len() >= MAX_CACHED_DEFINITIONS {
            self.definitions_cache.clear();
        }
        let renaming = Arc::new(renaming);
        self.definitions_cache.insert(definitions.into(), renaming.clone());
        Ok(renaming)
    }

    /// Finds an equal type that was sent already. Once `comparisons_left` is 0, every type counts as new: a peer could
    /// make the comparison of deeply composed types take arbitrarily long.
    fn find(&self, theirs: &Types<'_>, definition: &Definition, comparisons_left: &mut usize) -> Option<i32> {
        let ours = Types { bytes: self.dictionary.bytes(), table: self.dictionary.table() };
        let mut all = ours.table.definitions().map(|each| each.id);
        all.find(|&id| same((theirs, definition.id), (&ours, id), comparisons_left))
    }

    fn define(
        &mut self,
        theirs: &Types<'_>,
        definition: &Definition,
        names: &Renaming,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let fields: Vec<_>;
        // A type that they did not define, we cannot define either; its number stays undefined.
        let name = |id| names.name(id).unwrap_or_default();
        let shape = match definition.kind {
            Kind::Array { elem, len } => Shape::Array { elem: name(elem), len },
            Kind::Slice { elem } => Shape::Slice { elem: name(elem) },
            Kind::Map { key, elem } => Shape::Map { key: name(key), elem: name(elem) },
            Kind::Struct(of) => {
                let theirs = theirs.table.fields(theirs.bytes, of);
                fields = theirs.map(|(field, id)| (field, name(id))).collect();
                Shape::Struct(&fields)
            }
            Kind::Opaque(opaque) => Shape::Opaque(opaque),
            _ => return Err(Error::unknown_type()),
        };
        let start = out.len();
        define(out, names.name(definition.id)?, theirs.table.name(theirs.bytes, definition), &shape);
        let message = Cursor::new(out.get(start..).unwrap_or_default()).bytes()?;
        self.dictionary.define(&mut Cursor::new(message), &LIMITS())
    }
}

/// Number of type pairs compared per value: a few hundred types with each other, in a few milliseconds.
const MAX_COMPARISONS: usize = 1 << 16;

/// Mapping of the types of one stream to another.
#[derive(Debug)]
struct Renaming {
    /// By their numbers in the other stream.
    ids: Vec<(i32, i32)>,
    /// Their values contain types, too.
    dynamic: bool,
}

impl Names for Renaming {
    fn name(&self, id: i32) -> Result<i32, Error> {
        if (id::BOOL..=id::INTERFACE).contains(&id) {
            return Ok(id);
        }
        let index = self.ids.binary_search_by_key(&id, |&(there, _)| there);
        let name = index.ok().and_then(|index| self.ids.get(index));
        name.map(|&(_, here)| here).ok_or_else(Error::unknown_type)
    }
}

/// Appends a message whose value contains no types, with its type's number here.
fn write_plain(message: &[u8], names: &Renaming, out: &mut Vec<u8>) -> Result<(), Error> {
    let mut cursor = Cursor::new(message);
    let mut content = Cursor::new(cursor.bytes()?);
    if !cursor.is_empty() {
        return Err(Error::new("bytes follow the value"));
    }
    let of = names.name(content.id()?)?;
    let mark = begin(out);
    put_int(out, of.into());
    append(out, content.rest());
    end(out, mark);
    Ok(())
}

/// Returns the definitions before a value, and the value's type.
fn definitions(body: &[u8]) -> Result<(&[u8], i32), Error> {
    let mut rest = Cursor::new(body);
    loop {
        let at = body.len() - rest.len();
        let id = Cursor::new(rest.bytes()?).id()?;
        if id >= 0 {
            return Ok((body.get(..at).unwrap_or_default(), id));
        }
    }
}

/// Definitions, and their parsed form.
struct Types<'a> {
    bytes: &'a [u8],
    table: &'a Table,
}

/// Whether two types are equal: the same kind, names, and inner types. Recursive types are equal unless a difference is
/// found.
fn same(left: (&Types<'_>, i32), right: (&Types<'_>, i32), comparisons_left: &mut usize) -> bool {
    let ((left, first), (right, second)) = (left, right);
    let mut waiting = vec![(first, second)];
    let mut seen = HashSet::new();
    while let Some((one, other)) = waiting.pop() {
        if !seen.insert((one, other)) {
            continue;
        }
        match comparisons_left.checked_sub(1) {
            Some(left) => *comparisons_left = left,
            None => return false,
        }
        match (left.table.find(one), right.table.find(other)) {
            (None, None) if one == other => {}
            (Some(a), Some(b)) if has_same_shape((left, a), (right, b)) => {
                waiting.extend(left.table.inner(a.kind).zip(right.table.inner(b.kind)));
            }
            _ => return false,
        }
    }
    true
}

/// Whether two types are equal except for their inner types.
fn has_same_shape((left, one): (&Types<'_>, &Definition), (right, other): (&Types<'_>, &Definition)) -> bool {
    let called_the_same = || left.table.name(left.bytes, one) == right.table.name(right.bytes, other);
    match (one.kind, other.kind) {
        (Kind::Struct(a), Kind::Struct(b)) => {
            let ours = left.table.fields(left.bytes, a).map(|(name, _)| name);
            let theirs = right.table.fields(right.bytes, b).map(|(name, _)| name);
            called_the_same() && ours.eq(theirs)
        }
        // Go's names of these depend on where it encountered them first.
        (Kind::Slice { .. }, Kind::Slice { .. }) | (Kind::Map { .. }, Kind::Map { .. }) => true,
        (Kind::Array { len: a, .. }, Kind::Array { len: b, .. }) => a == b,
        (Kind::Opaque(a), Kind::Opaque(b)) => a == b && called_the_same(),
        _ => false,
    }
}
