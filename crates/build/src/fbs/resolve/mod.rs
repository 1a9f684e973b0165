//! From declarations to a [`Schema`]: resolves names, assigns ids and offsets, checks values.

mod attributes;
mod defaults;
mod enums;
mod names;
mod roots;
mod services;
mod structs;
mod tables;
mod types;
mod values;

use self::names::Names;
use super::ast::Object;
use super::load::SourceFile;
use super::schema::{File, Schema};
use crate::Error;
use crate::error::{Kind, Position, SourceLocation};

/// Resolves all declarations of the files.
pub(super) fn resolve(files: Vec<SourceFile>) -> Result<Schema, Error> {
    let names = Names::collect(&files)?;
    let mut resolver = Resolver::new(&files, &names);
    resolver.enums()?;
    resolver.structs()?;
    resolver.unions()?;
    resolver.tables()?;
    resolver.services()?;
    resolver.resolve_roots()?;
    Ok(resolver.schema)
}

struct Resolver<'f> {
    files: &'f [SourceFile],
    names: &'f Names<'f>,
    schema: Schema,
}

impl<'f> Resolver<'f> {
    fn new(files: &'f [SourceFile], names: &'f Names<'f>) -> Self {
        let described = files.iter().map(|file| File {
            name: file.name.clone(),
            path: file.path.clone(),
            named: file.named,
            root: None,
            extension: file.declared.extension.clone(),
        });
        let schema = Schema {
            files: described.collect(),
            tables: Vec::new(),
            structs: Vec::new(),
            enums: Vec::new(),
            unions: Vec::new(),
            services: Vec::new(),
        };
        Self { files, names, schema }
    }

    fn objects(&self, fixed: bool) -> Vec<(&'f SourceFile, &'f Object)> {
        let all =
            self.files.iter().flat_map(|file| file.declared.objects.iter().map(move |object| (file, object)));
        all.filter(|(_, object)| object.fixed == fixed).collect()
    }
}

#[cold]
fn fail(file: &SourceFile, at: Position, reason: String) -> Error {
    Kind::Schema { at: SourceLocation::new(&file.name, at), reason }.into()
}
