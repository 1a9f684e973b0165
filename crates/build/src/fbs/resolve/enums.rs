//! Enums and unions.

use super::attributes::has;
use super::types::scalar;
use super::values::integer;
use super::{Resolver, fail};
use crate::Error;
use crate::fbs::ast::{EnumDecl, TypeKind, ValueDecl};
use crate::fbs::load::SourceFile;
use crate::fbs::schema::{Enum, EnumValue, Member, Scalar, Type, Union};

impl<'f> Resolver<'f> {
    fn enumerations(&self, union: bool) -> Vec<(&'f SourceFile, &'f EnumDecl)> {
        let all = self.files.iter().flat_map(|file| file.declared.enums.iter().map(move |decl| (file, decl)));
        all.filter(|(_, decl)| decl.union == union).collect()
    }

    pub(super) fn enums(&mut self) -> Result<(), Error> {
        for (file, decl) in self.enumerations(false) {
            let resolved = self.enumeration(file, decl)?;
            self.schema.enums.push(resolved);
        }
        Ok(())
    }

    fn enumeration(&self, file: &SourceFile, decl: &EnumDecl) -> Result<Enum, Error> {
        self.check_attributes(file, &decl.head.attributes)?;
        let name = &decl.head.name;
        let Some(base) = &decl.base else {
            return Err(fail(
                file,
                name.at,
                format!("expected the type of `{}`: `enum {0} : byte`", name.value),
            ));
        };
        let scalar = match &base.kind {
            TypeKind::Named(named) => {
                scalar(named).filter(|scalar| !scalar.is_float() && *scalar != Scalar::Bool)
            }
            _ => None,
        };
        let scalar = scalar.ok_or_else(|| fail(file, base.at, "the type of an enum is an integer".into()))?;
        let bit_flags = has(&decl.head.attributes, "bit_flags");
        let mut values: Vec<EnumValue> = Vec::new();
        let mut next = 0;
        for value in &decl.values {
            let number = match &value.value {
                Some(literal) => integer(file, literal)?,
                None => next,
            };
            next = number + 1;
            values.push(enum_value(file, value, number, scalar, bit_flags)?);
            self.check_unique(file, value, &values)?;
        }
        if values.is_empty() {
            return Err(fail(file, name.at, format!("`{}` has no values", name.value)));
        }
        Ok(Enum {
            docs: decl.head.docs.clone(),
            namespace: decl.head.namespace.clone(),
            name: name.value.clone(),
            base: scalar,
            bit_flags,
            values,
        })
    }

    fn check_unique(&self, file: &SourceFile, decl: &ValueDecl, values: &[EnumValue]) -> Result<(), Error> {
        let Some((last, earlier)) = values.split_last() else { return Ok(()) };
        for other in earlier {
            if other.name == last.name {
                return Err(fail(file, decl.name.at, format!("duplicate value `{}`", last.name)));
            }
            if other.value == last.value {
                let reason = format!("`{}` and `{}` have the same number", other.name, last.name);
                return Err(fail(file, decl.name.at, reason));
            }
        }
        Ok(())
    }

    pub(super) fn unions(&mut self) -> Result<(), Error> {
        for (file, decl) in self.enumerations(true) {
            let resolved = self.union(file, decl)?;
            self.schema.unions.push(resolved);
        }
        Ok(())
    }

    fn union(&self, file: &SourceFile, decl: &EnumDecl) -> Result<Union, Error> {
        self.check_attributes(file, &decl.head.attributes)?;
        if let Some(base) = &decl.base
            && !matches!(&base.kind, TypeKind::Named(named) if scalar(named) == Some(Scalar::U8))
        {
            return Err(fail(file, base.at, "the type field of a union is a ubyte".into()));
        }
        let mut members: Vec<Member> = Vec::new();
        let mut next = 1;
        for value in &decl.values {
            let at = value.name.at;
            let number = match &value.value {
                Some(literal) => integer(file, literal)?,
                None => next,
            };
            next = number + 1;
            if value.name.value == "NONE" && number == 0 {
                continue;
            }
            let number = u8::try_from(number).ok().filter(|number| *number > 0);
            let number =
                number.ok_or_else(|| fail(file, at, "the type numbers of a union are 1 to 255".into()))?;
            let ty = match &value.ty {
                Some(ty) => self.ty(file, ty, &decl.head.namespace)?,
                None => self.named_type(file, &value.name.value, at, &decl.head.namespace)?,
            };
            if !matches!(ty, Type::Table(_) | Type::Struct(_) | Type::Text) {
                return Err(fail(file, at, "a union holds tables, structs and strings".into()));
            }
            let name = value.name.value.replace('.', "_");
            if members.iter().any(|other| other.name == name || other.number == number) {
                return Err(fail(file, at, format!("`{name}` or its number is in the union twice")));
            }
            members.push(Member { docs: value.docs.clone(), name, number, ty });
        }
        let head = &decl.head;
        Ok(Union {
            docs: head.docs.clone(),
            namespace: head.namespace.clone(),
            name: head.name.value.clone(),
            members,
        })
    }
}

fn enum_value(
    file: &SourceFile,
    decl: &ValueDecl,
    number: i128,
    base: Scalar,
    bit_flags: bool,
) -> Result<EnumValue, Error> {
    let value = match bit_flags {
        false => number,
        true => {
            let bit = u32::try_from(number).ok().filter(|bit| *bit < 8 * base.size() as u32);
            let bit = bit.ok_or_else(|| fail(file, decl.name.at, "the bit does not fit the type".into()))?;
            let value = 1_i128 << bit;
            // The highest bit of a signed type is its sign.
            let (_, most) = base.range().unwrap_or((0, 1));
            if value > most { value - (1 << (8 * base.size())) } else { value }
        }
    };
    let (least, most) = base.range().unwrap_or((0, 1));
    if value < least || value > most {
        return Err(fail(file, decl.name.at, format!("{value} does not fit the type")));
    }
    Ok(EnumValue { docs: decl.docs.clone(), name: decl.name.value.clone(), value })
}
