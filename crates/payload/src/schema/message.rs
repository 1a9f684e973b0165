use std::collections::HashMap;

use super::{Field, MessageId};

/// A message and its fields.
#[derive(Debug, Clone)]
pub struct MessageType {
    pub(super) id: MessageId,
    pub(super) full_name: Box<str>,
    /// Declared fields, then extensions in the order of their numbers.
    pub(super) fields: Vec<Field>,
    pub(super) oneofs: u32,
    pub(super) map_entry: bool,
    pub(super) has_required: bool,
    pub(super) well_known: Option<WellKnown>,
    pub(super) numbers: Numbers,
    pub(super) names: Names,
}

impl MessageType {
    /// Returns its identifier within its pool.
    pub fn id(&self) -> MessageId {
        self.id
    }

    /// Returns the fully qualified name: `example.EchoRequest`.
    pub fn full_name(&self) -> &str {
        &self.full_name
    }

    /// Returns the unqualified name: `EchoRequest`.
    pub fn name(&self) -> &str {
        self.full_name.rsplit('.').next().unwrap_or_default()
    }

    /// Returns the fields in the order of their declaration, then extensions in the order of their numbers.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Returns the field or extension with this number.
    pub fn field(&self, number: u32) -> Option<&Field> {
        self.index_of(number).and_then(|index| self.fields.get(index as usize))
    }

    /// Returns the field with this declared name, or the extension with this full name in brackets.
    pub fn field_named(&self, name: &str) -> Option<&Field> {
        self.names.declared.get(name).and_then(|&index| self.fields.get(index as usize))
    }

    /// Returns the number of `oneof`s, without those of a proto3 `optional`.
    pub fn oneofs(&self) -> usize {
        self.oneofs as usize
    }

    /// Whether it is the entry of a map.
    pub fn is_map_entry(&self) -> bool {
        self.map_entry
    }

    /// Whether it, or any message inside it, has a required field.
    pub fn has_required(&self) -> bool {
        self.has_required
    }

    /// Returns which well-known message it is, if any.
    pub fn well_known(&self) -> Option<WellKnown> {
        self.well_known
    }

    /// Whether JSON's null is one of its values, and not its absence: so in `google.protobuf.Value` only.
    pub(crate) fn takes_null(&self) -> bool {
        self.well_known == Some(WellKnown::Value)
    }

    #[inline]
    pub(crate) fn index_of(&self, number: u32) -> Option<u32> {
        self.numbers.index(number)
    }

    /// Returns the index of the field named `key` in a format's `spelling` of names. The search starts at `hint`, since
    /// keys usually follow the order of declaration.
    pub fn index_spelled(&self, spelling: Spelling, key: &str, hint: usize) -> Option<u32> {
        match self.fields.get(hint) {
            Some(field) if spelling.name(field) == key => Some(hint as u32),
            _ => self.names.index(spelling, key).filter(|&index| match spelling {
                // A name with `_Z045_` in it is not found under its declared name.
                Spelling::Brpc => {
                    self.fields.get(index as usize).is_some_and(|field| field.brpc_name() == key)
                }
                _ => true,
            }),
        }
    }
}

/// Naming convention for fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// ProtoJSON: JSON names and declared names.
    Json,
    /// brpc's JSON.
    Brpc,
    /// The text format: declared names, but a group is named by its type.
    Text,
    /// Go's: declared names, or else case-insensitive matches, also in CamelCase.
    Go,
}

impl Spelling {
    /// Returns the name of a field in this convention.
    pub fn name(self, field: &Field) -> &str {
        match self {
            Self::Json => field.json_name(),
            Self::Brpc => field.brpc_name(),
            Self::Text => field.text_name(),
            Self::Go => field.name(),
        }
    }
}

/// Index of fields by number: a table for small numbers, a search for the rest.
#[derive(Debug, Clone, Default)]
pub(super) struct Numbers {
    /// Field index plus one; 0 for none.
    dense: Vec<u32>,
    sparse: Vec<(u32, u32)>,
}

impl Numbers {
    /// # Errors
    ///
    /// A number that occurs twice.
    pub(super) fn new(fields: &[Field]) -> Result<Self, u32> {
        let limit = fields.len().saturating_mul(4) + 16;
        let length = fields.iter().map(|field| field.number as usize + 1).filter(|&n| n <= limit).max();
        let mut numbers = Self { dense: vec![0; length.unwrap_or(0)], sparse: Vec::new() };
        for (index, field) in fields.iter().enumerate() {
            match numbers.dense.get_mut(field.number as usize) {
                Some(slot) if *slot != 0 => return Err(field.number),
                Some(slot) => *slot = index as u32 + 1,
                None => numbers.sparse.push((field.number, index as u32)),
            }
        }
        numbers.sparse.sort_unstable();
        match numbers.sparse.windows(2).find(|pair| matches!(pair, [a, b] if a.0 == b.0)) {
            Some(pair) => Err(pair[0].0),
            None => Ok(numbers),
        }
    }

    #[inline]
    fn index(&self, number: u32) -> Option<u32> {
        match self.dense.get(number as usize) {
            Some(index) => index.checked_sub(1),
            None => {
                let at = self.sparse.binary_search_by_key(&number, |&(number, _)| number).ok()?;
                self.sparse.get(at).map(|&(_, index)| index)
            }
        }
    }
}

/// Index of fields by name. All maps but `declared` contain only names that differ from it.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    declared: HashMap<Box<str>, u32>,
    json: HashMap<Box<str>, u32>,
    brpc: HashMap<Box<str>, u32>,
    text: HashMap<Box<str>, u32>,
    /// In lower case: declared names, and those of protoc-gen-go.
    folded: HashMap<Box<str>, u32>,
}

impl Names {
    /// # Errors
    ///
    /// A name that occurs twice.
    pub(super) fn new(fields: &[Field]) -> Result<Self, Box<str>> {
        let mut names = Self::default();
        for (index, field) in fields.iter().enumerate() {
            if names.declared.insert(field.name.clone(), index as u32).is_some() {
                return Err(field.name.clone());
            }
        }
        for (index, field) in fields.iter().enumerate() {
            let index = index as u32;
            if field.json_name != field.name {
                names.json.entry(field.json_name.clone()).or_insert(index);
            }
            if field.brpc_name != field.name {
                names.brpc.entry(field.brpc_name.clone()).or_insert(index);
            }
            if field.text_name != field.name {
                names.text.entry(field.text_name.clone()).or_insert(index);
            }
            if !field.extension {
                names.folded.entry(field.name.to_ascii_lowercase().into()).or_insert(index);
            }
        }
        for (index, field) in fields.iter().enumerate().filter(|(_, field)| !field.extension) {
            names.folded.entry(fold_camel_case(&field.name).into()).or_insert(index as u32);
        }
        Ok(names)
    }

    fn index(&self, spelling: Spelling, key: &str) -> Option<u32> {
        let declared = || self.declared.get(key);
        match spelling {
            Spelling::Json => declared().or_else(|| self.json.get(key)),
            Spelling::Text => declared().or_else(|| self.text.get(key)),
            Spelling::Brpc => self.brpc.get(key).or_else(declared),
            Spelling::Go => declared().or_else(|| self.index_folded(key)),
        }
        .copied()
    }

    fn index_folded(&self, key: &str) -> Option<&u32> {
        // Longer names are not worth a stack buffer.
        let mut buffer = [0; 64];
        match buffer.get_mut(..key.len()) {
            Some(folded) => {
                folded.copy_from_slice(key.as_bytes());
                folded.make_ascii_lowercase();
                self.folded.get(std::str::from_utf8(folded).ok()?)
            }
            None => self.folded.get(key.to_ascii_lowercase().as_str()),
        }
    }
}

/// Returns the Go struct's field name (protobuf-go `internal/strs.GoCamelCase`), in lower case: underscores before a
/// lower-case letter are removed, and a leading one becomes an `X`.
fn fold_camel_case(name: &str) -> String {
    let bytes = name.as_bytes();
    let mut out = String::with_capacity(name.len());
    for (i, c) in name.char_indices() {
        match c {
            '_' if i == 0 => out.push('x'),
            '_' if bytes.get(i + 1).is_some_and(u8::is_ascii_lowercase) => {}
            c => out.push(c.to_ascii_lowercase()),
        }
    }
    out
}

/// A message with a special representation in ProtoJSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WellKnown {
    /// `google.protobuf.Any`.
    Any,
    /// `google.protobuf.Timestamp`.
    Timestamp,
    /// `google.protobuf.Duration`.
    Duration,
    /// `google.protobuf.FieldMask`.
    FieldMask,
    /// `google.protobuf.Struct`.
    Struct,
    /// `google.protobuf.Value`.
    Value,
    /// `google.protobuf.ListValue`.
    ListValue,
    /// One of the wrapper messages of a single scalar.
    Wrapper,
    /// No special representation, except within an `Any`.
    Empty,
}

impl WellKnown {
    /// Whether it differs from a message of the same fields: all but `Empty`, which has none.
    pub(crate) fn has_own_form(self) -> bool {
        self != Self::Empty
    }

    pub(super) fn from_full_name(full_name: &str) -> Option<Self> {
        Some(match full_name.strip_prefix("google.protobuf.")? {
            "Any" => Self::Any,
            "Timestamp" => Self::Timestamp,
            "Duration" => Self::Duration,
            "FieldMask" => Self::FieldMask,
            "Struct" => Self::Struct,
            "Value" => Self::Value,
            "ListValue" => Self::ListValue,
            "Empty" => Self::Empty,
            "DoubleValue" | "FloatValue" | "Int64Value" | "UInt64Value" | "Int32Value" | "UInt32Value"
            | "BoolValue" | "StringValue" | "BytesValue" => Self::Wrapper,
            _ => return None,
        })
    }
}

/// Set of small numbers, such as indices of fields.
#[derive(Debug, Default)]
pub(crate) struct FieldSet {
    few: u64,
    /// Numbers from 64 on.
    more: Vec<u64>,
}

impl FieldSet {
    /// Adds a number. Returns whether it is new.
    pub(crate) fn insert(&mut self, number: u32) -> bool {
        let new = !self.contains(number);
        match (number / 64).checked_sub(1) {
            None => self.few |= bit(number),
            Some(word) => {
                let word = word as usize;
                if self.more.len() <= word {
                    self.more.resize(word + 1, 0);
                }
                self.more[word] |= bit(number);
            }
        }
        new
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        let word = match (number / 64).checked_sub(1) {
            None => self.few,
            Some(word) => self.more.get(word as usize).copied().unwrap_or(0),
        };
        word & bit(number) != 0
    }
}

fn bit(number: u32) -> u64 {
    1 << (number % 64)
}
