//! Tables, and the ids of their fields.

use std::collections::HashSet;

use super::attributes::{find, has};
use super::names::Named;
use super::values::integer;
use super::{Resolver, fail};
use crate::Error;
use crate::fbs::ast::{FieldDecl, Located, Object, Value};
use crate::fbs::load::SourceFile;
use crate::fbs::schema::{Field, Hash, Scalar, Table, Type};

impl<'f> Resolver<'f> {
    pub(super) fn tables(&mut self) -> Result<(), Error> {
        for (file, decl) in self.objects(false) {
            let resolved = self.table(file, decl)?;
            self.schema.tables.push(resolved);
        }
        Ok(())
    }

    fn table(&self, file: &SourceFile, decl: &Object) -> Result<Table, Error> {
        self.check_attributes(file, &decl.head.attributes)?;
        let mut fields = Vec::new();
        for field in &decl.fields {
            fields.push(self.field(file, field, &decl.head.namespace)?);
        }
        assign_ids(file, decl, &mut fields)?;
        check_names(file, decl, &fields)?;
        let inline: usize =
            fields.iter().map(|field| self.schema.inline(&field.ty)).map(|(size, align)| size + align).sum();
        if inline > usize::from(u16::MAX) {
            return Err(fail(
                file,
                decl.head.name.at,
                "the fields of a table have at most 65535 bytes".into(),
            ));
        }
        Ok(Table {
            docs: decl.head.docs.clone(),
            namespace: decl.head.namespace.clone(),
            name: decl.head.name.value.clone(),
            fields,
            original_order: has(&decl.head.attributes, "original_order"),
            identifier: None,
        })
    }

    fn field(&self, file: &SourceFile, decl: &FieldDecl, namespace: &str) -> Result<Field, Error> {
        self.check_attributes(file, &decl.attributes)?;
        let ty = self.ty(file, &decl.ty, namespace)?;
        if matches!(ty, Type::Array(..)) {
            return Err(fail(file, decl.ty.at, "only structs have arrays; a table has vectors".into()));
        }
        let key = has(&decl.attributes, "key");
        if key && !matches!(ty, Type::Scalar(_) | Type::Enum(_) | Type::Text) {
            return Err(fail(file, decl.name.at, "a key is a scalar, an enum or a string".into()));
        }
        let scalar = matches!(ty, Type::Scalar(_) | Type::Enum(_));
        let required = find(&decl.attributes, "required");
        if let Some(attribute) = required.filter(|_| scalar || decl.default.is_some()) {
            let reason = "a required field is not a scalar and has no default".to_owned();
            return Err(fail(file, attribute.name.at, reason));
        }
        if let Some(attribute) = find(&decl.attributes, "force_align") {
            return Err(fail(file, attribute.name.at, "`force_align` is for structs".into()));
        }
        let default = self.default(file, decl, &ty)?;
        Ok(Field {
            docs: decl.docs.clone(),
            name: decl.name.value.clone(),
            id: 0,
            nested: self.nested_table(file, decl, &ty, namespace)?,
            hash: hash(file, decl, &ty)?,
            default,
            // In flatc a string that is a key is required.
            required: required.is_some() || key && ty == Type::Text,
            deprecated: has(&decl.attributes, "deprecated"),
            key,
            ty,
        })
    }

    fn nested_table(
        &self,
        file: &SourceFile,
        decl: &FieldDecl,
        ty: &Type,
        namespace: &str,
    ) -> Result<Option<usize>, Error> {
        let Some(attribute) = find(&decl.attributes, "nested_flatbuffer") else { return Ok(None) };
        let at = attribute.name.at;
        if *ty != Type::Vector(Box::new(Type::Scalar(Scalar::U8))) {
            return Err(fail(file, at, "`nested_flatbuffer` is for `[ubyte]`".into()));
        }
        let Some(Located { value: Value::Text(name), at }) = &attribute.value else {
            return Err(fail(file, at, "expected a table: `nested_flatbuffer: \"Monster\"`".into()));
        };
        match self.names.find(name, namespace) {
            Some(Named::Table(table)) => Ok(Some(table)),
            _ => Err(fail(file, *at, format!("there is no table `{name}`"))),
        }
    }
}

/// Assigns an id to every field: in order, or as the schema declares.
fn assign_ids(file: &SourceFile, decl: &Object, fields: &mut [Field]) -> Result<(), Error> {
    let given = decl.fields.iter().filter(|field| has(&field.attributes, "id")).count();
    let mut next: u16 = 0;
    for (field, decl) in fields.iter_mut().zip(&decl.fields) {
        let at = decl.name.at;
        let union = holds_unions(&field.ty);
        if given == 0 {
            field.id = next + u16::from(union);
        } else {
            let Some(attribute) = find(&decl.attributes, "id") else {
                return Err(fail(file, at, "either every field of a table has an id, or none".into()));
            };
            let id = attribute.value.as_ref().map(|literal| integer(file, literal)).transpose()?;
            let id = id.and_then(|id| u16::try_from(id).ok()).filter(|id| *id >= u16::from(union));
            field.id = id.ok_or_else(|| {
                fail(file, attribute.name.at, "expected an id from 0, a union's from 1".into())
            })?;
        }
        next = next.saturating_add(1 + u16::from(union));
        if next > MAX_FIELDS {
            return Err(fail(file, at, "the table has too many fields".into()));
        }
    }
    fields.sort_by_key(|field| field.id);
    let mut wanted = 0;
    for field in fields.iter() {
        wanted += u16::from(holds_unions(&field.ty));
        if field.id != wanted {
            let reason =
                format!("id {wanted} is missing or used twice; the type of a union takes the id before it");
            return Err(fail(file, decl.head.name.at, reason));
        }
        wanted += 1;
    }
    Ok(())
}

/// Whether a field is preceded by another one for its type.
fn holds_unions(ty: &Type) -> bool {
    match ty {
        Type::Union(_) => true,
        Type::Vector(element) => matches!(**element, Type::Union(_)),
        _ => false,
    }
}

fn check_names(file: &SourceFile, decl: &Object, fields: &[Field]) -> Result<(), Error> {
    let mut names: HashSet<String> = HashSet::new();
    let at = |name: &str| {
        decl.fields
            .iter()
            .rev()
            .find(|field| field.name.value == name)
            .map_or(decl.head.name.at, |field| field.name.at)
    };
    for field in fields {
        let own = [Some(field.name.clone()), holds_unions(&field.ty).then(|| format!("{}_type", field.name))];
        for name in own.into_iter().flatten() {
            if !names.insert(name.clone()) {
                return Err(fail(file, at(&field.name), format!("duplicate field `{name}`")));
            }
        }
    }
    if fields.iter().filter(|field| field.key).count() > 1 {
        return Err(fail(file, decl.head.name.at, "a table has one key at most".into()));
    }
    Ok(())
}

fn hash(file: &SourceFile, decl: &FieldDecl, ty: &Type) -> Result<Option<Hash>, Error> {
    let Some(attribute) = find(&decl.attributes, "hash") else { return Ok(None) };
    let Some(Value::Text(name)) = attribute.value.as_ref().map(|literal| &literal.value) else {
        return Err(fail(file, attribute.name.at, "expected a function: `hash: \"fnv1a_32\"`".into()));
    };
    let (function, bits) = name.rsplit_once('_').unwrap_or((name, ""));
    let hash = match (function, bits.parse()) {
        ("fnv1", Ok(bits @ (16 | 32 | 64))) => Some(Hash { bits, alternate: false }),
        ("fnv1a", Ok(bits @ (16 | 32 | 64))) => Some(Hash { bits, alternate: true }),
        _ => None,
    };
    let hash =
        hash.ok_or_else(|| fail(file, attribute.name.at, format!("there is no hash function `{name}`")))?;
    let fits = match ty {
        Type::Scalar(scalar) => !scalar.is_float() && scalar.size() * 8 == usize::from(hash.bits),
        Type::Vector(element) => {
            matches!(&**element, Type::Scalar(scalar) if !scalar.is_float() && scalar.size() * 8 == usize::from(hash.bits))
        }
        _ => false,
    };
    match fits {
        true => Ok(Some(hash)),
        false => {
            Err(fail(file, attribute.name.at, format!("`{name}` needs an integer of {} bits", hash.bits)))
        }
    }
}

/// A vtable stores its own size in 16 bits.
const MAX_FIELDS: u16 = 32_766;
