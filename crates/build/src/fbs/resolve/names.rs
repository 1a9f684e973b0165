//! All declared names, and their lookup in a namespace.

use std::collections::{HashMap, HashSet};

use super::attributes::ATTRIBUTES;
use super::fail;
use crate::Error;
use crate::fbs::ast::Located;
use crate::fbs::load::SourceFile;
use crate::fbs::schema::{Type, full_name};

/// Declaration of a full name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    Table(usize),
    Struct(usize),
    Enum(usize),
    Union(usize),
}

impl Named {
    pub(super) fn ty(self) -> Type {
        match self {
            Self::Table(at) => Type::Table(at),
            Self::Struct(at) => Type::Struct(at),
            Self::Enum(at) => Type::Enum(at),
            Self::Union(at) => Type::Union(at),
        }
    }
}

/// All declared names, and the permitted attributes.
pub(super) struct Names<'f> {
    types: HashMap<String, Named>,
    pub(super) attributes: HashSet<&'f str>,
}

impl<'f> Names<'f> {
    pub(super) fn collect(files: &'f [SourceFile]) -> Result<Self, Error> {
        let mut names = Self { types: HashMap::new(), attributes: ATTRIBUTES.into_iter().collect() };
        let (mut tables, mut structs, mut enums, mut unions) = (0.., 0.., 0.., 0..);
        for file in files {
            names.attributes.extend(file.declared.attributes.iter().map(String::as_str));
            for object in &file.declared.objects {
                let named = match object.fixed {
                    true => structs.next().map(Named::Struct),
                    false => tables.next().map(Named::Table),
                };
                names.enter(file, &object.head.namespace, &object.head.name, named)?;
            }
            for decl in &file.declared.enums {
                let named = match decl.union {
                    true => unions.next().map(Named::Union),
                    false => enums.next().map(Named::Enum),
                };
                names.enter(file, &decl.head.namespace, &decl.head.name, named)?;
            }
        }
        Ok(names)
    }

    fn enter(
        &mut self,
        file: &SourceFile,
        namespace: &str,
        name: &Located<String>,
        named: Option<Named>,
    ) -> Result<(), Error> {
        let full_name = full_name(namespace, &name.value);
        match named.and_then(|named| self.types.insert(full_name.clone(), named)) {
            None => Ok(()),
            Some(_) => Err(fail(file, name.at, format!("`{full_name}` is declared twice"))),
        }
    }

    /// Looks up a name in a namespace or an enclosing one.
    pub(super) fn find(&self, name: &str, namespace: &str) -> Option<Named> {
        let mut namespace = namespace;
        loop {
            if let Some(named) = self.types.get(&full_name(namespace, name)) {
                return Some(*named);
            }
            if namespace.is_empty() {
                return None;
            }
            namespace = namespace.rsplit_once('.').map_or("", |(outer, _)| outer);
        }
    }
}
