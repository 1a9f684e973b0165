//! serde serializer for gob, driven by a type description.
//!
//! A struct field with the zero value is omitted. Elsewhere zeros are written, since a list cannot omit elements (Go's
//! `encoding/gob/encode.go`, `sendZero`).

use serde::Serialize;
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::Error;
use super::number::{begin, end, put_bytes, put_float, put_int, put_uint, recount};
use super::self_encoding;
use super::time::Time;
use super::type_description::{Description, Field, Kind, Type, Variant};
use super::types::id;

/// Appends the message of a value, whose type the peer knows by the number `of`. On failure nothing is appended.
pub(super) fn message<T: Serialize + ?Sized>(
    value: &T,
    description: &Description,
    of: i32,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let mark = begin(out);
    put_int(out, of.into());
    let top = description.top();
    if !description.is_struct(top) {
        out.push(0);
    }
    match value.serialize(Destination { description, out, of: top, delta: 0 }) {
        Ok(_) => {
            end(out, mark);
            Ok(())
        }
        Err(error) => {
            out.truncate(mark);
            Err(error)
        }
    }
}

/// Destination of a value.
struct Destination<'d, 'o> {
    description: &'d Description,
    out: &'o mut Vec<u8>,
    of: Type,
    /// Distance from the last written field; 0 if the value is not a field.
    delta: u64,
}

/// Whether a value was written or omitted.
type WasWritten = bool;

impl<'d, 'o> Destination<'d, 'o> {
    /// Writes a value of a basic type, or omits it.
    #[inline]
    fn write_basic(
        mut self,
        of: Type,
        is_zero: bool,
        put: impl FnOnce(&mut Vec<u8>),
    ) -> Result<WasWritten, Error> {
        if self.of != of {
            return self.write_other(of, put);
        }
        if is_zero && self.delta > 0 {
            return Ok(false);
        }
        self.announce();
        put(self.out);
        Ok(true)
    }

    #[inline]
    fn announce(&mut self) {
        if self.delta > 0 {
            put_uint(self.out, self.delta);
        }
    }

    /// An interface accepts a basic type under its name.
    #[cold]
    fn write_other(mut self, of: Type, put: impl FnOnce(&mut Vec<u8>)) -> Result<WasWritten, Error> {
        if self.of != Type::Any {
            return Err(self.mismatch(&format!("{of:?}")));
        }
        let (name, id) = match of {
            Type::Bool => ("bool", id::BOOL),
            Type::Int => ("int", id::INT),
            Type::Uint | Type::Byte => ("uint", id::UINT),
            Type::Float => ("float64", id::FLOAT),
            Type::Bytes => ("[]uint8", id::BYTES),
            Type::String => ("string", id::STRING),
            _ => ("complex128", id::COMPLEX),
        };
        self.announce();
        let mark = begin_interface(self.out, name, id);
        self.out.push(0);
        put(self.out);
        end(self.out, mark);
        Ok(true)
    }

    /// In an interface, Go identifies a self-encoding type by its registered name.
    #[cold]
    fn newtype_in_interface<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<WasWritten, Error> {
        match self_encoding::parse_marker(name) {
            Some((name, _)) => Err(Error::new(format!(
                "{name} encodes itself: in an interface{{}} it must be a variant of an enum, by the name that Go registers it by"
            ))),
            None => value.serialize(self),
        }
    }

    /// Returns the error of a value that does not match its type description.
    #[cold]
    fn mismatch(&self, is: &str) -> Error {
        Error::new(format!("{is} where the type says {:?}", self.of))
    }

    fn kind(&self) -> Option<&'d Kind> {
        match self.of {
            Type::At(at) => self.description.kind(at).ok(),
            _ => None,
        }
    }

    fn write_empty(mut self) -> Result<WasWritten, Error> {
        match self.kind() {
            Some(Kind::Struct { fields, .. }) if fields.is_empty() => {
                self.announce();
                self.out.push(0);
                Ok(true)
            }
            _ => self.write_nothing(),
        }
    }

    /// Writes no value: omits a field, writes a nil interface elsewhere.
    fn write_nothing(self) -> Result<WasWritten, Error> {
        if self.delta > 0 {
            return Ok(false);
        }
        if self.of == Type::Any || matches!(self.kind(), Some(Kind::Choice(_))) {
            self.out.push(0);
            return Ok(true);
        }
        Err(Error::new("encodeArray: nil element"))
    }

    /// Writes an enum variant as the content of an interface.
    fn variant(mut self, name: &'static str) -> Result<(Self, usize), Error> {
        let Some(Kind::Choice(variants)) = self.kind() else { return Err(self.mismatch(name)) };
        let Some(&Variant { of, .. }) = variants.iter().find(|variant| variant.name == name) else {
            return Err(self.mismatch(name));
        };
        self.announce();
        let mark = begin_interface(self.out, name, self.description.id_of(of));
        if !self.description.is_struct(of) {
            self.out.push(0);
        }
        Ok((Self { of, delta: 0, ..self }, mark))
    }

    fn list(mut self, count: Option<usize>) -> Result<List<'d, 'o>, Error> {
        let start = self.out.len();
        let (form, held) = match (self.of, self.kind()) {
            (Type::Bytes, _) => (Form::Bytes, None),
            (Type::Complex, _) => (Form::Complex, None),
            (Type::Any, _) => {
                self.announce();
                let any = self.description.any()?;
                let mark = begin_interface(self.out, "[]interface {}", any.list);
                self.out.push(0);
                (Form::Elements(Type::Any), Some(mark))
            }
            (_, Some(&Kind::Slice(elem))) => (Form::Elements(elem), None),
            (_, Some(&Kind::Array(elem, length))) => (Form::Array(elem, length), None),
            (_, Some(Kind::Struct { fields, .. })) => (Form::Fields(fields), None),
            _ => return Err(self.mismatch("list")),
        };
        if held.is_none() {
            self.announce();
        }
        let may_vanish = self.delta > 0 && matches!(form, Form::Bytes | Form::Elements(_)) && held.is_none();
        let (counted, counts) = (self.out.len(), !matches!(form, Form::Fields(_) | Form::Complex));
        let announced = count.unwrap_or_default() as u64;
        if counts {
            put_uint(self.out, announced);
        }
        let width = self.out.len() - counted;
        Ok(List { put: self, form, start, may_vanish, counted, width, announced, count: 0, last: 0, held })
    }

    fn pairs(mut self, count: Option<usize>) -> Result<Pairs<'d, 'o>, Error> {
        let (key, elem, held) = match (self.of, self.kind()) {
            (Type::Any, _) => {
                self.announce();
                let any = self.description.any()?;
                let mark = begin_interface(self.out, "map[string]interface {}", any.map);
                self.out.push(0);
                (Type::String, Type::Any, Some(mark))
            }
            (_, Some(&Kind::Map(key, elem))) => {
                self.announce();
                (key, elem, None)
            }
            _ => return Err(self.mismatch("map")),
        };
        let (counted, announced) = (self.out.len(), count.unwrap_or_default() as u64);
        put_uint(self.out, announced);
        let width = self.out.len() - counted;
        Ok(Pairs { put: self, key, elem, counted, width, announced, count: 0, held })
    }

    fn members(mut self, count: usize) -> Result<Members<'d, 'o>, Error> {
        match self.kind() {
            Some(Kind::Struct { fields, .. }) => {
                self.announce();
                Ok(Members::Fields { put: self, fields, next: 0, last: -1 })
            }
            _ => self.pairs(Some(count)).map(Members::Pairs),
        }
    }
}

/// Starts the content of an interface; [`end`] finishes it.
fn begin_interface(out: &mut Vec<u8>, name: &str, id: i32) -> usize {
    put_bytes(out, name.as_bytes());
    put_int(out, id.into());
    begin(out)
}

impl<'d, 'o> Serializer for Destination<'d, 'o> {
    type Ok = WasWritten;
    type Error = Error;
    type SerializeSeq = List<'d, 'o>;
    type SerializeTuple = List<'d, 'o>;
    type SerializeTupleStruct = List<'d, 'o>;
    type SerializeTupleVariant = EnumVariant<List<'d, 'o>>;
    type SerializeMap = Pairs<'d, 'o>;
    type SerializeStruct = Members<'d, 'o>;
    type SerializeStructVariant = EnumVariant<Members<'d, 'o>>;

    fn serialize_bool(self, value: bool) -> Result<WasWritten, Error> {
        self.write_basic(Type::Bool, !value, |out| out.push(value.into()))
    }

    fn serialize_i8(self, value: i8) -> Result<WasWritten, Error> {
        self.serialize_i64(value.into())
    }

    fn serialize_i16(self, value: i16) -> Result<WasWritten, Error> {
        self.serialize_i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Result<WasWritten, Error> {
        self.serialize_i64(value.into())
    }

    #[inline]
    fn serialize_i64(self, value: i64) -> Result<WasWritten, Error> {
        self.write_basic(Type::Int, value == 0, |out| put_int(out, value))
    }

    fn serialize_u8(self, value: u8) -> Result<WasWritten, Error> {
        if self.of == Type::Byte {
            self.out.push(value);
            return Ok(true);
        }
        self.serialize_u64(value.into())
    }

    fn serialize_u16(self, value: u16) -> Result<WasWritten, Error> {
        self.serialize_u64(value.into())
    }

    fn serialize_u32(self, value: u32) -> Result<WasWritten, Error> {
        self.serialize_u64(value.into())
    }

    #[inline]
    fn serialize_u64(self, value: u64) -> Result<WasWritten, Error> {
        // serde_json passes every non-negative number as u64. Go code asserts `int` on an `interface{}`.
        if self.of == Type::Any
            && let Ok(value) = i64::try_from(value)
        {
            return self.write_other(Type::Int, |out| put_int(out, value));
        }
        self.write_basic(Type::Uint, value == 0, |out| put_uint(out, value))
    }

    fn serialize_f32(self, value: f32) -> Result<WasWritten, Error> {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<WasWritten, Error> {
        self.write_basic(Type::Float, value == 0.0, |out| put_float(out, value))
    }

    fn serialize_char(self, value: char) -> Result<WasWritten, Error> {
        self.serialize_i64(u32::from(value).into())
    }

    fn serialize_str(mut self, value: &str) -> Result<WasWritten, Error> {
        if let Some(Kind::Time) = self.kind() {
            let time: Time = value.parse()?;
            if time.is_zero() && self.delta > 0 {
                return Ok(false);
            }
            self.announce();
            put_bytes(self.out, &time.to_binary());
            return Ok(true);
        }
        self.write_basic(Type::String, value.is_empty(), |out| put_bytes(out, value.as_bytes()))
    }

    fn serialize_bytes(mut self, value: &[u8]) -> Result<WasWritten, Error> {
        if let Some(Kind::SelfEncoded(..)) = self.kind() {
            if value.is_empty() && self.delta > 0 {
                return Ok(false);
            }
            self.announce();
            put_bytes(self.out, value);
            return Ok(true);
        }
        self.write_basic(Type::Bytes, value.is_empty(), |out| put_bytes(out, value))
    }

    fn serialize_none(self) -> Result<WasWritten, Error> {
        self.write_nothing()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<WasWritten, Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<WasWritten, Error> {
        self.write_empty()
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<WasWritten, Error> {
        self.write_empty()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<WasWritten, Error> {
        if !matches!(self.kind(), Some(Kind::Choice(_))) {
            return self.serialize_str(variant);
        }
        let (put, mark) = self.variant(variant)?;
        put.out.push(0);
        end(put.out, mark);
        Ok(true)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<WasWritten, Error> {
        match self.of {
            Type::Any => self.newtype_in_interface(name, value),
            _ => value.serialize(self),
        }
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<WasWritten, Error> {
        let (put, mark) = self.variant(variant)?;
        let Destination { description, out, of, delta } = put;
        value.serialize(Destination { description, out: &mut *out, of, delta })?;
        end(out, mark);
        Ok(true)
    }

    fn serialize_seq(self, count: Option<usize>) -> Result<List<'d, 'o>, Error> {
        self.list(count)
    }

    fn serialize_tuple(self, count: usize) -> Result<List<'d, 'o>, Error> {
        self.list(Some(count))
    }

    fn serialize_tuple_struct(self, _: &'static str, count: usize) -> Result<List<'d, 'o>, Error> {
        self.list(Some(count))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        count: usize,
    ) -> Result<Self::SerializeTupleVariant, Error> {
        let (put, mark) = self.variant(variant)?;
        Ok(EnumVariant { inner: put.list(Some(count))?, mark })
    }

    fn serialize_map(self, count: Option<usize>) -> Result<Pairs<'d, 'o>, Error> {
        self.pairs(count)
    }

    fn serialize_struct(self, _: &'static str, count: usize) -> Result<Members<'d, 'o>, Error> {
        self.members(count)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        count: usize,
    ) -> Result<Self::SerializeStructVariant, Error> {
        let (put, mark) = self.variant(variant)?;
        Ok(EnumVariant { inner: put.members(count)?, mark })
    }
}

/// Elements of a list, written after a count, or as the fields of a struct.
struct List<'d, 'o> {
    put: Destination<'d, 'o>,
    form: Form<'d>,
    /// Offset of its start.
    start: usize,
    /// It is omitted if it is empty.
    may_vanish: bool,
    /// Offset and width of its count, and the count.
    counted: usize,
    width: usize,
    announced: u64,
    count: u64,
    /// One more than the index of the field written last.
    last: u64,
    /// Offset of the length of the enclosing interface.
    held: Option<usize>,
}

#[derive(Clone, Copy)]
enum Form<'d> {
    Bytes,
    Complex,
    Elements(Type),
    Array(Type, u64),
    Fields(&'d [Field]),
}

impl List<'_, '_> {
    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.count += 1;
        let (of, delta) = match self.form {
            Form::Bytes => (Type::Byte, 0),
            Form::Complex => (Type::Float, 0),
            Form::Elements(elem) | Form::Array(elem, _) => (elem, 0),
            Form::Fields(fields) => {
                let field = fields.get(self.count as usize - 1);
                let field = field.ok_or_else(|| self.put.mismatch("a longer list"))?;
                (field.of, self.count - self.last)
            }
        };
        let Destination { description, out, .. } = &mut self.put;
        if value.serialize(Destination { description, out, of, delta })? {
            self.last = self.count;
        }
        Ok(())
    }
}

/// A composite value whose parts were all written.
trait Parts {
    fn finish(&mut self) -> Result<WasWritten, Error>;

    fn out(&mut self) -> &mut Vec<u8>;
}

impl Parts for List<'_, '_> {
    fn finish(&mut self) -> Result<WasWritten, Error> {
        let out = &mut *self.put.out;
        match self.form {
            Form::Fields(_) => out.push(0),
            Form::Complex if self.count != 2 => return Err(self.put.mismatch("list")),
            Form::Complex => {
                let is_zero = out.ends_with(&[0, 0]) && out.len() - self.counted == 2;
                if is_zero && self.put.delta > 0 {
                    out.truncate(self.start);
                    return Ok(false);
                }
            }
            Form::Array(_, length) if self.count != length => return Err(self.put.mismatch("list")),
            _ if self.may_vanish && self.count == 0 => {
                out.truncate(self.start);
                return Ok(false);
            }
            _ if self.count != self.announced => recount(out, self.counted, self.width, self.count),
            _ => {}
        }
        if let Some(mark) = self.held {
            end(out, mark);
        }
        Ok(true)
    }

    fn out(&mut self) -> &mut Vec<u8> {
        self.put.out
    }
}

/// Keys and values, after their count.
struct Pairs<'d, 'o> {
    put: Destination<'d, 'o>,
    key: Type,
    elem: Type,
    counted: usize,
    width: usize,
    announced: u64,
    count: u64,
    held: Option<usize>,
}

impl Pairs<'_, '_> {
    fn part<T: Serialize + ?Sized>(&mut self, of: Type, value: &T) -> Result<(), Error> {
        let Destination { description, out, .. } = &mut self.put;
        value.serialize(Destination { description, out, of, delta: 0 }).map(drop)
    }
}

impl Parts for Pairs<'_, '_> {
    fn finish(&mut self) -> Result<WasWritten, Error> {
        let out = &mut *self.put.out;
        if self.count != self.announced {
            recount(out, self.counted, self.width, self.count);
        }
        if let Some(mark) = self.held {
            end(out, mark);
        }
        Ok(true)
    }

    fn out(&mut self) -> &mut Vec<u8> {
        self.put.out
    }
}

/// A struct, which is a map in an interface.
enum Members<'d, 'o> {
    Fields {
        put: Destination<'d, 'o>,
        fields: &'d [Field],
        /// Where the search for the next name starts.
        next: usize,
        last: i64,
    },
    Pairs(Pairs<'d, 'o>),
}

impl Members<'_, '_> {
    fn member<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
        match self {
            Self::Pairs(pairs) => {
                pairs.count += 1;
                pairs.part(Type::String, name)?;
                pairs.part(Type::Any, value)
            }
            Self::Fields { put, fields, next, last } => {
                let expected = fields.get(*next).filter(|field| field.name == name).map(|_| *next);
                let index = expected.or_else(|| fields.iter().position(|field| field.name == name));
                let Some((index, field)) = index.and_then(|at| Some((at, fields.get(at)?))) else {
                    return if put.description.is_inferred() { Ok(()) } else { check_empty(name, value) };
                };
                *next = index + 1;
                let delta = index as i64 - *last;
                if delta < 1 {
                    return Err(Error::new(format!(
                        "field {name} comes in another order than it is read in"
                    )));
                }
                let Destination { description, out, .. } = put;
                if value.serialize(Destination { description, out, of: field.of, delta: delta as u64 })? {
                    *last = index as i64;
                }
                Ok(())
            }
        }
    }
}

/// A field without a type description, such as `PhantomData`, which must have no content.
#[cold]
fn check_empty<T: Serialize + ?Sized>(name: &str, value: &T) -> Result<(), Error> {
    let description = Description::default();
    let unit = Destination { description: &description, out: &mut Vec::new(), of: Type::Any, delta: 1 };
    match value.serialize(unit) {
        Ok(false) => Ok(()),
        _ => Err(Error::new(format!("field {name} is written and not read"))),
    }
}

impl Parts for Members<'_, '_> {
    fn finish(&mut self) -> Result<WasWritten, Error> {
        match self {
            Self::Pairs(pairs) => pairs.finish(),
            Self::Fields { put, .. } => {
                put.out.push(0);
                Ok(true)
            }
        }
    }

    fn out(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Pairs(pairs) => pairs.out(),
            Self::Fields { put, .. } => put.out,
        }
    }
}

/// Content of an enum variant.
struct EnumVariant<P> {
    inner: P,
    /// Offset of its length.
    mark: usize,
}

impl<P: Parts> EnumVariant<P> {
    fn finish(&mut self) -> Result<WasWritten, Error> {
        self.inner.finish()?;
        end(self.inner.out(), self.mark);
        Ok(true)
    }
}

macro_rules! list {
    ($($trait:ident $method:ident),+) => {$(
        impl $trait for List<'_, '_> {
            type Ok = WasWritten;
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                self.element(value)
            }

            fn end(mut self) -> Result<WasWritten, Error> {
                self.finish()
            }
        }
    )+};
}

list! { SerializeSeq serialize_element, SerializeTuple serialize_element, SerializeTupleStruct serialize_field }

impl SerializeTupleVariant for EnumVariant<List<'_, '_>> {
    type Ok = WasWritten;
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.inner.element(value)
    }

    fn end(mut self) -> Result<WasWritten, Error> {
        self.finish()
    }
}

impl SerializeMap for Pairs<'_, '_> {
    type Ok = WasWritten;
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.count += 1;
        self.part(self.key, key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.part(self.elem, value)
    }

    fn end(mut self) -> Result<WasWritten, Error> {
        self.finish()
    }
}

impl SerializeStruct for Members<'_, '_> {
    type Ok = WasWritten;
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
        self.member(name, value)
    }

    fn end(mut self) -> Result<WasWritten, Error> {
        self.finish()
    }
}

impl SerializeStructVariant for EnumVariant<Members<'_, '_>> {
    type Ok = WasWritten;
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
        self.inner.member(name, value)
    }

    fn end(mut self) -> Result<WasWritten, Error> {
        self.finish()
    }
}
