//! Rust names and types of schema elements.

use buffa_codegen::idents::{make_field_ident, rust_path_to_tokens};
use proc_macro2::{Ident, Literal, TokenStream};
use quote::quote;

use super::super::schema::{Default, Enum, Scalar, Schema, Type};
use crate::doc;

/// Names of a schema's types, relative to a namespace.
pub(super) struct Names<'s> {
    pub(super) schema: &'s Schema,
    pub(super) namespace: &'s str,
}

impl Names<'_> {
    /// Type that a field, or an element, has when it is read: `i32`, `Monster`, `Text`.
    pub(super) fn value(&self, ty: &Type) -> TokenStream {
        match ty {
            Type::Scalar(scalar) => scalar_type(*scalar),
            Type::Text => quote!(::polyrpc::flatbuffers::Text<'static>),
            Type::Vector(element) => {
                let element = self.value(element);
                quote!([#element])
            }
            Type::Array(element, count) => {
                let (element, count) = (self.value(element), usize::from(*count));
                quote!([#element; #count])
            }
            Type::Enum(_) | Type::Struct(_) | Type::Table(_) | Type::Union(_) => self.type_path(ty, ""),
        }
    }

    /// Rust type of a declared type, with a suffix to its name: `MonsterRef`.
    pub(super) fn type_path(&self, ty: &Type, suffix: &str) -> TokenStream {
        let (namespace, name) = match ty {
            Type::Enum(at) => (&self.schema.enums[*at].namespace, &self.schema.enums[*at].name),
            Type::Struct(at) => (&self.schema.structs[*at].namespace, &self.schema.structs[*at].name),
            Type::Table(at) => (&self.schema.tables[*at].namespace, &self.schema.tables[*at].name),
            Type::Union(at) => (&self.schema.unions[*at].namespace, &self.schema.unions[*at].name),
            Type::Scalar(_) | Type::Text | Type::Vector(_) | Type::Array(..) => return self.value(ty),
        };
        self.path(namespace, &format!("{name}{suffix}"))
    }

    /// Path to a type of a namespace.
    fn path(&self, namespace: &str, name: &str) -> TokenStream {
        let ident = make_field_ident(name);
        if namespace == self.namespace {
            return quote!(#ident);
        }
        let up = self.namespace.split('.').filter(|segment| !segment.is_empty()).map(|_| "super");
        let down = namespace.split('.').filter(|segment| !segment.is_empty());
        let modules: Vec<&str> = up.chain(down).collect();
        let modules = rust_path_to_tokens(&modules.join("::"));
        quote!(#modules::#ident)
    }

    /// Literal of a scalar's or an enum's type.
    pub(super) fn default(&self, ty: &Type, default: &Default) -> TokenStream {
        match (ty, default) {
            (Type::Scalar(Scalar::Bool), Default::Integer(value)) => {
                let yes = *value != 0;
                quote!(#yes)
            }
            (Type::Scalar(scalar), Default::Integer(value)) if scalar.is_float() => {
                float(*scalar, *value as f64)
            }
            (Type::Scalar(scalar), Default::Float(value)) => float(*scalar, *value),
            (Type::Scalar(_), Default::Integer(value)) => integer(*value),
            (Type::Enum(at), Default::Integer(value)) => {
                let known = &self.schema.enums[*at];
                let path = self.type_path(ty, "");
                match known.values.iter().find(|known| known.value == *value) {
                    Some(named) => {
                        let name = make_field_ident(&named.name);
                        quote!(#path::#name)
                    }
                    None => {
                        let value = integer(*value);
                        quote!(#path(#value))
                    }
                }
            }
            _ => quote!(::core::default::Default::default()),
        }
    }

    /// Whether a table's arguments borrow anything.
    pub(super) fn table_borrows(&self, table: usize) -> bool {
        self.schema.tables[table].fields.iter().filter(|field| !field.deprecated).any(|field| {
            matches!(field.ty, Type::Text | Type::Vector(_) | Type::Table(_))
                || matches!(field.ty, Type::Union(union) if self.union_borrows(union))
        })
    }

    /// Whether a union's arguments borrow anything.
    pub(super) fn union_borrows(&self, union: usize) -> bool {
        self.schema.unions[union]
            .members
            .iter()
            .any(|member| matches!(member.ty, Type::Table(_) | Type::Text))
    }

    /// Arguments type of a table or a union, with its lifetime if it has one.
    pub(super) fn args(&self, ty: &Type) -> TokenStream {
        let path = self.type_path(ty, "Args");
        let borrows = match ty {
            Type::Table(at) => self.table_borrows(*at),
            Type::Union(at) => self.union_borrows(*at),
            _ => false,
        };
        if borrows { quote!(#path<'a>) } else { path }
    }
}

/// Type of strings, for reading and writing.
pub(super) fn text() -> TokenStream {
    quote!(::polyrpc::flatbuffers::Text<'a>)
}

pub(super) fn scalar_type(scalar: Scalar) -> TokenStream {
    match scalar {
        Scalar::Bool => quote!(bool),
        Scalar::I8 => quote!(i8),
        Scalar::U8 => quote!(u8),
        Scalar::I16 => quote!(i16),
        Scalar::U16 => quote!(u16),
        Scalar::I32 => quote!(i32),
        Scalar::U32 => quote!(u32),
        Scalar::I64 => quote!(i64),
        Scalar::U64 => quote!(u64),
        Scalar::F32 => quote!(f32),
        Scalar::F64 => quote!(f64),
    }
}

/// Integer literal whose type is inferred.
pub(super) fn integer(value: i128) -> TokenStream {
    let digits = Literal::u128_unsuffixed(value.unsigned_abs());
    if value < 0 { quote!(-#digits) } else { quote!(#digits) }
}

fn float(scalar: Scalar, value: f64) -> TokenStream {
    let ty = scalar_type(scalar);
    if value.is_nan() {
        return quote!(#ty::NAN);
    }
    if value.is_infinite() {
        return if value > 0.0 { quote!(#ty::INFINITY) } else { quote!(#ty::NEG_INFINITY) };
    }
    let digits = match scalar {
        Scalar::F32 => Literal::f32_unsuffixed(value.abs() as f32),
        _ => Literal::f64_unsuffixed(value.abs()),
    };
    if value.is_sign_negative() { quote!(-#digits) } else { quote!(#digits) }
}

/// Literal of a field's id.
pub(super) fn number(id: u16) -> Literal {
    Literal::u16_unsuffixed(id)
}

pub(super) fn ident(name: &str) -> Ident {
    make_field_ident(name)
}

/// Returns a name for generated code that does not clash with those of the schema.
pub(super) fn unused_ident<'n>(name: &str, taken: impl Iterator<Item = &'n str> + Clone) -> Ident {
    let mut name = name.to_owned();
    while taken.clone().any(|taken| taken == name) {
        name.push('_');
    }
    make_field_ident(&name)
}

/// Type name with a suffix.
pub(super) fn ident_with(name: &str, suffix: &str) -> Ident {
    make_field_ident(&format!("{name}{suffix}"))
}

/// Doc comment from a schema's comment.
pub(super) fn docs(lines: &[String]) -> TokenStream {
    let lines = doc::lines(&lines.join("\n"));
    quote!(#(#[doc = #lines])*)
}

/// Doc comment from a schema's comment, or a default if there is none.
pub(super) fn docs_or(lines: &[String], default: &str) -> TokenStream {
    match doc::lines(&lines.join("\n")) {
        lines if lines.is_empty() => {
            let default = format!(" {default}");
            quote!(#[doc = #default])
        }
        lines => quote!(#(#[doc = #lines])*),
    }
}

/// Underlying integer type of an enum.
pub(super) fn base(known: &Enum) -> TokenStream {
    scalar_type(known.base)
}
