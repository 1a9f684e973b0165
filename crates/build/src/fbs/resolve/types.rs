//! Resolution of declared types.

use super::names::Named;
use super::values::integer;
use super::{Resolver, fail};
use crate::Error;
use crate::error::Position;
use crate::fbs::ast::{TypeDecl, TypeKind};
use crate::fbs::load::SourceFile;
use crate::fbs::schema::{Scalar, Type};

impl<'f> Resolver<'f> {
    pub(super) fn ty(&self, file: &SourceFile, decl: &TypeDecl, namespace: &str) -> Result<Type, Error> {
        match &decl.kind {
            TypeKind::Named(name) => self.named_type(file, name, decl.at, namespace),
            TypeKind::Vector(element) => match self.ty(file, element, namespace)? {
                Type::Vector(_) | Type::Array(..) => {
                    Err(fail(file, element.at, "a vector of vectors needs a table between them".into()))
                }
                element => Ok(Type::Vector(Box::new(element))),
            },
            TypeKind::Array(element, count) => {
                let len = integer(file, count)?;
                let len = u16::try_from(len).ok().filter(|len| *len > 0);
                let len =
                    len.ok_or_else(|| fail(file, count.at, "an array has 1 to 65535 elements".into()))?;
                match self.ty(file, element, namespace)? {
                    Type::Vector(_) | Type::Array(..) => {
                        Err(fail(file, element.at, "an array of arrays needs a struct between them".into()))
                    }
                    element => Ok(Type::Array(Box::new(element), len)),
                }
            }
        }
    }

    pub(super) fn named_type(
        &self,
        file: &SourceFile,
        name: &str,
        at: Position,
        namespace: &str,
    ) -> Result<Type, Error> {
        if name == "string" {
            return Ok(Type::Text);
        }
        if let Some(scalar) = scalar(name) {
            return Ok(Type::Scalar(scalar));
        }
        let found = self.names.find(name, namespace).map(Named::ty);
        found.ok_or_else(|| fail(file, at, format!("there is no type `{name}`")))
    }
}

pub(super) fn scalar(name: &str) -> Option<Scalar> {
    Some(match name {
        "bool" => Scalar::Bool,
        "byte" | "int8" => Scalar::I8,
        "ubyte" | "uint8" => Scalar::U8,
        "short" | "int16" => Scalar::I16,
        "ushort" | "uint16" => Scalar::U16,
        "int" | "int32" => Scalar::I32,
        "uint" | "uint32" => Scalar::U32,
        "long" | "int64" => Scalar::I64,
        "ulong" | "uint64" => Scalar::U64,
        "float" | "float32" => Scalar::F32,
        "double" | "float64" => Scalar::F64,
        _ => return None,
    })
}
