//! Schema with resolved names and computed layouts.

use std::path::PathBuf;

/// Declarations of some files, with all that they include.
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
    /// Path relative to the include directory in which it was found.
    pub name: String,
    /// Path of the file.
    pub path: PathBuf,
    /// Whether the file was named, and not only included.
    pub named: bool,
    /// `root_type`, as an index of the tables.
    pub root: Option<usize>,
    /// `file_extension`.
    pub extension: Option<String>,
}

/// Type of a field or an element. A number is an index of the tables, structs, enums or unions.
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
    /// A union, whose type field has the preceding id.
    Union(usize),
    /// A string.
    Text,
    /// A vector.
    Vector(Box<Self>),
    /// Fixed-length array, in a struct.
    Array(Box<Self>, u16),
}

/// A scalar type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
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
    /// Size in bytes.
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

    /// Minimum and maximum integer; `None` for types that are no integers.
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
    /// Lines of the doc comment.
    pub docs: Vec<String>,
    /// Namespace, with dots; empty for the global one.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Fields, by id. Those of unions use two ids.
    pub fields: Vec<Field>,
    /// Whether fields are written in their declared order, and not by size.
    pub original_order: bool,
    /// File identifier of four letters of a file with this table as its root.
    pub identifier: Option<[u8; 4]>,
}

/// A field of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Lines of the doc comment.
    pub docs: Vec<String>,
    /// Name.
    pub name: String,
    /// Id; a union's type has the preceding one.
    pub id: u16,
    /// Type.
    pub ty: Type,
    /// Value of an absent field.
    pub default: Default,
    /// Whether the field must be present.
    pub required: bool,
    /// Whether the field should no longer be read or written.
    pub deprecated: bool,
    /// Whether vectors of the table are sorted by this field.
    pub key: bool,
    /// Table that is the root of the FlatBuffer in the bytes.
    pub nested: Option<usize>,
    /// Hash by which a name in JSON is converted to a number.
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

/// Hash of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash {
    /// Bits of the hash.
    pub bits: u8,
    /// FNV-1a instead of FNV-1.
    pub alternate: bool,
}

/// A struct: fields at fixed offsets.
#[derive(Debug, Clone, PartialEq)]
pub struct Struct {
    /// Lines of the doc comment.
    pub docs: Vec<String>,
    /// Namespace, with dots; empty for the global one.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Fields, in order.
    pub fields: Vec<StructField>,
    /// Size in bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
}

/// A field of a struct.
#[derive(Debug, Clone, PartialEq)]
pub struct StructField {
    /// Lines of the doc comment.
    pub docs: Vec<String>,
    /// Name.
    pub name: String,
    /// Type: a scalar, an enum, a struct, or an array of those.
    pub ty: Type,
    /// Offset in bytes.
    pub offset: usize,
    /// Whether vectors of the struct are sorted by this field.
    pub key: bool,
    /// Whether the field should no longer be read or written.
    pub deprecated: bool,
}

/// An enum.
#[derive(Debug, Clone, PartialEq)]
pub struct Enum {
    /// Lines of the doc comment.
    pub docs: Vec<String>,
    /// Namespace, with dots; empty for the global one.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Underlying integer type.
    pub base: Scalar,
    /// Whether the values are bits, any number of which may be set.
    pub bit_flags: bool,
    /// Values.
    pub values: Vec<EnumValue>,
}

/// A value of an enum.
#[derive(Debug, Clone, PartialEq)]
pub struct EnumValue {
    /// Lines of the doc comment.
    pub docs: Vec<String>,
    /// Name.
    pub name: String,
    /// Number: the bit itself for flags.
    pub value: i128,
}

/// A union.
#[derive(Debug, Clone, PartialEq)]
pub struct Union {
    /// Lines of the doc comment.
    pub docs: Vec<String>,
    /// Namespace, with dots; empty for the global one.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Members, besides the empty one.
    pub members: Vec<Member>,
}

/// Member of a union.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Lines of the doc comment.
    pub docs: Vec<String>,
    /// Name.
    pub name: String,
    /// Number of its type, which is not 0.
    pub number: u8,
    /// Type: a table, a struct or a string.
    pub ty: Type,
}

/// A service.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// Lines of the doc comment.
    pub docs: Vec<String>,
    /// Namespace, with dots; empty for the global one.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Methods, in order.
    pub methods: Vec<Method>,
    /// Index of the file.
    pub file: usize,
}

/// A method of a service.
#[derive(Debug, Clone, PartialEq)]
pub struct Method {
    /// Lines of the doc comment.
    pub docs: Vec<String>,
    /// Name.
    pub name: String,
    /// Request, as an index of the tables.
    pub request: usize,
    /// Response, as an index of the tables.
    pub response: usize,
    /// Number, if the schema declares one.
    pub id: Option<u32>,
    /// Whether the client streams its messages.
    pub client_streams: bool,
    /// Whether the server streams its messages.
    pub server_streams: bool,
    /// Position of the declaration: line and column.
    pub at: (i32, i32),
}

impl Service {
    /// The full name: namespace, dot, name.
    pub fn full_name(&self) -> String {
        full_name(&self.namespace, &self.name)
    }
}

impl Table {
    /// The full name: namespace, dot, name.
    pub fn full_name(&self) -> String {
        full_name(&self.namespace, &self.name)
    }
}

impl Schema {
    /// Returns the size and the alignment of an inline value; other values have an offset in their place.
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

/// Returns a name with its namespace.
pub(super) fn full_name(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}.{name}") }
}
