//! Inference of a Rust type's structure from its `Deserialize` implementation.
//!
//! A value does not describe its type completely: an empty list does not show its element type, which the peer must
//! know. The type is therefore deserialized from a source that supplies whatever is requested, and records the
//! requests. A type may reject a sample, such as a text that is not an address; then it is deserialized again with
//! another sample there. An enum is deserialized until each of its variants was.

use std::any::{TypeId, type_name};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use super::Error;
use super::complex::COMPLEX;
use super::type_description::{Description, Field, Kind, Type, Variant};
use super::{self_encoding, time};

/// Returns the description of `T`, which is computed once per thread. A failure is cached too: detecting it may take thousands of runs.
pub(super) fn description<T: DeserializeOwned + 'static>() -> Result<Rc<Description>, Error> {
    thread_local! {
        static KNOWN: RefCell<HashMap<TypeId, Result<Rc<Description>, Error>>> = RefCell::default();
    }
    let key = TypeId::of::<T>();
    if let Some(known) = KNOWN.with_borrow(|known| known.get(&key).cloned()) {
        return known;
    }
    let description = match trace::<T>() {
        Ok((kinds, top)) => Ok(Rc::new(Description::new(kinds, top))),
        Err(error) => Err(error.within(&format!("{} cannot be described:", type_name::<T>()))),
    };
    KNOWN.with_borrow_mut(|known| known.insert(key, description.clone()));
    description
}

/// Returns the structure of `T`, and of all types it consists of.
fn trace<T: DeserializeOwned>() -> Result<(Vec<Kind>, Type), Error> {
    let mut trace = TypeTracer::default();
    for _ in 0..MAX_READINGS {
        trace.begin();
        let mut found = None;
        match T::deserialize(Probe { trace: &mut trace, found: &mut found }) {
            Err(error) if error.is_of_type() => return Err(error),
            Err(error) => trace.try_another(error)?,
            Ok(_) if trace.end() => {
                let top = found.ok_or_else(|| Error::new("it deserializes no value"))?;
                return Ok(trace.finish(top));
            }
            Ok(_) => {}
        }
    }
    Err(Error::new("it has too many parts"))
}

/// Each one takes no longer than to deserialize a small value.
const MAX_READINGS: usize = 4096;

#[derive(Debug, Default)]
struct TypeTracer {
    /// Results of all runs.
    kinds: Vec<Kind>,
    structs: HashMap<Key, u32>,
    enums: HashMap<Key, Choice>,
    /// The structs of this run.
    read: Vec<u32>,
    /// Whether the type being deserialized is known already: then lists are empty and options are `None`, so that
    /// recursive types terminate.
    known: usize,
    /// Number of basic values supplied in this run, and the sample used for each.
    samples_used: usize,
    samples: Vec<usize>,
    /// There are no more samples for the last value.
    exhausted: bool,
    /// Results of this run about variants. They take effect once the run is complete: until then every repetition must
    /// make the same choices.
    found: Vec<(Key, usize, Content)>,
}

/// A type: its Rust name with all parameters, and the names of its members.
type Key = (&'static str, &'static [&'static str]);

#[derive(Debug, Default)]
struct Choice {
    at: u32,
    /// What is known of each variant.
    variants: Vec<Option<Content>>,
    /// Variants being deserialized.
    open: Vec<usize>,
    /// How often `pick` has chosen a variant: in completed runs, and in total.
    committed_picks: usize,
    picks: usize,
}

impl Choice {
    /// Returns the variant to deserialize next: an unknown one, or else each in turn, since there may be more to find
    /// in it. One that is being deserialized would recurse.
    fn pick(&mut self, known: bool) -> Option<usize> {
        let all = || (0..self.variants.len()).filter(|at| !self.open.contains(at));
        let position = |content: Option<Content>| all().find(|&at| self.variants.get(at) == Some(&content));
        if known {
            return position(Some(Content::Unit)).or_else(|| all().next());
        }
        let new = position(None).or_else(|| all().cycle().nth(self.picks));
        self.picks += 1;
        new
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Content {
    Unit,
    Of(Type),
}

impl TypeTracer {
    fn begin(&mut self) {
        self.read.clear();
        self.known = 0;
        self.samples_used = 0;
        self.exhausted = false;
        self.found.clear();
        for choice in self.enums.values_mut() {
            choice.open.clear();
            choice.picks = choice.committed_picks;
        }
    }

    /// Keeps the results of a run; `true` once there is nothing more to find.
    fn end(&mut self) -> bool {
        self.samples.clear();
        for (key, at, content) in self.found.drain(..) {
            let variant = self.enums.get_mut(&key).and_then(|choice| choice.variants.get_mut(at));
            if let Some(variant) = variant {
                *variant = Some(content);
            }
        }
        self.enums.values_mut().for_each(|choice| choice.committed_picks = choice.picks);
        self.enums.values().all(|choice| choice.variants.iter().all(Option::is_some))
    }

    /// The last value supplied was rejected: the next run supplies another in its place.
    fn try_another(&mut self, error: Error) -> Result<(), Error> {
        match self.samples.get_mut(self.samples_used.wrapping_sub(1)) {
            Some(sample) if !self.exhausted => *sample += 1,
            _ => return Err(error),
        }
        Ok(())
    }

    /// Returns the sample to supply next.
    fn sample<T: Copy>(&mut self, samples: &[T]) -> Result<T, Error> {
        let at = self.samples_used;
        self.samples_used += 1;
        if self.samples.len() <= at {
            self.samples.push(0);
        }
        let sample = self.samples.get(at).and_then(|&sample| samples.get(sample)).copied();
        sample.ok_or_else(|| {
            self.exhausted = true;
            Error::new("it rejects every value")
        })
    }

    /// Adds a type that is identified by its structure.
    fn add(&mut self, kind: Kind) -> Type {
        let known = self.kinds.iter().position(|known| *known == kind);
        let at = known.unwrap_or_else(|| {
            self.kinds.push(kind);
            self.kinds.len() - 1
        });
        Type::At(at as u32)
    }

    /// Enums of unit variants become texts, all others interfaces.
    fn finish(mut self, top: Type) -> (Vec<Kind>, Type) {
        let mut texts = Vec::new();
        for choice in self.enums.values() {
            let names = choice.variants.iter().all(|content| matches!(content, Some(Content::Unit)));
            if names {
                texts.push(Type::At(choice.at));
            }
        }
        let plain = |of: &mut Type| {
            if texts.contains(of) {
                *of = Type::String;
            } else if *of == Type::Byte {
                *of = Type::Uint;
            }
        };
        let unit = self.add(unit());
        for (&(_, names), choice) in &self.enums {
            let content = |content: &Option<Content>| match content {
                Some(Content::Of(of)) => *of,
                _ => unit,
            };
            let variants = names.iter().zip(&choice.variants);
            let variants = variants.map(|(&name, it)| Variant { name, of: content(it) }).collect();
            if let Some(kind) = self.kinds.get_mut(choice.at as usize) {
                *kind = Kind::Choice(variants);
            }
        }
        for kind in &mut self.kinds {
            match kind {
                Kind::Struct { fields, .. } => fields.iter_mut().for_each(|field| plain(&mut field.of)),
                Kind::Choice(variants) => variants.iter_mut().for_each(|variant| plain(&mut variant.of)),
                Kind::Array(elem, _) | Kind::Slice(elem) => plain(elem),
                Kind::Map(key, elem) => {
                    plain(key);
                    plain(elem);
                }
                Kind::Time | Kind::SelfEncoded(..) => {}
            }
        }
        let mut top = top;
        plain(&mut top);
        (self.kinds, top)
    }
}

/// Supplies a value of the requested type.
struct Probe<'t> {
    trace: &'t mut TypeTracer,
    found: &'t mut Option<Type>,
}

impl<'t> Probe<'t> {
    fn supply<T: Copy>(self, of: Type, samples: &[T]) -> Result<T, Error> {
        *self.found = Some(of);
        self.trace.sample(samples)
    }

    /// Returns the probe for a nested value whose type was not recorded yet.
    fn within<'s>(&'s mut self, found: &'s mut Option<Type>) -> Probe<'s> {
        Probe { trace: self.trace, found }
    }
}

macro_rules! scalar {
    ($($method:ident $visit:ident $of:ident $samples:expr),+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit(self.supply(Type::$of, &$samples)?)
        }
    )+};
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Error;

    scalar! {
        deserialize_bool visit_bool Bool [false, true],
        deserialize_i8 visit_i8 Int [0, 1],
        deserialize_i16 visit_i16 Int [0, 1],
        deserialize_i32 visit_i32 Int [0, 1],
        deserialize_i64 visit_i64 Int [0, 1],
        deserialize_u8 visit_u8 Byte [0, 1],
        deserialize_u16 visit_u16 Uint [0, 1],
        deserialize_u32 visit_u32 Uint [0, 1],
        deserialize_u64 visit_u64 Uint [0, 1],
        deserialize_f32 visit_f32 Float [0.0, 1.0],
        deserialize_f64 visit_f64 Float [0.0, 1.0],
        deserialize_char visit_char Int ['a'],
        deserialize_str visit_borrowed_str String TEXTS,
        deserialize_string visit_borrowed_str String TEXTS,
        deserialize_bytes visit_borrowed_bytes Bytes BYTES,
        deserialize_byte_buf visit_borrowed_bytes Bytes BYTES
    }

    fn deserialize_i128<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::in_type("Go has no integer of 128 bits, but `gob::SelfEncoded<BigInt>`"))
    }

    fn deserialize_u128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_i128(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.trace.known > 0 { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.found = Some(self.trace.add(unit()));
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let special = match name {
            COMPLEX => Type::Complex,
            time::NAME => self.trace.add(Kind::Time),
            name => match self_encoding::parse_marker(name) {
                Some((name, how)) => self.trace.add(Kind::SelfEncoded(name, how)),
                None => return visitor.visit_newtype_struct(self),
            },
        };
        let value = visitor.visit_newtype_struct(self.within(&mut None))?;
        *self.found = Some(special);
        Ok(value)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let (mut elements, left) = (Vec::new(), usize::from(self.trace.known == 0));
        let value = visitor.visit_seq(Elements { trace: self.trace, found: &mut elements, left })?;
        *self.found = match elements.first() {
            Some(Some(Type::Byte)) => Some(Type::Bytes),
            Some(&Some(elem)) => Some(self.trace.add(Kind::Slice(elem))),
            _ => None,
        };
        Ok(value)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Error> {
        let mut elements = Vec::new();
        let value = visitor.visit_seq(Elements { trace: self.trace, found: &mut elements, left: length })?;
        let elements: Vec<Type> = elements.into_iter().flatten().collect();
        if elements.len() < length {
            return Ok(value);
        }
        let kind = Kind::for_tuple(elements).ok_or_else(|| Error::in_type("a tuple of more than 16"))?;
        *self.found = Some(self.trace.add(kind));
        Ok(value)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        // serde's derived code for a struct requests a map only if it has flattened fields.
        if type_name::<V>().contains("::__Visitor") {
            let name = type_name::<V::Value>();
            return Err(Error::in_type(format!("{name} has `serde(flatten)`, of which serde makes a map")));
        }
        let (mut key, mut elem, left) = (None, None, self.trace.known == 0);
        let pairs = Pairs { trace: self.trace, key: &mut key, elem: &mut elem, left };
        let value = visitor.visit_map(pairs)?;
        if let (Some(key), Some(elem)) = (key, elem) {
            *self.found = Some(self.trace.add(Kind::Map(key, elem)));
        }
        Ok(value)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let trace = self.trace;
        let at = *trace.structs.entry((type_name::<V::Value>(), fields)).or_insert_with(|| {
            trace.kinds.push(Kind::Struct { name, fields: Vec::new() });
            trace.kinds.len() as u32 - 1
        });
        *self.found = Some(Type::At(at));
        let known = trace.read.contains(&at);
        let mut found = Vec::new();
        if known {
            trace.known += 1;
        } else {
            trace.read.push(at);
        }
        let names = fields.iter();
        let value = visitor.visit_map(Members { trace, names, name: "", found: &mut found })?;
        if known {
            trace.known -= 1;
        } else if let Some(kind) = trace.kinds.get_mut(at as usize) {
            *kind = Kind::Struct { name, fields: found };
        }
        Ok(value)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let trace = self.trace;
        let (key, known) = ((type_name::<V::Value>(), variants), trace.known > 0);
        let choice = trace.enums.entry(key).or_insert_with(|| {
            trace.kinds.push(Kind::Choice(Vec::new()));
            let at = trace.kinds.len() as u32 - 1;
            Choice { at, variants: vec![None; variants.len()], ..Choice::default() }
        });
        *self.found = Some(Type::At(choice.at));
        let picked = choice.pick(known);
        let (at, variant) = picked
            .and_then(|at| variants.get(at).map(|&variant| (at, variant)))
            .ok_or_else(|| Error::new(format!("{name} has no variant without another in it")))?;
        choice.open.push(at);
        let mut content = None;
        let value = visitor.visit_enum(OneOf { trace, variant, content: &mut content })?;
        if let Some(choice) = trace.enums.get_mut(&key) {
            choice.open.pop();
        }
        if let (Some(content), false) = (content, known) {
            trace.found.push((key, at, content));
        }
        Ok(value)
    }

    /// A type that accepts anything becomes an interface.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.supply(Type::Any, &[0, 1, 2, 3, 4, 5])? {
            0 => visitor.visit_unit(),
            1 => visitor.visit_borrowed_str(""),
            2 => visitor.visit_i64(0),
            3 => visitor.visit_bool(false),
            4 => visitor.visit_f64(0.0),
            _ => visitor.visit_borrowed_bytes(&[]),
        }
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }
}

/// Go's empty struct.
fn unit() -> Kind {
    Kind::Struct { name: "", fields: Vec::new() }
}

/// Texts accepted by types of common libraries, the simplest first.
const TEXTS: &[&str] = &[
    "",
    "0",
    "a",
    "A",
    "127.0.0.1",
    "::1",
    "127.0.0.1:0",
    "[::1]:0",
    "127.0.0.0/8",
    "::/64",
    "1970-01-01T00:00:00Z",
    "1970-01-01T00:00:00",
    "1970-01-01",
    "00:00:00",
    "00000000-0000-0000-0000-000000000000",
    "http://a/",
    "1.0.0",
    "a@a.aa",
    "true",
    "AA==",
    "00",
    "00000000000000000000000000",
];

const BYTES: &[&[u8]] = &[&[], &[0; 1], &[0; 4], &[0; 8], &[0; 12], &[0; 16], &[0; 20], &[0; 32], &[0; 64]];

struct Elements<'t> {
    trace: &'t mut TypeTracer,
    found: &'t mut Vec<Option<Type>>,
    left: usize,
}

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let mut found = None;
        let value = seed.deserialize(Probe { trace: self.trace, found: &mut found })?;
        self.found.push(found);
        Ok(Some(value))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

struct Pairs<'t> {
    trace: &'t mut TypeTracer,
    key: &'t mut Option<Type>,
    elem: &'t mut Option<Type>,
    left: bool,
}

impl<'de> MapAccess<'de> for Pairs<'_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        if !std::mem::take(&mut self.left) {
            return Ok(None);
        }
        seed.deserialize(Probe { trace: self.trace, found: self.key }).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(Probe { trace: self.trace, found: self.elem })
    }
}

/// Fields of a struct.
struct Members<'t> {
    trace: &'t mut TypeTracer,
    names: std::slice::Iter<'static, &'static str>,
    name: &'static str,
    found: &'t mut Vec<Field>,
}

impl<'de> MapAccess<'de> for Members<'_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(name) = self.names.next() else { return Ok(None) };
        self.name = name;
        seed.deserialize(StrDeserializer::<Error>::new(name)).map(Some)
    }

    /// A field that requests no value is omitted.
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let mut found = None;
        let value = seed.deserialize(Probe { trace: self.trace, found: &mut found })?;
        self.found.extend(found.map(|of| Field { name: self.name.into(), of }));
        Ok(value)
    }
}

/// One variant of an enum.
struct OneOf<'t> {
    trace: &'t mut TypeTracer,
    variant: &'static str,
    content: &'t mut Option<Content>,
}

impl<'de> EnumAccess<'de> for OneOf<'_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Error> {
        Ok((seed.deserialize(StrDeserializer::<Error>::new(self.variant))?, self))
    }
}

impl OneOf<'_> {
    fn read<R>(self, read: impl FnOnce(Probe<'_>) -> Result<R, Error>) -> Result<R, Error> {
        let mut found = None;
        let value = read(Probe { trace: self.trace, found: &mut found })?;
        *self.content = found.map(Content::Of);
        Ok(value)
    }
}

impl<'de> VariantAccess<'de> for OneOf<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        *self.content = Some(Content::Unit);
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        self.read(|probe| seed.deserialize(probe))
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Error> {
        self.read(|probe| probe.deserialize_tuple(length, visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let name = self.variant;
        self.read(|probe| probe.deserialize_struct(name, fields, visitor))
    }
}
