//! Attributes: known names, and lookup in a declaration.

use super::{Resolver, fail};
use crate::Error;
use crate::fbs::ast::Attribute;
use crate::fbs::load::SourceFile;

impl<'f> Resolver<'f> {
    pub(super) fn check_attributes(&self, file: &SourceFile, attributes: &[Attribute]) -> Result<(), Error> {
        for attribute in attributes {
            let name = &attribute.name;
            if !self.names.attributes.contains(name.value.as_str()) {
                let reason =
                    format!("unknown attribute `{0}`; declare your own: `attribute \"{0}\";`", name.value);
                return Err(fail(file, name.at, reason));
            }
        }
        Ok(())
    }
}

pub(super) fn has(attributes: &[Attribute], name: &str) -> bool {
    find(attributes, name).is_some()
}

pub(super) fn find<'a>(attributes: &'a [Attribute], name: &str) -> Option<&'a Attribute> {
    attributes.iter().find(|attribute| attribute.name.value == name)
}

/// Attributes that flatc knows without a declaration (flatbuffers `idl.h`, `known_attributes_`), including those
/// without effect here.
pub(super) const ATTRIBUTES: [&str; 28] = [
    "bit_flags",
    "cpp_ptr_type",
    "cpp_ptr_type_get",
    "cpp_str_flex_ctor",
    "cpp_str_type",
    "cpp_type",
    "csharp_partial",
    "deprecated",
    "flexbuffer",
    "force_align",
    "hash",
    "id",
    "idempotent",
    "key",
    "native_custom_alloc",
    "native_default",
    "native_inline",
    "native_type",
    "native_type_pack_name",
    "nested_flatbuffer",
    "offset64",
    "original_order",
    "private",
    "python_disable_type_annotation",
    "required",
    "shared",
    "streaming",
    "vector64",
];
