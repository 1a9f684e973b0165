//! Text form of types, close to C++: `tuple<int32, vector<string>>`.

use std::fmt;
use std::str::FromStr;

use super::types::{Character, Image, Scalar, Struct, Type};
use super::{Error, MAX_TYPE_DEPTH};

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit => f.write_str("monostate"),
            Self::Scalar(scalar) => f.write_str(scalar.as_str()),
            Self::String(Character::Char) => f.write_str("string"),
            Self::String(Character::Char16) => f.write_str("u16string"),
            Self::String(Character::Char32) => f.write_str("u32string"),
            Self::Array(item, count) => write!(f, "array<{item}, {count}>"),
            Self::List(item) => write!(f, "vector<{item}>"),
            Self::Set(item) => write!(f, "set<{item}>"),
            Self::Map(key, value) => write!(f, "map<{key}, {value}>"),
            Self::Optional(value) => write!(f, "optional<{value}>"),
            Self::Expected(value, error) => write!(f, "expected<{value}, {error}>"),
            Self::Variant(alternatives) => write!(f, "variant<{}>", TypeList(alternatives)),
            Self::Struct(this) => this.fmt(f),
            Self::Recursive(levels) => write!(f, "^{levels}"),
        }
    }
}

impl fmt::Display for Struct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.image {
            Image::Never => f.write_str("tuple<")?,
            Image::Natural => f.write_str("struct<")?,
            Image::Packed { pack, align } => write!(f, "packed<{pack}, {align}, ")?,
        }
        write!(f, "{}>", TypeList(&self.members))?;
        self.id.map_or(Ok(()), |id| write!(f, "#{id}"))
    }
}

/// A comma-separated list of types.
struct TypeList<'a>(&'a [Type]);

impl fmt::Display for TypeList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(at, ty)| match at {
            0 => write!(f, "{ty}"),
            _ => write!(f, ", {ty}"),
        })
    }
}

impl FromStr for Type {
    type Err = Error;

    /// Parses the output of [`Display`](fmt::Display), and the usual C++ names: `std::map<int, long>`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut parser = Parser { rest: text, depth: 0 };
        let ty = parser.ty()?;
        parser.end()?;
        Ok(ty)
    }
}

impl Type {
    /// Parses comma-separated types, such as the parameters of a function: `int32, string`.
    ///
    /// # Errors
    ///
    /// [`Error::Type`] if one of them is not a type.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, Error> {
        let mut parser = Parser { rest: text, depth: 0 };
        let types = parser.list()?;
        parser.end()?;
        Ok(types)
    }
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn list(&mut self) -> Result<Vec<Type>, Error> {
        let mut types = vec![self.ty()?];
        while self.takes(',') {
            types.push(self.ty()?);
        }
        Ok(types)
    }

    fn ty(&mut self) -> Result<Type, Error> {
        self.depth += 1;
        if self.depth > MAX_TYPE_DEPTH {
            return Err(Error::TooDeep);
        }
        let ty = match self.takes('^') {
            true => Type::Recursive(self.number()?),
            false => {
                let name = self.name();
                self.named_type(name)?
            }
        };
        self.depth -= 1;
        Ok(ty)
    }

    fn named_type(&mut self, name: &'a str) -> Result<Type, Error> {
        let plain = name.strip_prefix("std::").unwrap_or(name);
        Ok(match plain {
            "monostate" | "void" => Type::Unit,
            "string" | "string_view" => Type::String(Character::Char),
            "u16string" => Type::String(Character::Char16),
            "u32string" => Type::String(Character::Char32),
            "array" => self.between(|this| {
                let item = this.boxed_type()?;
                this.comma()?;
                Ok(Type::Array(item, this.number()?))
            })?,
            "vector" | "list" | "deque" => Type::List(self.between(Self::boxed_type)?),
            "set" | "multiset" | "unordered_set" => Type::Set(self.between(Self::boxed_type)?),
            "map" | "multimap" | "unordered_map" => {
                let (key, value) = self.between(Self::type_pair)?;
                Type::Map(key, value)
            }
            "optional" | "unique_ptr" => Type::Optional(self.between(Self::boxed_type)?),
            "expected" => {
                let (value, error) = self.between(Self::type_pair)?;
                Type::Expected(value, error)
            }
            "variant" => Type::Variant(self.between(Self::list)?),
            "tuple" => self.structure(Image::Never)?,
            "struct" | "pair" => self.structure(Image::Natural)?,
            "packed" => self.packed_struct()?,
            _ => Type::Scalar(scalar(plain.strip_suffix("_t").unwrap_or(plain)).ok_or_else(|| {
                Error::ty(match name {
                    "" => format!("a type is missing before {:?}", self.rest),
                    _ => format!("{name} is no type"),
                })
            })?),
        })
    }

    fn structure(&mut self, image: Image) -> Result<Type, Error> {
        let members = self.between(Self::list)?;
        self.finish_struct(Struct { members, image, id: None })
    }

    fn packed_struct(&mut self) -> Result<Type, Error> {
        let this = self.between(|this| {
            let pack = this.alignment()?;
            this.comma()?;
            let align = this.alignment()?;
            this.comma()?;
            Ok(Struct { members: this.list()?, image: Image::Packed { pack, align }, id: None })
        })?;
        self.finish_struct(this)
    }

    /// Parses an alignment that [`Type::from_literal`] accepts, too.
    fn alignment(&mut self) -> Result<usize, Error> {
        let number: usize = self.number()?;
        match number.is_power_of_two() && number <= 64 {
            true => Ok(number),
            false => Err(Error::ty(format!("{number} is no alignment"))),
        }
    }

    fn finish_struct(&mut self, mut this: Struct) -> Result<Type, Error> {
        if self.takes('#') {
            this.id = Some(self.number()?);
        }
        Ok(Type::Struct(this))
    }

    fn type_pair(&mut self) -> Result<(Box<Type>, Box<Type>), Error> {
        let first = self.boxed_type()?;
        self.comma()?;
        Ok((first, self.boxed_type()?))
    }

    fn boxed_type(&mut self) -> Result<Box<Type>, Error> {
        self.ty().map(Box::new)
    }

    /// Parses the content of angle brackets.
    fn between<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        self.expect('<')?;
        let inner = read(self)?;
        self.expect('>')?;
        Ok(inner)
    }

    fn comma(&mut self) -> Result<(), Error> {
        self.expect(',')
    }

    fn expect(&mut self, wanted: char) -> Result<(), Error> {
        match self.takes(wanted) {
            true => Ok(()),
            false => Err(Error::ty(format!("{wanted:?} is missing before {:?}", self.rest))),
        }
    }

    fn takes(&mut self, wanted: char) -> bool {
        match self.rest.trim_start().strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn number<N: FromStr>(&mut self) -> Result<N, Error> {
        let digits = self.name();
        digits.parse().map_err(|_| Error::ty(format!("{digits:?} is no number")))
    }

    fn name(&mut self) -> &'a str {
        let start = self.rest.trim_start();
        let end = start.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | ':')));
        let (name, rest) = start.split_at(end.unwrap_or(start.len()));
        self.rest = rest;
        name
    }

    fn end(&self) -> Result<(), Error> {
        match self.rest.trim() {
            "" => Ok(()),
            rest => Err(Error::ty(format!("{rest:?} goes on behind a type"))),
        }
    }
}

fn scalar(name: &str) -> Option<Scalar> {
    Some(match name {
        "int" => Scalar::I32,
        "unsigned" => Scalar::U32,
        "long" => Scalar::I64,
        "size" => Scalar::U64,
        "short" => Scalar::I16,
        "char8" => Scalar::Char,
        _ => *Scalar::ALL.iter().find(|scalar| scalar.as_str() == name)?,
    })
}
