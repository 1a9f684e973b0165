//! Default values of absent fields.

use super::values::{float, integer};
use super::{Resolver, fail};
use crate::Error;
use crate::fbs::ast::{FieldDecl, Literal, Value};
use crate::fbs::load::SourceFile;
use crate::fbs::schema::{Default, Enum, Scalar, Type};

impl<'f> Resolver<'f> {
    pub(super) fn default(&self, file: &SourceFile, decl: &FieldDecl, ty: &Type) -> Result<Default, Error> {
        let Some(literal) = &decl.default else { return self.implicit_default(file, decl, ty) };
        let wrong = || fail(file, literal.at, "the default does not match the field's type".to_owned());
        match (&literal.value, ty) {
            (Value::Word(word), _) if word == "null" => Ok(Default::None),
            (_, Type::Scalar(scalar)) => scalar_default(file, literal, *scalar),
            (_, Type::Enum(at)) => enum_default(file, literal, &self.schema.enums[*at]),
            (Value::Text(text), Type::Text) => Ok(Default::Text(text.clone())),
            (Value::Empty, Type::Vector(_)) => Ok(Default::Empty),
            _ => Err(wrong()),
        }
    }

    /// Returns the default of a field that declares none.
    fn implicit_default(&self, file: &SourceFile, decl: &FieldDecl, ty: &Type) -> Result<Default, Error> {
        match ty {
            Type::Scalar(scalar) if scalar.is_float() => Ok(Default::Float(0.0)),
            Type::Scalar(_) => Ok(Default::Integer(0)),
            Type::Enum(at) => {
                let known = &self.schema.enums[*at];
                if known.bit_flags || known.values.iter().any(|value| value.value == 0) {
                    return Ok(Default::Integer(0));
                }
                let reason = format!("`{}` has no value 0: declare a default", known.name);
                Err(fail(file, decl.name.at, reason))
            }
            _ => Ok(Default::None),
        }
    }
}

fn scalar_default(file: &SourceFile, literal: &Literal, scalar: Scalar) -> Result<Default, Error> {
    let wrong = |reason: &str| fail(file, literal.at, reason.to_owned());
    match (scalar, &literal.value) {
        (Scalar::Bool, Value::Word(word)) if word == "true" => Ok(Default::Integer(1)),
        (Scalar::Bool, Value::Word(word)) if word == "false" => Ok(Default::Integer(0)),
        (Scalar::Bool, _) => Ok(Default::Integer(i128::from(integer(file, literal)? != 0))),
        (Scalar::F32 | Scalar::F64, value) => {
            float(value).map(Default::Float).ok_or_else(|| wrong("expected a number"))
        }
        (_, _) => {
            let value = integer(file, literal)?;
            let (least, most) = scalar.range().unwrap_or_default();
            match value >= least && value <= most {
                true => Ok(Default::Integer(value)),
                false => Err(wrong("the number does not fit the type")),
            }
        }
    }
}

fn enum_default(file: &SourceFile, literal: &Literal, known: &Enum) -> Result<Default, Error> {
    let wrong = |name: &str| fail(file, literal.at, format!("`{}` has no value {name}", known.name));
    let value = |name: &str| {
        let own = name.strip_prefix(&known.name).and_then(|rest| rest.strip_prefix('.')).unwrap_or(name);
        known.values.iter().find(|value| value.name == own).map(|value| value.value)
    };
    let value = match &literal.value {
        Value::Word(word) => value(word).ok_or_else(|| wrong(word))?,
        Value::Text(words) => {
            let flags = words.split_whitespace().map(|word| value(word).ok_or_else(|| wrong(word)));
            flags.reduce(|set, flag| Ok(set? | flag?)).unwrap_or(Ok(0))?
        }
        _ => {
            let number = integer(file, literal)?;
            let (least, most) = known.base.range().unwrap_or_default();
            let declared = known.values.iter().any(|value| value.value == number);
            if !(declared || known.bit_flags && number >= least && number <= most) {
                return Err(wrong(&number.to_string()));
            }
            number
        }
    };
    Ok(Default::Integer(value))
}
