//! Gob descriptions of Rust types.

use std::borrow::Cow;

use super::Error;
use super::types::{self, Opaque, Shape, id};

/// Description of a type: its structure, and the definitions for the peer.
#[derive(Debug, Default)]
pub(super) struct Description {
    kinds: Vec<Kind>,
    /// Numbers of the types of `kinds` in `definitions`.
    ids: Vec<i32>,
    top: Type,
    definitions: Vec<u8>,
    /// For values whose type only the value shows.
    any: Option<Any>,
    /// It was inferred from one value, and describes only what that value contains.
    is_inferred: bool,
}

/// A type within a description.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Type {
    Bool,
    Int,
    Uint,
    /// An integer whose lists are bytes.
    Byte,
    Float,
    Bytes,
    String,
    Complex,
    /// An interface that holds any value.
    #[default]
    Any,
    /// One of `kinds`.
    At(u32),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Struct {
        name: &'static str,
        fields: Vec<Field>,
    },
    Array(Type, u64),
    Slice(Type),
    Map(Type, Type),
    Time,
    /// A self-encoding type: its name in Go, and its method.
    SelfEncoded(&'static str, Opaque),
    /// An enum: an interface that holds one of these types.
    Choice(Vec<Variant>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    pub(super) name: Cow<'static, str>,
    pub(super) of: Type,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Variant {
    pub(super) name: &'static str,
    pub(super) of: Type,
}

/// Types of lists and maps with arbitrary elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Any {
    pub(super) list: i32,
    pub(super) map: i32,
}

impl Description {
    pub(super) fn new_inferred(kinds: Vec<Kind>, top: Type) -> Self {
        Self { is_inferred: true, ..Self::new(kinds, top) }
    }

    pub(super) fn new(kinds: Vec<Kind>, top: Type) -> Self {
        let mut numbers = Numbers {
            kinds: &kinds,
            ids: vec![0; kinds.len()],
            entered: vec![false; kinds.len()],
            next: id::FIRST,
        };
        numbers.number(top);
        let (ids, next) = (numbers.ids, numbers.next);
        let definitions = Vec::new();
        let mut description = Self { kinds, ids, top, definitions, any: None, is_inferred: false };
        description.define();
        if description.holds_anything() {
            description.define_any(next);
        }
        description
    }

    /// Returns the definitions, ready to be sent.
    pub(super) fn definitions(&self) -> &[u8] {
        &self.definitions
    }

    pub(super) fn top(&self) -> Type {
        self.top
    }

    /// Returns the type's number in [`definitions`](Self::prelude).
    pub(super) fn id(&self) -> i32 {
        self.id_of(self.top)
    }

    pub(super) fn id_of(&self, of: Type) -> i32 {
        number(of, &self.kinds, &self.ids)
    }

    pub(super) fn kind(&self, at: u32) -> Result<&Kind, Error> {
        self.kinds.get(at as usize).ok_or_else(Error::unknown_type)
    }

    pub(super) fn is_struct(&self, of: Type) -> bool {
        matches!(of, Type::At(at) if matches!(self.kind(at), Ok(Kind::Struct { .. })))
    }

    /// Whether its values contain types, in part.
    pub(super) fn is_dynamic(&self) -> bool {
        self.any.is_some() || self.kinds.iter().any(|kind| matches!(kind, Kind::Choice(_)))
    }

    pub(super) fn is_inferred(&self) -> bool {
        self.is_inferred
    }

    pub(super) fn any(&self) -> Result<Any, Error> {
        self.any.ok_or_else(Error::unknown_type)
    }

    fn holds_anything(&self) -> bool {
        self.top == Type::Any || self.kinds.iter().flat_map(Kind::inner).any(|inner| inner == Type::Any)
    }

    /// Writes the definitions in Go's order: the outer ones first (`encoding/gob/encoder.go`, `sendActualType`).
    fn define(&mut self) {
        let mut waiting = vec![self.top];
        let mut defined = vec![false; self.kinds.len()];
        while let Some(next) = waiting.pop() {
            let Type::At(at) = next else { continue };
            let at = at as usize;
            if std::mem::replace(&mut defined[at], true) {
                continue;
            }
            let (kind, call) = (&self.kinds[at], |of| number(of, &self.kinds, &self.ids));
            kind.define(self.ids[at], call, &mut self.definitions);
            let inner: Vec<_> = kind.inner().collect();
            waiting.extend(inner.into_iter().rev());
        }
    }

    fn define_any(&mut self, next: i32) {
        let any = Any { list: next, map: next + 1 };
        types::define(&mut self.definitions, any.list, "", &Shape::Slice { elem: id::INTERFACE });
        let shape = Shape::Map { key: id::STRING, elem: id::INTERFACE };
        types::define(&mut self.definitions, any.map, "", &shape);
        self.any = Some(any);
    }
}

impl Kind {
    /// Returns the type of a tuple: an array if all types are the same, as in `[T; N]`, else a struct. `None` if there
    /// are too many.
    pub(super) fn for_tuple(types: Vec<Type>) -> Option<Self> {
        match types.first() {
            Some(&first) if types.iter().all(|&each| each == first) => {
                Some(Self::Array(first, types.len() as u64))
            }
            _ if types.len() > LETTERS.len() => None,
            _ => {
                let fields = LETTERS.into_iter().zip(types);
                let fields = fields.map(|(name, of)| Field { name: name.into(), of }).collect();
                Some(Self::Struct { name: "", fields })
            }
        }
    }

    pub(super) fn inner(&self) -> impl Iterator<Item = Type> {
        let (fields, variants, others): (&[Field], &[Variant], _) = match self {
            Self::Struct { fields, .. } => (fields, &[], [None, None]),
            Self::Array(elem, _) | Self::Slice(elem) => (&[], &[], [Some(*elem), None]),
            Self::Map(key, elem) => (&[], &[], [Some(*key), Some(*elem)]),
            Self::Choice(variants) => (&[], variants, [None, None]),
            Self::Time | Self::SelfEncoded(..) => (&[], &[], [None, None]),
        };
        let fields = fields.iter().map(|field| field.of);
        fields.chain(variants.iter().map(|variant| variant.of)).chain(others.into_iter().flatten())
    }

    fn define(&self, id: i32, call: impl Fn(Type) -> i32, out: &mut Vec<u8>) {
        match self {
            Self::Struct { name, fields } => {
                let fields: Vec<_> = fields.iter().map(|field| (&*field.name, call(field.of))).collect();
                types::define(out, id, name, &Shape::Struct(&fields));
            }
            Self::Array(elem, len) => {
                types::define(out, id, "", &Shape::Array { elem: call(*elem), len: *len });
            }
            Self::Slice(elem) => types::define(out, id, "", &Shape::Slice { elem: call(*elem) }),
            Self::Map(key, elem) => {
                types::define(out, id, "", &Shape::Map { key: call(*key), elem: call(*elem) });
            }
            Self::Time => types::define(out, id, "Time", &Shape::Opaque(Opaque::Gob)),
            Self::SelfEncoded(name, how) => types::define(out, id, name, &Shape::Opaque(*how)),
            // All interfaces are one predefined type.
            Self::Choice(_) => {}
        }
    }
}

/// Field names of a tuple that is a struct.
pub(super) const LETTERS: [&str; 16] =
    ["A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M", "N", "O", "P"];

/// Assigns numbers in Go's order: a struct before the types of its fields, any other type after its parts
/// (`encoding/gob/type.go`, `newTypeObject`).
struct Numbers<'a> {
    kinds: &'a [Kind],
    ids: Vec<i32>,
    entered: Vec<bool>,
    next: i32,
}

impl Numbers<'_> {
    fn number(&mut self, of: Type) {
        let Type::At(at) = of else { return };
        let at = at as usize;
        if std::mem::replace(&mut self.entered[at], true) {
            return;
        }
        let kind = &self.kinds[at];
        if matches!(kind, Kind::Struct { .. }) {
            self.take(at);
        }
        for inner in kind.inner() {
            self.number(inner);
        }
        if !matches!(kind, Kind::Choice(_) | Kind::Struct { .. }) {
            self.take(at);
        }
    }

    fn take(&mut self, at: usize) {
        self.ids[at] = self.next;
        self.next += 1;
    }
}

fn number(of: Type, kinds: &[Kind], ids: &[i32]) -> i32 {
    match of {
        Type::Bool => id::BOOL,
        Type::Int => id::INT,
        Type::Uint | Type::Byte => id::UINT,
        Type::Float => id::FLOAT,
        Type::Bytes => id::BYTES,
        Type::String => id::STRING,
        Type::Complex => id::COMPLEX,
        Type::Any => id::INTERFACE,
        Type::At(at) if matches!(kinds.get(at as usize), Some(Kind::Choice(_))) => id::INTERFACE,
        Type::At(at) => ids.get(at as usize).copied().unwrap_or_default(),
    }
}
