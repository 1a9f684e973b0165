//! Type literals: the encoding of types that peers hash and compare (struct_pack/type_calculate.hpp).

use std::fmt;

use super::error::Mismatch;
use super::types::{Character, Image, Scalar, Struct, Type};
use super::{Error, MAX_TYPE_DEPTH};

impl Type {
    /// Returns the literal of the type.
    pub fn literal(&self) -> Vec<u8> {
        let mut out = Vec::new();
        write(self, &mut out);
        out
    }

    /// Parses the type of a literal.
    ///
    /// # Errors
    ///
    /// [`Error::Type`] if it is malformed, or if its type is not supported.
    pub fn from_literal(literal: &[u8]) -> Result<Self, Error> {
        if literal.len() > MAX_LITERAL {
            return Err(Error::ty("the literal of a type is too long"));
        }
        let mut reader = Reader { rest: literal, depth: 0 };
        let ty = reader.ty()?;
        match reader.rest {
            [] => Ok(ty),
            _ => Err(Error::ty("the literal of a type continues after its end")),
        }
    }
}

/// Returns the code by which peers identify a type: the first bytes of its literal's MD5, without the lowest bit.
pub(super) fn code(literal: &[u8]) -> u32 {
    let [a, b, c, d, ..] = md5::compute(literal).0;
    u32::from_be_bytes([a, b, c, d]) & !1
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.literal {
            Some(literal) => write!(f, "a value of type {}", Readable(literal))?,
            None => write!(f, "a value of a type with code {:08x}", self.code)?,
        }
        write!(f, " is no {} with code {:08x}", Readable(&self.wanted), code(&self.wanted))
    }
}

/// Readable form of a literal: the type it represents, if it is valid, and its digits.
struct Readable<'a>(&'a [u8]);

impl fmt::Display for Readable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Enough to distinguish two types.
        const SHOWN: usize = 64;
        if let Ok(ty) = Type::from_literal(self.0) {
            write!(f, "{ty} ")?;
        }
        f.write_str("(")?;
        for byte in self.0.iter().take(SHOWN) {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(if self.0.len() > SHOWN { "...)" } else { ")" })
    }
}

/// Longer ones are rejected. Peers' compilers fail earlier.
const MAX_LITERAL: usize = 16 << 10;

const STRING: u8 = 0x80;
const ARRAY: u8 = 0x81;
const MAP: u8 = 0x82;
const SET: u8 = 0x83;
const LIST: u8 = 0x84;
const OPTIONAL: u8 = 0x85;
const VARIANT: u8 = 0x86;
const EXPECTED: u8 = 0x87;
const UNIT: u8 = 0xfa;
const RECURSIVE: u8 = 0xfb;
const END_WITH_ID: u8 = 0xfc;
const STRUCT: u8 = 0xfd;
const END: u8 = 0xff;

fn write(ty: &Type, out: &mut Vec<u8>) {
    match ty {
        Type::Unit => out.push(UNIT),
        Type::Scalar(scalar) => out.push(scalar.id()),
        Type::String(character) => out.extend([STRING, character.scalar().id()]),
        Type::Array(item, count) => {
            out.push(ARRAY);
            write(item, out);
            write_number(*count as u64, out);
        }
        Type::List(item) => write_all(LIST, [&**item], out),
        Type::Set(item) => write_all(SET, [&**item], out),
        Type::Map(key, value) => write_all(MAP, [&**key, &**value], out),
        Type::Optional(value) => write_all(OPTIONAL, [&**value], out),
        Type::Expected(value, error) => write_all(EXPECTED, [&**value, &**error], out),
        Type::Variant(alternatives) => {
            write_all(VARIANT, alternatives, out);
            out.push(END);
        }
        Type::Struct(this) => write_struct(this, out),
        Type::Recursive(levels) => {
            out.push(RECURSIVE);
            write_number(*levels as u64, out);
        }
    }
}

fn write_all<'t>(id: u8, types: impl IntoIterator<Item = &'t Type>, out: &mut Vec<u8>) {
    out.push(id);
    types.into_iter().for_each(|ty| write(ty, out));
}

fn write_struct(this: &Struct, out: &mut Vec<u8>) {
    write_all(STRUCT, &this.members, out);
    if let Some(placement) = this.placement() {
        write_number(placement.pack as u64, out);
        write_number(placement.layout.align as u64, out);
    }
    match this.id {
        None => out.push(END),
        Some(id) => {
            out.push(END_WITH_ID);
            write_number(id, out);
        }
    }
}

/// Writes base-127 digits, lowest first, none of them zero; only the last has the high bit.
fn write_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= BASE {
        out.push((number % BASE) as u8 + 1);
        number /= BASE;
    }
    out.push(number as u8 + LAST);
}

const BASE: u64 = 127;
const LAST: u8 = 129;

struct Reader<'a> {
    rest: &'a [u8],
    depth: usize,
}

impl Reader<'_> {
    fn ty(&mut self) -> Result<Type, Error> {
        self.depth += 1;
        if self.depth > MAX_TYPE_DEPTH {
            return Err(Error::TooDeep);
        }
        let ty = self.ty_behind()?;
        self.depth -= 1;
        Ok(ty)
    }

    fn ty_behind(&mut self) -> Result<Type, Error> {
        Ok(match self.byte()? {
            STRING => Type::String(self.character()?),
            ARRAY => Type::Array(self.boxed_type()?, self.count()?),
            MAP => Type::Map(self.boxed_type()?, self.boxed_type()?),
            SET => Type::Set(self.boxed_type()?),
            LIST => Type::List(self.boxed_type()?),
            OPTIONAL => Type::Optional(self.boxed_type()?),
            EXPECTED => Type::Expected(self.boxed_type()?, self.boxed_type()?),
            VARIANT => Type::Variant(self.alternatives()?),
            STRUCT => Type::Struct(self.structure()?),
            UNIT => Type::Unit,
            RECURSIVE => Type::Recursive(self.count()?),
            id => match Scalar::from_id(id) {
                Some(scalar) => Type::Scalar(scalar),
                None => return Err(Error::ty(format!("no type is known for {id:02x} in a literal"))),
            },
        })
    }

    fn boxed_type(&mut self) -> Result<Box<Type>, Error> {
        self.ty().map(Box::new)
    }

    fn character(&mut self) -> Result<Character, Error> {
        let id = self.byte()?;
        [Character::Char, Character::Char16, Character::Char32]
            .into_iter()
            .find(|character| character.scalar().id() == id)
            .ok_or_else(|| Error::ty(format!("no string is known of characters {id:02x}")))
    }

    fn alternatives(&mut self) -> Result<Vec<Type>, Error> {
        let mut alternatives = vec![self.ty()?];
        while self.rest.first() != Some(&END) {
            alternatives.push(self.ty()?);
        }
        self.byte()?;
        Ok(alternatives)
    }

    fn structure(&mut self) -> Result<Struct, Error> {
        let (mut members, mut image) = (Vec::new(), Image::Never);
        loop {
            if let Some(packed) = self.packed_image() {
                image = packed;
                break;
            }
            match self.rest.first() {
                Some(&(END | END_WITH_ID)) => break,
                _ => members.push(self.ty()?),
            }
        }
        let id = match self.byte()? {
            END_WITH_ID => Some(self.number()?),
            _ => None,
        };
        if members.is_empty() {
            return Err(Error::ty("a struct has no members"));
        }
        let this = Struct { members, image, id };
        match image {
            Image::Packed { .. } if this.placement().is_none() => {
                Err(Error::ty("the declared memory layout of a struct does not fit its members"))
            }
            _ => Ok(this.simplify()),
        }
    }

    /// Parses two numbers before the end. No member looks like them: a member that starts with the same byte is
    /// followed by another type, which the end is not.
    fn packed_image(&mut self) -> Option<Image> {
        let [pack, align, END | END_WITH_ID, ..] = *self.rest else { return None };
        let power = |byte: u8| {
            let number = usize::from(byte.checked_sub(LAST)?);
            number.is_power_of_two().then_some(number)
        };
        let image = Image::Packed { pack: power(pack)?, align: power(align)? };
        self.rest = self.rest.get(2..)?;
        Some(image)
    }

    fn count(&mut self) -> Result<usize, Error> {
        usize::try_from(self.number()?).map_err(|_| Error::ty("a number in a literal is too large"))
    }

    fn number(&mut self) -> Result<u64, Error> {
        let (mut number, mut weight) = (0u64, 1u64);
        loop {
            let byte = self.byte()?;
            let (digit, last) = match byte {
                1..=127 => (byte - 1, false),
                LAST.. => (byte - LAST, true),
                _ => return Err(Error::ty("a number in a literal has no such digit")),
            };
            let read = weight.checked_mul(digit.into()).and_then(|value| number.checked_add(value));
            number = read.ok_or_else(|| Error::ty("a number in a literal is too large"))?;
            match last {
                true if digit == 0 && weight > 1 => {
                    return Err(Error::ty("a number in a literal begins with zero"));
                }
                true => return Ok(number),
                false => {}
            }
            weight =
                weight.checked_mul(BASE).ok_or_else(|| Error::ty("a number in a literal is too long"))?;
        }
    }

    fn byte(&mut self) -> Result<u8, Error> {
        let (&byte, rest) =
            self.rest.split_first().ok_or_else(|| Error::ty("the literal of a type ends within it"))?;
        self.rest = rest;
        Ok(byte)
    }
}

impl Struct {
    /// Replaces the [`Image`] by the simplest equivalent one.
    fn simplify(mut self) -> Self {
        let given = self.image;
        self.image = Image::Natural;
        let natural = self.placement();
        self.image = match (given, natural) {
            (Image::Packed { pack, align }, Some(natural))
                if (natural.pack, natural.layout.align) == (pack, align) =>
            {
                Image::Natural
            }
            (given, _) => given,
        };
        self
    }
}
