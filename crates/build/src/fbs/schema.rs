//! A schema with its names linked and everything in its place.

use std::path::PathBuf;

/// What some files declare, with all that they include.
#[derive(Debug, Clone, PartialEq)]
pub struct Schema {
    /// The files, each after those that it includes.
    pub files: Vec<File>,
    /// Every table.
    pub tables: Vec<Table>,
    /// Every struct.
    pub structs: Vec<Struct>,
    /// Every enum.
    pub enums: Vec<Enum>,
    /// Every union.
    pub unions: Vec<Union>,
    /// Every service.
    pub services: Vec<Service>,
}

/// A file of a schema.
#[derive(Debug, Clone, PartialEq)]
pub struct File {
    /// Its path below the directory it was found under.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// It was asked for, and not only included.
    pub named: bool,
    /// What its `root_type` says: among the tables.
    pub root: Option<usize>,
    /// What its `file_extension` says.
    pub extension: Option<String>,
}

/// What a field or an element is. A number is the place among the tables, structs, enums or unions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// A scalar.
    Scalar(Scalar),
    /// An enum.
    Enum(usize),
    /// A struct.
    Struct(usize),
    /// A table.
    Table(usize),
    /// A union, of which the type has the id before.
    Union(usize),
    /// A string.
    Text,
    /// A vector.
    Vector(Box<Self>),
    /// So many elements, in a struct.
    Array(Box<Self>, u16),
}

/// A scalar type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are what they are called")]
pub enum Scalar {
    Bool,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

impl Scalar {
    /// Bytes of one.
    pub fn size(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Whether it has a fractional part.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    /// The least and the greatest integer; `None` for what holds others.
    pub fn range(self) -> Option<(i128, i128)> {
        Some(match self {
            Self::I8 => (i8::MIN.into(), i8::MAX.into()),
            Self::U8 => (0, u8::MAX.into()),
            Self::I16 => (i16::MIN.into(), i16::MAX.into()),
            Self::U16 => (0, u16::MAX.into()),
            Self::I32 => (i32::MIN.into(), i32::MAX.into()),
            Self::U32 => (0, u32::MAX.into()),
            Self::I64 => (i64::MIN.into(), i64::MAX.into()),
            Self::U64 => (0, u64::MAX.into()),
            Self::Bool | Self::F32 | Self::F64 => return None,
        })
    }
}

/// A table.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// What is written about it.
    pub docs: Vec<String>,
    /// Its namespace, with dots; empty for the global one.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its fields, by id. Those of unions stand for two ids.
    pub fields: Vec<Field>,
    /// Its fields are written as they are declared, and not by size.
    pub original_order: bool,
    /// The four letters that a file with it as the root bears.
    pub identifier: Option<[u8; 4]>,
}

/// A field of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// What is written about it.
    pub docs: Vec<String>,
    /// Its name.
    pub name: String,
    /// Its id; a union's type has the one before.
    pub id: u16,
    /// What it holds.
    pub ty: Type,
    /// What it is when it is absent.
    pub default: Default,
    /// It may not be absent.
    pub required: bool,
    /// Nobody should read or write it any more.
    pub deprecated: bool,
    /// Vectors of the table are sorted by it.
    pub key: bool,
    /// The bytes are a FlatBuffer with this table as the root.
    pub nested: Option<usize>,
    /// A name in JSON stands for its hash.
    pub hash: Option<Hash>,
}

/// What an absent field is.
#[derive(Debug, Clone, PartialEq)]
pub enum Default {
    /// Absent.
    None,
    /// This number; `bool` has 0 and 1.
    Integer(i128),
    /// This number.
    Float(f64),
    /// This string.
    Text(String),
    /// A vector without elements.
    Empty,
}

/// How a name becomes a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash {
    /// Of the number.
    pub bits: u8,
    /// FNV-1a instead of FNV-1.
    pub alternate: bool,
}

/// A struct: fields in fixed places.
#[derive(Debug, Clone, PartialEq)]
pub struct Struct {
    /// What is written about it.
    pub docs: Vec<String>,
    /// Its namespace, with dots; empty for the global one.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its fields, in order.
    pub fields: Vec<StructField>,
    /// Bytes of one.
    pub size: usize,
    /// What its place is a multiple of.
    pub align: usize,
}

/// A field of a struct.
#[derive(Debug, Clone, PartialEq)]
pub struct StructField {
    /// What is written about it.
    pub docs: Vec<String>,
    /// Its name.
    pub name: String,
    /// What it holds: a scalar, an enum, a struct, an array of those.
    pub ty: Type,
    /// Where it begins.
    pub offset: usize,
    /// Vectors of the struct are sorted by it.
    pub key: bool,
    /// Nobody should read or write it any more.
    pub deprecated: bool,
}

/// An enum.
#[derive(Debug, Clone, PartialEq)]
pub struct Enum {
    /// What is written about it.
    pub docs: Vec<String>,
    /// Its namespace, with dots; empty for the global one.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What it is written as.
    pub base: Scalar,
    /// Its values are bits, any number of which may be set.
    pub bit_flags: bool,
    /// Its values.
    pub values: Vec<EnumValue>,
}

/// A value of an enum.
#[derive(Debug, Clone, PartialEq)]
pub struct EnumValue {
    /// What is written about it.
    pub docs: Vec<String>,
    /// Its name.
    pub name: String,
    /// Its number: the bit itself for flags.
    pub value: i128,
}

/// A union.
#[derive(Debug, Clone, PartialEq)]
pub struct Union {
    /// What is written about it.
    pub docs: Vec<String>,
    /// Its namespace, with dots; empty for the global one.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What it may hold, beside nothing.
    pub members: Vec<Member>,
}

/// What a union may hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// What is written about it.
    pub docs: Vec<String>,
    /// Its name.
    pub name: String,
    /// The number of its type, which is not 0.
    pub number: u8,
    /// A table, a struct or a string.
    pub ty: Type,
}

/// A service.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// What is written about it.
    pub docs: Vec<String>,
    /// Its namespace, with dots; empty for the global one.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its methods, in order.
    pub methods: Vec<Method>,
    /// Among the files.
    pub file: usize,
}

/// A method of a service.
#[derive(Debug, Clone, PartialEq)]
pub struct Method {
    /// What is written about it.
    pub docs: Vec<String>,
    /// Its name.
    pub name: String,
    /// The request, among the tables.
    pub request: usize,
    /// The response, among the tables.
    pub response: usize,
    /// Its number, if the schema gives it one.
    pub id: Option<u32>,
    /// The caller sends any number of messages.
    pub client_streams: bool,
    /// The method answers with any number of messages.
    pub server_streams: bool,
    /// Where it is declared: line and column.
    pub at: (i32, i32),
}

impl Service {
    /// The full name: namespace, dot, name.
    pub fn full_name(&self) -> String {
        full(&self.namespace, &self.name)
    }
}

impl Table {
    /// The full name: namespace, dot, name.
    pub fn full_name(&self) -> String {
        full(&self.namespace, &self.name)
    }
}

impl Schema {
    /// Bytes of one in its place, and what that is a multiple of: what lies elsewhere has a distance there.
    pub fn inline(&self, ty: &Type) -> (usize, usize) {
        match ty {
            Type::Scalar(scalar) => (scalar.size(), scalar.size()),
            Type::Enum(at) => self.inline(&Type::Scalar(self.enums[*at].base)),
            Type::Struct(at) => (self.structs[*at].size, self.structs[*at].align),
            Type::Array(element, count) => {
                let (size, align) = self.inline(element);
                (size * usize::from(*count), align)
            }
            Type::Table(_) | Type::Union(_) | Type::Text | Type::Vector(_) => (4, 4),
        }
    }
}

/// A name with its namespace before it.
pub(super) fn full(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}.{name}") }
}
