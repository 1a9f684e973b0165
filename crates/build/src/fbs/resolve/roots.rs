//! Root type of each file, and its file identifier.

use super::names::Named;
use super::{Resolver, fail};
use crate::Error;
use crate::fbs::ast::Located;
use crate::fbs::load::SourceFile;

impl<'f> Resolver<'f> {
    pub(super) fn resolve_roots(&mut self) -> Result<(), Error> {
        for (index, file) in self.files.iter().enumerate() {
            let Some((name, namespace)) = &file.declared.root else {
                // Without a root the identifier has no effect, but must be valid.
                if let Some(identifier) = &file.declared.identifier {
                    parse_identifier(file, identifier)?;
                }
                continue;
            };
            let Some(Named::Table(table)) = self.names.find(&name.value, namespace) else {
                return Err(fail(file, name.at, format!("there is no table `{}`", name.value)));
            };
            self.schema.files[index].root = Some(table);
            if let Some(identifier) = &file.declared.identifier {
                self.schema.tables[table].identifier = Some(parse_identifier(file, identifier)?);
            }
        }
        Ok(())
    }
}

fn parse_identifier(file: &SourceFile, identifier: &Located<String>) -> Result<[u8; 4], Error> {
    let bytes = <[u8; 4]>::try_from(identifier.value.as_bytes());
    bytes.map_err(|_| fail(file, identifier.at, "a file identifier has four bytes".into()))
}
