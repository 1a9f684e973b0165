//! Conversion between gob and JSON without Rust types, for command-line use.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::number::{Cursor, begin, end, put_bytes, put_float, put_int, put_uint};
use super::time::Time;
use super::types::{Fields, Kind, Opaque, Shape, define, id};
use super::value_walk::singleton;
use super::{Error, Limits, Split, read_sole};

/// Converts the value of a stream to JSON, in the form of Go's `encoding/json`: bytes in base64, times as texts. A
/// field that was not sent appears with its zero value, and a non-finite number, which Go rejects, as a text.
///
/// # Errors
///
/// If the bytes are not a stream of a single value.
pub fn to_json(bytes: &[u8]) -> Result<String, Error> {
    let limits = Limits { message: usize::MAX - 16, ..Limits::default() };
    let body = read_sole(bytes, limits.clone())?.into_bytes();
    let split = Split::parse(&body, &limits)?;
    let (of, cursor) = split.value()?;
    let mut printer = Printer { split: &split, cursor, depth: limits.depth, out: String::new() };
    printer.top(of)?;
    Ok(printer.out)
}

struct Printer<'a> {
    split: &'a Split<'a>,
    cursor: Cursor<'a>,
    depth: usize,
    out: String,
}

impl Printer<'_> {
    fn top(&mut self, of: i32) -> Result<(), Error> {
        if !matches!(self.split.table.kind(of)?, Kind::Struct(_)) {
            singleton(&mut self.cursor)?;
        }
        self.value(of)
    }

    fn value(&mut self, of: i32) -> Result<(), Error> {
        self.depth = self.depth.checked_sub(1).ok_or_else(Error::too_deep)?;
        match self.split.table.kind(of)? {
            Kind::Bool => {
                let value = self.cursor.uint()? != 0;
                self.plain(value);
            }
            Kind::Int => {
                let value = self.cursor.int()?;
                self.plain(value);
            }
            Kind::Uint => {
                let value = self.cursor.uint()?;
                self.plain(value);
            }
            Kind::Float => {
                let value = self.cursor.float()?;
                self.float(value);
            }
            Kind::Complex => self.complex()?,
            Kind::String | Kind::Opaque(Opaque::Text) => {
                let text = String::from_utf8_lossy(self.cursor.bytes()?);
                self.text(&text);
            }
            Kind::Bytes => {
                let bytes = self.cursor.bytes()?;
                self.text(&STANDARD.encode(bytes));
            }
            Kind::Opaque(_) => self.opaque(of)?,
            Kind::Interface => self.interface()?,
            Kind::Array { elem, .. } | Kind::Slice { elem } => self.list(elem)?,
            Kind::Map { key, elem } => self.map(key, elem)?,
            Kind::Struct(fields) => self.fields(fields)?,
        }
        self.depth += 1;
        Ok(())
    }

    fn plain(&mut self, value: impl std::fmt::Display) {
        // Writing to a String does not fail.
        let _ = write!(self.out, "{value}");
    }

    /// A number without a JSON form is a text, in the spelling of Go's `strconv`.
    fn float(&mut self, value: f64) {
        match serde_json::Number::from_f64(value) {
            // Like Go: 17, not 17.0.
            Some(_) if value.fract() == 0.0 && value.abs() < 1e15 => self.plain(value),
            Some(number) => self.plain(number),
            None if value.is_nan() => self.text("NaN"),
            None => self.text(if value > 0.0 { "+Inf" } else { "-Inf" }),
        }
    }

    fn complex(&mut self) -> Result<(), Error> {
        let (re, im) = (self.cursor.float()?, self.cursor.float()?);
        self.out.push('[');
        self.float(re);
        self.out.push(',');
        self.float(im);
        self.out.push(']');
        Ok(())
    }

    fn text(&mut self, text: &str) {
        self.plain(Value::from(text));
    }

    /// Writes a time, or the bytes of another self-encoding type.
    fn opaque(&mut self, of: i32) -> Result<(), Error> {
        let bytes = self.cursor.bytes()?;
        let definition = self.split.table.find(of).ok_or_else(Error::unknown_type)?;
        match Time::for_type(self.split.table.name(self.split.definitions, definition), bytes) {
            Some(time) => self.text(&time.to_string()),
            None => self.text(&STANDARD.encode(bytes)),
        }
        Ok(())
    }

    fn interface(&mut self) -> Result<(), Error> {
        if self.cursor.bytes()?.is_empty() {
            self.out.push_str("null");
            return Ok(());
        }
        let of = self.cursor.id()?;
        self.cursor.uint()?;
        self.top(of)
    }

    fn list(&mut self, elem: i32) -> Result<(), Error> {
        let count = self.cursor.count(1)?;
        self.out.push('[');
        for index in 0..count {
            self.comma(index == 0);
            self.value(elem)?;
        }
        self.out.push(']');
        Ok(())
    }

    /// Keys that are not texts are converted.
    fn map(&mut self, key: i32, elem: i32) -> Result<(), Error> {
        let count = self.cursor.count(2)?;
        self.out.push('{');
        for index in 0..count {
            self.comma(index == 0);
            let start = self.out.len();
            self.value(key)?;
            if !self.out.get(start..).is_some_and(|key| key.starts_with('"')) {
                let key = self.out.split_off(start);
                self.text(&key);
            }
            self.out.push(':');
            self.value(elem)?;
        }
        self.out.push('}');
        Ok(())
    }

    fn fields(&mut self, fields: Fields) -> Result<(), Error> {
        let (split, mut last, mut index) = (self.split, -1, 0);
        self.out.push('{');
        let mut sent = self.next_field(fields, last)?;
        for (name, of) in split.table.fields(split.definitions, fields) {
            self.comma(index == 0);
            self.text(name);
            self.out.push(':');
            if sent == Some(index) {
                self.value(of)?;
                last = index;
                sent = self.next_field(fields, last)?;
            } else {
                self.zero(split.table.kind(of)?);
            }
            index += 1;
        }
        self.out.push('}');
        Ok(())
    }

    fn next_field(&mut self, fields: Fields, last: i64) -> Result<Option<i64>, Error> {
        match if self.cursor.is_empty() { 0 } else { self.cursor.uint()? } {
            0 => Ok(None),
            delta => fields.after(last, delta).map(Some),
        }
    }

    /// A struct, or an array, is omitted only if a pointer to it is nil.
    fn zero(&mut self, kind: Kind) {
        self.out.push_str(match kind {
            Kind::Bool => "false",
            Kind::Int | Kind::Uint | Kind::Float => "0",
            Kind::Bytes | Kind::String => "\"\"",
            Kind::Complex => "[0,0]",
            Kind::Slice { .. } => "[]",
            Kind::Map { .. } => "{}",
            Kind::Interface | Kind::Array { .. } | Kind::Struct(_) | Kind::Opaque(_) => "null",
        });
    }

    fn comma(&mut self, first: bool) {
        if !first {
            self.out.push(',');
        }
    }
}

/// Converts JSON to a stream of a single value, with types inferred from the JSON:
///
/// * an object is a struct of its members, except for null ones and empty lists;
/// * an integer is an int, or a uint if it fits only there, any other number a float64;
/// * a list is a slice of its elements' common type; objects form a struct of all members that any of them has;
///   elements of different kinds form a slice of interfaces.
///
/// # Errors
///
/// If it is not JSON, or only null.
pub fn from_json(json: &[u8]) -> Result<Vec<u8>, Error> {
    let value: Value = serde_json::from_slice(json).map_err(|error| Error::new(error.to_string()))?;
    let mut shapes = Shapes::default();
    let shape = ObservedType::infer(&value).ok_or_else(|| Error::new("null has no type"))?;
    let mut out = Vec::new();
    let of = shapes.number(&shape);
    shapes.define(of, &mut out);
    if shapes.any {
        define(&mut out, shapes.next, "", &Shape::Slice { elem: id::INTERFACE });
        define(&mut out, shapes.next + 1, "", &Shape::Map { key: id::STRING, elem: id::INTERFACE });
    }
    let mark = begin(&mut out);
    put_int(&mut out, of.into());
    if !matches!(shape, ObservedType::Object(_)) {
        out.push(0);
    }
    shapes.put(&value, &shape, &mut out)?;
    end(&mut out, mark);
    Ok(out)
}

/// Inferred type of a value.
#[derive(Clone, Debug, PartialEq)]
enum ObservedType {
    Bool,
    Int,
    Uint,
    Float,
    Text,
    List(Box<Self>),
    /// The members by name.
    Object(Vec<(String, Self)>),
    /// Different kinds.
    Any,
}

impl ObservedType {
    /// Infers the type of a value; `None` if it shows none: null, and empty lists.
    fn infer(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Null => return None,
            Value::Bool(_) => Self::Bool,
            Value::Number(number) if number.is_i64() => Self::Int,
            Value::Number(number) if number.is_u64() => Self::Uint,
            Value::Number(_) => Self::Float,
            Value::String(_) => Self::Text,
            Value::Array(list) => {
                let mut all = list.iter().map(Self::infer);
                let first = all.next()?;
                let all = all.try_fold(first?, |one, other| other.map(|other| one.unify(other)));
                Self::List(Box::new(all.unwrap_or(Self::Any)))
            }
            Value::Object(members) => {
                let seen =
                    members.iter().filter_map(|(name, value)| Some((name.clone(), Self::infer(value)?)));
                let mut seen: Vec<_> = seen.collect();
                seen.sort_by(|(one, _), (other, _)| one.cmp(other));
                Self::Object(seen)
            }
        })
    }

    /// Returns the common type of both.
    fn unify(self, other: Self) -> Self {
        match (self, other) {
            (one, other) if one == other => one,
            (Self::Int | Self::Float, Self::Int | Self::Float) => Self::Float,
            (Self::Uint | Self::Float, Self::Uint | Self::Float) => Self::Float,
            (Self::List(one), Self::List(other)) => Self::List(Box::new(one.unify(*other))),
            (Self::Object(mut one), Self::Object(other)) => {
                for (name, seen) in other {
                    match one.binary_search_by(|(known, _)| known.cmp(&name)) {
                        Ok(index) => {
                            let (name, known) = one.remove(index);
                            one.insert(index, (name, known.unify(seen)));
                        }
                        Err(index) => one.insert(index, (name, seen)),
                    }
                }
                Self::Object(one)
            }
            _ => Self::Any,
        }
    }
}

/// Types of a value, by number.
#[derive(Default)]
struct Shapes {
    known: Vec<(ObservedType, i32)>,
    next: i32,
    any: bool,
}

impl Shapes {
    fn number(&mut self, shape: &ObservedType) -> i32 {
        match shape {
            ObservedType::Bool => id::BOOL,
            ObservedType::Int => id::INT,
            ObservedType::Uint => id::UINT,
            ObservedType::Float => id::FLOAT,
            ObservedType::Text => id::STRING,
            ObservedType::Any => {
                self.any = true;
                id::INTERFACE
            }
            _ => match self.known.iter().find(|(known, _)| known == shape) {
                Some(&(_, known)) => known,
                None => self.add(shape),
            },
        }
    }

    fn add(&mut self, shape: &ObservedType) -> i32 {
        match shape {
            ObservedType::List(elem) => {
                self.number(elem);
            }
            ObservedType::Object(members) => {
                for (_, seen) in members {
                    self.number(seen);
                }
            }
            _ => {}
        }
        self.next = self.next.max(id::FIRST) + 1;
        self.known.push((shape.clone(), self.next - 1));
        self.next - 1
    }

    fn define(&mut self, of: i32, out: &mut Vec<u8>) {
        // Outer types first.
        for (shape, number) in self.known.clone().iter().rev().filter(|(_, number)| *number <= of) {
            match shape {
                ObservedType::List(elem) => {
                    define(out, *number, "", &Shape::Slice { elem: self.number(elem) })
                }
                ObservedType::Object(members) => {
                    let mut fields = Vec::new();
                    for (name, seen) in members {
                        fields.push((&**name, self.number(seen)));
                    }
                    define(out, *number, "", &Shape::Struct(&fields));
                }
                _ => {}
            }
        }
        self.next = self.next.max(id::FIRST);
    }

    fn put(&self, value: &Value, shape: &ObservedType, out: &mut Vec<u8>) -> Result<(), Error> {
        match (shape, value) {
            (ObservedType::Bool, Value::Bool(value)) => put_uint(out, (*value).into()),
            (ObservedType::Int, Value::Number(number)) => put_int(out, number.as_i64().unwrap_or_default()),
            (ObservedType::Uint, Value::Number(number)) => put_uint(out, number.as_u64().unwrap_or_default()),
            (ObservedType::Float, Value::Number(number)) => {
                put_float(out, number.as_f64().unwrap_or_default())
            }
            (ObservedType::Text, Value::String(text)) => put_bytes(out, text.as_bytes()),
            (ObservedType::List(elem), Value::Array(list)) => {
                put_uint(out, list.len() as u64);
                for value in list {
                    self.put(value, elem, out)?;
                }
            }
            (ObservedType::Object(members), Value::Object(object)) => self.members(object, members, out)?,
            (ObservedType::Any, value) => self.any(value, out)?,
            _ => return Err(Error::new("a list lacks one of its elements")),
        }
        Ok(())
    }

    fn members(
        &self,
        object: &serde_json::Map<String, Value>,
        members: &[(String, ObservedType)],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let mut last = -1;
        for (index, (name, seen)) in members.iter().enumerate() {
            if let Some(value) = object.get(name).filter(|&value| !is_zero(value)) {
                put_uint(out, (index as i64 - last) as u64);
                self.put(value, seen, out)?;
                last = index as i64;
            }
        }
        put_uint(out, 0);
        Ok(())
    }

    /// Writes a value in an interface; lists and objects have the types into which Go decodes JSON.
    fn any(&self, value: &Value, out: &mut Vec<u8>) -> Result<(), Error> {
        let (name, of) = match ObservedType::infer(value) {
            None if value.is_null() => {
                out.push(0);
                return Ok(());
            }
            Some(ObservedType::Bool) => ("bool", id::BOOL),
            Some(ObservedType::Int) => ("int", id::INT),
            Some(ObservedType::Uint) => ("uint64", id::UINT),
            Some(ObservedType::Float) => ("float64", id::FLOAT),
            Some(ObservedType::Text) => ("string", id::STRING),
            Some(ObservedType::Object(_)) => ("map[string]interface {}", self.next + 1),
            _ => ("[]interface {}", self.next),
        };
        put_bytes(out, name.as_bytes());
        put_int(out, of.into());
        let mark = begin(out);
        out.push(0);
        match value {
            Value::Array(list) => {
                put_uint(out, list.len() as u64);
                list.iter().try_for_each(|value| self.any(value, out))?;
            }
            Value::Object(members) => {
                put_uint(out, members.len() as u64);
                for (name, value) in members {
                    put_bytes(out, name.as_bytes());
                    self.any(value, out)?;
                }
            }
            value => self.put(value, &ObservedType::infer(value).unwrap_or(ObservedType::Bool), out)?,
        }
        end(out, mark);
        Ok(())
    }
}

/// Whether a field with this value is omitted.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(_) => false,
    }
}
