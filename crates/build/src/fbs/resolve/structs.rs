//! Structs, with their layout in a buffer.

use super::attributes::{find, has};
use super::values::integer;
use super::{Resolver, fail};
use crate::Error;
use crate::fbs::ast::{Attribute, FieldDecl, Object};
use crate::fbs::load::SourceFile;
use crate::fbs::schema::{Struct, StructField, Type};

impl<'f> Resolver<'f> {
    pub(super) fn structs(&mut self) -> Result<(), Error> {
        let decls = self.objects(true);
        let blank = |(_, decl): &(&SourceFile, &Object)| Struct {
            docs: decl.head.docs.clone(),
            namespace: decl.head.namespace.clone(),
            name: decl.head.name.value.clone(),
            fields: Vec::new(),
            size: 0,
            align: 1,
        };
        self.schema.structs = decls.iter().map(blank).collect();
        let mut states = vec![State::Declared; decls.len()];
        (0..decls.len()).try_for_each(|at| self.lay_out(at, &decls, &mut states))
    }

    /// Computes the layout of a struct, after those that it contains.
    fn lay_out(
        &mut self,
        at: usize,
        decls: &[(&'f SourceFile, &'f Object)],
        states: &mut [State],
    ) -> Result<(), Error> {
        let (file, decl) = decls[at];
        match states[at] {
            State::Done => return Ok(()),
            State::Begun => {
                let reason = format!("`{}` contains itself", decl.head.name.value);
                return Err(fail(file, decl.head.name.at, reason));
            }
            State::Declared => states[at] = State::Begun,
        }
        self.check_attributes(file, &decl.head.attributes)?;
        let (mut fields, mut end, mut widest) = (Vec::new(), 0_usize, 1);
        for field in &decl.fields {
            let ty = self.ty(file, &field.ty, &decl.head.namespace)?;
            if let Some(inner) = held_struct(&ty) {
                self.lay_out(inner, decls, states)?;
            }
            let field = self.struct_field(file, field, ty, &fields)?;
            let (size, align) = self.schema.inline(&field.ty);
            let offset = end.next_multiple_of(align);
            (end, widest) = (offset + size, widest.max(align));
            fields.push(StructField { offset, ..field });
        }
        if fields.is_empty() {
            return Err(fail(file, decl.head.name.at, "a struct has at least one field".into()));
        }
        let align = match find(&decl.head.attributes, "force_align") {
            None => widest,
            Some(attribute) => force_align(file, attribute, widest)?,
        };
        let size = end.next_multiple_of(align);
        if size > usize::from(u16::MAX) {
            return Err(fail(file, decl.head.name.at, "a struct has at most 65535 bytes".into()));
        }
        self.schema.structs[at] = Struct { fields, size, align, ..self.schema.structs[at].clone() };
        states[at] = State::Done;
        Ok(())
    }

    fn struct_field(
        &self,
        file: &SourceFile,
        decl: &FieldDecl,
        ty: Type,
        earlier: &[StructField],
    ) -> Result<StructField, Error> {
        self.check_attributes(file, &decl.attributes)?;
        let at = decl.name.at;
        if earlier.iter().any(|other| other.name == decl.name.value) {
            return Err(fail(file, at, format!("duplicate field `{}`", decl.name.value)));
        }
        let element = match &ty {
            Type::Array(element, _) => element,
            ty => ty,
        };
        if !matches!(element, Type::Scalar(_) | Type::Enum(_) | Type::Struct(_)) {
            return Err(fail(
                file,
                decl.ty.at,
                "a struct holds scalars, enums, structs and arrays of those".into(),
            ));
        }
        if let Some(default) = &decl.default {
            return Err(fail(file, default.at, "a struct field is always present: it has no default".into()));
        }
        for banned in ["deprecated", "required", "id"] {
            if let Some(attribute) = find(&decl.attributes, banned) {
                return Err(fail(file, attribute.name.at, format!("a struct's field cannot be `{banned}`")));
            }
        }
        Ok(StructField {
            docs: decl.docs.clone(),
            name: decl.name.value.clone(),
            ty,
            offset: 0,
            key: has(&decl.attributes, "key"),
            deprecated: false,
        })
    }
}

#[derive(Debug, Clone, Copy)]
enum State {
    Declared,
    Begun,
    Done,
}

fn held_struct(ty: &Type) -> Option<usize> {
    match ty {
        Type::Struct(at) => Some(*at),
        Type::Array(element, _) => held_struct(element),
        _ => None,
    }
}

fn force_align(file: &SourceFile, attribute: &Attribute, natural: usize) -> Result<usize, Error> {
    let align = attribute.value.as_ref().map(|literal| integer(file, literal)).transpose()?;
    let align = align.and_then(|align| usize::try_from(align).ok());
    let fits = |align: &usize| align.is_power_of_two() && *align >= natural && *align <= MAX_ALIGNED;
    align.filter(fits).ok_or_else(|| {
        let reason = format!("expected a power of two from {natural} to {MAX_ALIGNED}");
        fail(file, attribute.name.at, reason)
    })
}

/// Limit of flatc.
const MAX_ALIGNED: usize = 256;
