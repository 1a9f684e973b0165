//! Declarations of a file, before names are resolved.

use crate::error::Position;

#[derive(Debug, Default)]
pub(super) struct Declared {
    pub(super) includes: Vec<Located<String>>,
    pub(super) attributes: Vec<String>,
    pub(super) objects: Vec<Object>,
    pub(super) enums: Vec<EnumDecl>,
    pub(super) services: Vec<ServiceDecl>,
    /// `root_type`, with the namespace of the declaration.
    pub(super) root: Option<(Located<String>, String)>,
    pub(super) identifier: Option<Located<String>>,
    pub(super) extension: Option<String>,
}

/// Value with its position.
#[derive(Debug, Clone)]
pub(super) struct Located<T> {
    pub(super) value: T,
    pub(super) at: Position,
}

/// Common start of every declaration.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) docs: Vec<String>,
    pub(super) name: Located<String>,
    pub(super) namespace: String,
    pub(super) attributes: Vec<Attribute>,
}

#[derive(Debug)]
pub(super) struct Attribute {
    pub(super) name: Located<String>,
    pub(super) value: Option<Literal>,
}

/// A table or a struct.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) head: Head,
    pub(super) fixed: bool,
    pub(super) fields: Vec<FieldDecl>,
}

#[derive(Debug)]
pub(super) struct FieldDecl {
    pub(super) docs: Vec<String>,
    pub(super) name: Located<String>,
    pub(super) ty: TypeDecl,
    pub(super) default: Option<Literal>,
    pub(super) attributes: Vec<Attribute>,
}

#[derive(Debug)]
pub(super) struct TypeDecl {
    pub(super) at: Position,
    pub(super) kind: TypeKind,
}

#[derive(Debug)]
pub(super) enum TypeKind {
    Named(String),
    Vector(Box<TypeDecl>),
    Array(Box<TypeDecl>, Located<Value>),
}

/// An enum or a union.
#[derive(Debug)]
pub(super) struct EnumDecl {
    pub(super) head: Head,
    pub(super) union: bool,
    pub(super) base: Option<TypeDecl>,
    pub(super) values: Vec<ValueDecl>,
}

#[derive(Debug)]
pub(super) struct ValueDecl {
    pub(super) docs: Vec<String>,
    /// Contains dots if a union names a type of another namespace.
    pub(super) name: Located<String>,
    pub(super) ty: Option<TypeDecl>,
    pub(super) value: Option<Literal>,
}

#[derive(Debug)]
pub(super) struct ServiceDecl {
    pub(super) head: Head,
    pub(super) methods: Vec<MethodDecl>,
}

#[derive(Debug)]
pub(super) struct MethodDecl {
    pub(super) docs: Vec<String>,
    pub(super) name: Located<String>,
    pub(super) request: Located<String>,
    pub(super) response: Located<String>,
    pub(super) attributes: Vec<Attribute>,
}

pub(super) type Literal = Located<Value>;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// Including its sign.
    Number(String),
    /// `true`, `null`, `Red`, `Color.Red`; `-inf` too.
    Word(String),
    Text(String),
    /// `[]`
    Empty,
}
