//! Inference of a Rust type's struct_pack type from its requests to serde.
//!
//! `T::deserialize` is run with a [`Tracer`], which records the requests and answers with sample values. One run visits
//! one alternative of each enum, so that there are as many runs as needed to visit all. A type nested within itself
//! only gets a terminating value ([`Purpose::Sample`]).

use std::any::type_name;
use std::collections::HashMap;
use std::fmt;

use serde_core::de::value::U32Deserializer;
use serde_core::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};

use super::types::{Character, Image, Scalar, Struct, Type};
use super::{Error, MAX_TYPE_DEPTH, cpp};

impl Type {
    /// Returns the type of a Rust type. The mapping is described [above](super).
    ///
    /// # Errors
    ///
    /// [`Error::Type`] if it has none, like [`serde_json::Value`]: the type must be known without a value.
    pub fn for_type<T: DeserializeOwned>() -> Result<Self, Error> {
        let mut known = KnownTypes::default();
        for _ in 0..MAX_RUNS {
            let mut run = Run::new(&mut known);
            let result = T::deserialize(Tracer { run: &mut run, purpose: Purpose::Trace });
            match (result, run.traced.take()) {
                (Ok(_), Some(ty)) if run.unseen == 0 => return Ok(ty),
                (Ok(_), Some(_)) | (Err(Stop::Restart), _) => {}
                (Ok(_), None) => {
                    return Err(Error::ty(format!("{} deserializes no value", type_name::<T>())));
                }
                (Err(Stop::Error(error)), _) => return Err(with_type_name::<T>(&error)),
            }
        }
        Err(with_type_name::<T>(&Error::ty("it has too many alternatives")))
    }
}

fn with_type_name<T>(error: &Error) -> Error {
    Error::ty(format!("{} has no type in struct_pack: {error}", type_name::<T>()))
}

/// Maximum number of alternatives of all enums together.
const MAX_RUNS: usize = 4096;

/// Maximum number of parts of a type, each counted for every occurrence.
const MAX_PARTS: usize = 1 << 16;

/// Knowledge kept between runs.
#[derive(Default)]
struct KnownTypes {
    /// Visited alternatives of the enum at each position.
    enums: HashMap<Vec<usize>, Vec<Option<Alternative>>>,
    /// Which alternative of an enum serves as its sample, unless it is the first.
    samples: HashMap<&'static str, usize>,
}

/// An alternative of an enum.
#[derive(Clone)]
struct Alternative {
    ty: Type,
    /// All alternatives of the enums in it were visited.
    whole: bool,
}

struct Run<'k> {
    known: &'k mut KnownTypes,
    /// Identities of the enclosing types, outermost first.
    around: Vec<&'static str>,
    /// Their positions, as members of each other.
    path: Vec<usize>,
    /// Enums of which a sample is being created.
    sampled: Vec<&'static str>,
    /// Number of enums with unvisited alternatives.
    unseen: usize,
    parts: usize,
    /// Type traced last.
    traced: Option<Type>,
}

impl<'k> Run<'k> {
    fn new(known: &'k mut KnownTypes) -> Self {
        Self {
            known,
            around: Vec::new(),
            path: Vec::new(),
            sampled: Vec::new(),
            unseen: 0,
            parts: 0,
            traced: None,
        }
    }

    fn count(&mut self) -> Result<(), Stop> {
        self.parts += 1;
        match self.parts {
            ..=MAX_PARTS => Ok(()),
            _ => Err(Stop::ty("it has too many parts")),
        }
    }

    /// Whether a type is one of the enclosing ones. If so, the recursion is recorded as the traced type.
    fn is_recursive(&mut self, name: &str) -> Result<bool, Stop> {
        let Some(at) = self.around.iter().position(|around| *around == name) else { return Ok(false) };
        match (self.around.len() - at).checked_sub(2) {
            Some(levels) => {
                self.traced = Some(Type::Recursive(levels));
                Ok(true)
            }
            None => Err(Stop::ty("it contains itself directly")),
        }
    }

    fn enter(&mut self, name: &'static str) -> Result<(), Stop> {
        self.count()?;
        self.around.push(name);
        if self.around.len() > MAX_TYPE_DEPTH { Err(Stop::Error(Error::TooDeep)) } else { Ok(()) }
    }

    fn leave(&mut self, ty: Type) {
        self.around.pop();
        self.traced = Some(ty);
    }

    fn take(&mut self) -> Result<Type, Stop> {
        self.traced.take().ok_or_else(|| Stop::ty("a part of it deserializes no value"))
    }

    /// Returns the first alternative at this position that was not visited completely.
    fn next_alternative(&mut self, count: usize) -> usize {
        let seen = self.known.enums.entry(self.path.clone()).or_insert_with(|| vec![None; count]);
        let next = seen.iter().position(|alternative| !alternative.as_ref().is_some_and(|one| one.whole));
        next.unwrap_or(0)
    }

    /// Records an alternative and returns the type of the enum, as far as it is known.
    fn note_alternative(
        &mut self,
        name: &str,
        names: &[&str],
        index: usize,
        unseen: usize,
    ) -> Result<Type, Stop> {
        let alternative = Alternative { ty: self.take()?, whole: self.unseen == unseen };
        let seen = self.known.enums.entry(self.path.clone()).or_default();
        if let Some(slot) = seen.get_mut(index) {
            *slot = Some(alternative);
        }
        let whole = seen.iter().all(|alternative| alternative.as_ref().is_some_and(|one| one.whole));
        // Nested enums count as a part of this one.
        self.unseen = unseen + usize::from(!whole);
        let types =
            seen.iter().map(|alternative| alternative.as_ref().map_or(Type::Unit, |one| one.ty.clone()));
        Ok(enum_type(name, names, types.collect()))
    }
}

/// Returns the type of an enum: an `expected`, a number for unit variants only, or a variant.
fn enum_type(name: &str, names: &[&str], types: Vec<Type>) -> Type {
    match <[Type; 2]>::try_from(types) {
        Ok([value, error]) if name == "Result" && names == ["Ok", "Err"] => {
            Type::Expected(value.into(), error.into())
        }
        Ok(two) => variant_type(two.into()),
        Err(types) => variant_type(types),
    }
}

fn variant_type(types: Vec<Type>) -> Type {
    match types.iter().all(|ty| *ty == Type::Unit) {
        true => Type::Scalar(Scalar::I32),
        false => Type::Variant(types),
    }
}

/// Why a run stops before its end.
#[derive(Debug)]
enum Stop {
    /// Something was learned; restart.
    Restart,
    Error(Error),
}

impl Stop {
    fn ty(text: impl Into<Box<str>>) -> Self {
        Self::Error(Error::ty(text))
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restart => f.write_str("there is more to be traced"),
            Self::Error(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Stop {}

impl de::Error for Stop {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self::ty(text.to_string())
    }
}

/// Purpose of a supplied value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// To infer its type.
    Trace,
    /// To have a sample value.
    Sample,
}

struct Tracer<'r, 'k> {
    run: &'r mut Run<'k>,
    purpose: Purpose,
}

impl<'r, 'k> Tracer<'r, 'k> {
    fn leaf(&mut self, ty: Type) -> Result<(), Stop> {
        if self.purpose == Purpose::Trace {
            self.run.count()?;
            self.run.traced = Some(ty);
        }
        Ok(())
    }

    /// Whether there is nothing to trace: a sample is needed, or the type is nested within itself.
    fn is_known(&mut self, name: &str) -> Result<bool, Stop> {
        Ok(self.purpose == Purpose::Sample || self.run.is_recursive(name)?)
    }

    /// Traces any composite of members: `ty` builds its type from theirs.
    fn members<'de, V: Visitor<'de>>(
        self,
        count: usize,
        visitor: V,
        ty: impl FnOnce(Vec<Type>) -> Type,
    ) -> Result<V::Value, Stop> {
        let Self { run, .. } = self;
        run.enter(type_name::<V>())?;
        let mut members = Parts { run, count, at: 0, types: Vec::new(), is_homogeneous: false };
        let value = visitor.visit_seq(&mut members)?;
        let Parts { run, types, .. } = members;
        if types.len() != count {
            return Err(Stop::ty("it does not deserialize all of its members"));
        }
        run.leave(ty(types));
        Ok(value)
    }

    /// Traces a fixed number of items of one type.
    fn items<'de, V: Visitor<'de>>(
        self,
        count: usize,
        visitor: V,
        ty: impl FnOnce(Box<Type>) -> Type,
    ) -> Result<V::Value, Stop> {
        let Self { run, .. } = self;
        run.enter(type_name::<V>())?;
        let mut items = Parts { run, count, at: 0, types: Vec::new(), is_homogeneous: true };
        let value = visitor.visit_seq(&mut items)?;
        let Parts { run, mut types, .. } = items;
        let item = types.pop().ok_or_else(|| Stop::ty("it does not deserialize its items"))?;
        run.leave(ty(item.into()));
        Ok(value)
    }

    fn samples<'de, V: Visitor<'de>>(self, count: usize, visitor: V) -> Result<V::Value, Stop> {
        visitor.visit_seq(Samples { run: self.run, left: count })
    }

    /// Supplies a sample of an enum: an alternative that does not contain the enum again.
    fn sample_enum<'de, V: Visitor<'de>>(self, count: usize, visitor: V) -> Result<V::Value, Stop> {
        let (run, name) = (self.run, type_name::<V>());
        if run.sampled.contains(&name) {
            let sample = run.known.samples.entry(name).or_default();
            *sample += 1;
            return Err(if *sample < count {
                Stop::Restart
            } else {
                Stop::ty("it contains itself without end")
            });
        }
        let index = run.known.samples.get(name).copied().unwrap_or(0);
        run.sampled.push(name);
        let inner = Tracer { run: &mut *run, purpose: Purpose::Sample };
        let value = visitor.visit_enum(ChosenAlternative { index, inner })?;
        run.sampled.pop();
        Ok(value)
    }
}

macro_rules! leaves {
    ($($deserialize:ident $ty:expr, $visit:ident $sample:expr;)*) => {
        $(fn $deserialize<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stop> {
            self.leaf($ty)?;
            visitor.$visit($sample)
        })*
    };
}

impl<'de> Deserializer<'de> for Tracer<'_, '_> {
    type Error = Stop;

    // Not zero, which some types reject.
    leaves! {
        deserialize_bool Type::Scalar(Scalar::Bool), visit_bool false;
        deserialize_i8 Type::Scalar(Scalar::I8), visit_i8 1;
        deserialize_i16 Type::Scalar(Scalar::I16), visit_i16 1;
        deserialize_i32 Type::Scalar(Scalar::I32), visit_i32 1;
        deserialize_i64 Type::Scalar(Scalar::I64), visit_i64 1;
        deserialize_i128 Type::Scalar(Scalar::I128), visit_i128 1;
        deserialize_u8 Type::Scalar(Scalar::U8), visit_u8 1;
        deserialize_u16 Type::Scalar(Scalar::U16), visit_u16 1;
        deserialize_u32 Type::Scalar(Scalar::U32), visit_u32 1;
        deserialize_u64 Type::Scalar(Scalar::U64), visit_u64 1;
        deserialize_u128 Type::Scalar(Scalar::U128), visit_u128 1;
        deserialize_f32 Type::Scalar(Scalar::F32), visit_f32 1.0;
        deserialize_f64 Type::Scalar(Scalar::F64), visit_f64 1.0;
        deserialize_char Type::Scalar(Scalar::Char32), visit_char 'a';
        deserialize_str Type::String(Character::Char), visit_borrowed_str "";
        deserialize_string Type::String(Character::Char), visit_borrowed_str "";
        deserialize_bytes Type::String(Character::Char), visit_borrowed_bytes &[];
        deserialize_byte_buf Type::String(Character::Char), visit_borrowed_bytes &[];
    }

    fn deserialize_unit<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stop> {
        self.leaf(Type::Unit)?;
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Stop> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stop> {
        let name = type_name::<V>();
        if self.is_known(name)? {
            return visitor.visit_none();
        }
        let run = self.run;
        run.enter(name)?;
        let value = visitor.visit_some(Tracer { run: &mut *run, purpose: Purpose::Trace })?;
        let inner = run.take()?;
        run.leave(Type::Optional(inner.into()));
        Ok(value)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Stop> {
        let Self { run, purpose } = self;
        let value = visitor.visit_newtype_struct(Tracer { run: &mut *run, purpose })?;
        if let (Some(ty), Purpose::Trace) = (cpp::find_type(name), purpose) {
            run.traced = Some(ty);
        }
        Ok(value)
    }

    fn deserialize_seq<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stop> {
        if self.is_known(type_name::<V>())? {
            return self.samples(0, visitor);
        }
        let ty = if is_of_set::<V>() { Type::Set } else { Type::List };
        self.items(1, visitor, ty)
    }

    fn deserialize_tuple<V: Visitor<'de>>(mut self, count: usize, visitor: V) -> Result<V::Value, Stop> {
        if count == 0 {
            return Err(Stop::ty("an array has no items"));
        }
        if self.is_known(type_name::<V>())? {
            return self.samples(count, visitor);
        }
        match is_of_array(&visitor) {
            true => self.items(count, visitor, |item| Type::Array(item, count)),
            false => self.members(count, visitor, Type::tuple),
        }
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, Stop> {
        if self.is_known(type_name::<V>())? {
            return self.samples(count, visitor);
        }
        self.members(count, visitor, |members| structure(name, members))
    }

    fn deserialize_map<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stop> {
        if self.is_known(type_name::<V>())? {
            return visitor.visit_map(Samples { run: self.run, left: 0 });
        }
        let run = self.run;
        run.enter(type_name::<V>())?;
        let mut entry = Parts { run, count: 2, at: 0, types: Vec::new(), is_homogeneous: false };
        let value = visitor.visit_map(&mut entry)?;
        let Parts { run, types, .. } = entry;
        let [key, of] =
            <[Type; 2]>::try_from(types).map_err(|_| Stop::ty("it does not deserialize its entries"))?;
        run.leave(Type::Map(key.into(), of.into()));
        Ok(value)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        self.deserialize_tuple_struct(name, fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        if self.is_known(type_name::<V>())? {
            return self.sample_enum(names.len(), visitor);
        }
        let run = self.run;
        run.enter(type_name::<V>())?;
        let (index, unseen) = (run.next_alternative(names.len()), run.unseen);
        run.path.push(index);
        let inner = Tracer { run: &mut *run, purpose: Purpose::Trace };
        let value = visitor.visit_enum(ChosenAlternative { index, inner })?;
        run.path.pop();
        let ty = run.note_alternative(name, names, index, unseen)?;
        run.leave(ty);
        Ok(value)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Stop> {
        Err(Stop::ty("what it is depends on the value"))
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.deserialize_any(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.deserialize_any(visitor)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// Returns the type of a struct, which C++ may have registered with the macro whose name it has.
pub(super) fn structure(name: &str, members: Vec<Type>) -> Type {
    let image = if name.starts_with("YLT_REFL") { Image::Never } else { Image::Natural };
    Type::Struct(Struct { members, image, id: None })
}

/// Arrays and tuples make the same request to serde. They are distinguished by their description of the expected value.
fn is_of_array<'de, V: Visitor<'de>>(visitor: &V) -> bool {
    (visitor as &dyn de::Expected).to_string().starts_with("an array of")
}

/// Sets and lists make the same request, and have the same description. They are distinguished by the visitor's type
/// name, which contains that of the collection; tests detect if it ever changes.
fn is_of_set<V>() -> bool {
    type_name::<V>().split("::deserialize").next().is_some_and(|name| name.contains("Set<"))
}

/// Supplies the parts of a type in order.
struct Parts<'r, 'k> {
    run: &'r mut Run<'k>,
    count: usize,
    at: usize,
    types: Vec<Type>,
    /// All have the type of the first.
    is_homogeneous: bool,
}

impl Parts<'_, '_> {
    fn part<'de, S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Stop> {
        self.at += 1;
        if self.is_homogeneous && self.at > 1 {
            return seed.deserialize(Tracer { run: self.run, purpose: Purpose::Sample });
        }
        self.run.path.push(self.at);
        let value = seed.deserialize(Tracer { run: self.run, purpose: Purpose::Trace })?;
        self.run.path.pop();
        self.types.push(self.run.take()?);
        Ok(value)
    }
}

impl<'de> SeqAccess<'de> for Parts<'_, '_> {
    type Error = Stop;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Stop> {
        if self.at == self.count { Ok(None) } else { self.part(seed).map(Some) }
    }
}

impl<'de> MapAccess<'de> for Parts<'_, '_> {
    type Error = Stop;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Stop> {
        self.next_element_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Stop> {
        self.part(seed)
    }
}

/// Supplies samples.
struct Samples<'r, 'k> {
    run: &'r mut Run<'k>,
    left: usize,
}

impl<'de> SeqAccess<'de> for Samples<'_, '_> {
    type Error = Stop;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Stop> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(Tracer { run: self.run, purpose: Purpose::Sample }).map(Some)
    }
}

impl<'de> MapAccess<'de> for Samples<'_, '_> {
    type Error = Stop;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, _: S) -> Result<Option<S::Value>, Stop> {
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Stop> {
        seed.deserialize(Tracer { run: self.run, purpose: Purpose::Sample })
    }
}

/// Supplies an alternative of an enum.
struct ChosenAlternative<'r, 'k> {
    index: usize,
    inner: Tracer<'r, 'k>,
}

impl<'de, 'r, 'k> EnumAccess<'de> for ChosenAlternative<'r, 'k> {
    type Error = Stop;
    type Variant = Tracer<'r, 'k>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), Stop> {
        let index: U32Deserializer<Stop> = (self.index as u32).into_deserializer();
        Ok((seed.deserialize(index)?, self.inner))
    }
}

impl<'de> VariantAccess<'de> for Tracer<'_, '_> {
    type Error = Stop;

    fn unit_variant(mut self) -> Result<(), Stop> {
        self.leaf(Type::Unit)
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Stop> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, count: usize, visitor: V) -> Result<V::Value, Stop> {
        match self.purpose {
            Purpose::Sample => self.samples(count, visitor),
            Purpose::Trace => self.members(count, visitor, Type::tuple),
        }
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        match self.purpose {
            Purpose::Sample => self.samples(fields.len(), visitor),
            Purpose::Trace => self.members(fields.len(), visitor, Type::structure),
        }
    }
}
