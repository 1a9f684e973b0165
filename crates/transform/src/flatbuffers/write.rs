//! Conversion of JSON to a FlatBuffer.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use polyrpc::payload::flatbuffers::{Builder, Offset, Opaque};
use polyrpc_build::fbs::{Default, Enum, Field, Hash, Member, Scalar, Schema, Type, Union};
use serde_json::{Map, Value};

use super::Style;

/// Writes a JSON object as a table.
pub(super) fn message(schema: &Schema, table: usize, value: &Value, style: Style) -> Result<Bytes, String> {
    let mut writer = Writer { schema, builder: Builder::new(), style };
    let root = writer.table(table, value)?;
    Ok(writer.builder.finish(root).into_bytes())
}

struct Writer<'s> {
    schema: &'s Schema,
    builder: Builder,
    style: Style,
}

/// A value stored inline in a table.
enum FieldValue {
    Inline(Vec<u8>, usize),
    Elsewhere(Offset<()>),
}

impl Writer<'_> {
    fn table(&mut self, table: usize, value: &Value) -> Result<Offset<Opaque>, String> {
        let declared = &self.schema.tables[table];
        let object = value.as_object().ok_or("expected an object")?;
        for name in object.keys() {
            if !declared.fields.iter().any(|field| is_member_of(field, name)) {
                return Err(format!("there is no field `{name}`"));
            }
        }
        let mut field_values = Vec::new();
        for field in &declared.fields {
            match object.get(&field.name) {
                Some(value) if !value.is_null() => {
                    self.field(field, value, object, &mut field_values)
                        .map_err(|error| under(&field.name, error))?;
                }
                _ if field.required => return Err(format!("`{}` is required", field.name)),
                _ => {}
            }
        }
        // The widest first, which minimises padding.
        field_values.sort_by_key(|(_, field_value)| match field_value {
            FieldValue::Inline(bytes, _) => std::cmp::Reverse(bytes.len()),
            FieldValue::Elsewhere(_) => std::cmp::Reverse(4),
        });
        let mut table = self.builder.table::<Opaque>();
        for (id, field_value) in field_values {
            match field_value {
                FieldValue::Inline(bytes, align) => table.put_bytes(id, &bytes, align),
                FieldValue::Elsewhere(target) => table.refer(id, target),
            }
        }
        Ok(table.end())
    }

    fn field(
        &mut self,
        field: &Field,
        value: &Value,
        object: &Map<String, Value>,
        field_values: &mut Vec<(u16, FieldValue)>,
    ) -> Result<(), String> {
        let kinds = || {
            let name = format!("{}_type", field.name);
            object.get(&name).ok_or_else(|| format!("expected its type in `{name}`"))
        };
        let field_value = match &field.ty {
            Type::Union(union) => {
                let (kind, target) = self.union(*union, kinds()?, value)?;
                field_values.push((field.id - 1, FieldValue::Inline(vec![kind], 1)));
                FieldValue::Elsewhere(target)
            }
            Type::Vector(element) if is_union(element) => {
                let Type::Union(union) = **element else { return Err("expected unions".into()) };
                let (kinds, values) = (list(kinds()?)?, list(value)?);
                if kinds.len() != values.len() {
                    return Err("expected as many types as values".into());
                }
                let (mut numbers, mut targets) = (Vec::new(), Vec::new());
                for (kind, value) in kinds.iter().zip(values) {
                    let (number, target) = self.union(union, kind, value)?;
                    numbers.push(number);
                    targets.push(target);
                }
                let numbers = self.builder.vector_bytes(numbers.len(), &numbers, 1);
                field_values.push((field.id - 1, FieldValue::Elsewhere(numbers)));
                FieldValue::Elsewhere(self.builder.offsets(&targets).untyped())
            }
            Type::Vector(element) => FieldValue::Elsewhere(match (field.nested, value) {
                (Some(table), Value::Object(_)) => {
                    let bytes = message(self.schema, table, value, self.style)?;
                    self.builder.vector_bytes(bytes.len(), &bytes, 8)
                }
                _ => self.vector(element, value, field.hash)?,
            }),
            Type::Text => FieldValue::Elsewhere(self.builder.string(text(value)?).untyped()),
            Type::Table(table) => FieldValue::Elsewhere(self.table(*table, value)?.untyped()),
            ty => {
                let (size, align) = self.schema.inline(ty);
                let mut bytes = vec![0; size];
                self.inline(ty, value, field.hash, &mut bytes)?;
                let mut usual = vec![0; size];
                let default = match &field.default {
                    Default::Integer(number) => Some(Value::from(i64::try_from(*number).unwrap_or_default())),
                    Default::Float(number) => serde_json::Number::from_f64(*number).map(Value::Number),
                    _ => None,
                };
                let is_default = default.is_some_and(|default| {
                    self.inline(ty, &default, None, &mut usual).is_ok() && usual == bytes
                });
                if is_default
                    && !matches!(&field.default, Default::Integer(number) if i64::try_from(*number).is_err())
                {
                    return Ok(());
                }
                FieldValue::Inline(bytes, align)
            }
        };
        field_values.push((field.id, field_value));
        Ok(())
    }

    fn union(&mut self, union: usize, kind: &Value, value: &Value) -> Result<(u8, Offset<()>), String> {
        let declared = &self.schema.unions[union];
        let member = find_member(declared, kind);
        let member = member.ok_or_else(|| format!("`{}` has no type {kind}", declared.name))?;
        let target = match &member.ty {
            Type::Table(table) => self.table(*table, value)?.untyped(),
            Type::Text => self.builder.string(text(value)?).untyped(),
            ty => {
                let (size, align) = self.schema.inline(ty);
                let mut bytes = vec![0; size];
                self.inline(ty, value, None, &mut bytes)?;
                self.builder.structure_bytes(&bytes, align)
            }
        };
        Ok((member.number, target))
    }

    fn vector(&mut self, element: &Type, value: &Value, hash: Option<Hash>) -> Result<Offset<()>, String> {
        if let (Style::Protobuf, Type::Scalar(Scalar::U8 | Scalar::I8), Value::String(text)) =
            (self.style, element, value)
        {
            let bytes = STANDARD.decode(text).map_err(|_| "expected bytes in base64".to_owned())?;
            return Ok(self.builder.vector_bytes(bytes.len(), &bytes, 1));
        }
        let values = list(value)?;
        match element {
            Type::Text | Type::Table(_) => {
                let mut targets = Vec::new();
                for (n, value) in values.iter().enumerate() {
                    let target = match element {
                        Type::Table(table) => self.table(*table, value).map(Offset::untyped),
                        _ => text(value).map(|text| self.builder.string(text).untyped()),
                    };
                    targets.push(target.map_err(|error| under(&format!("[{n}]"), error))?);
                }
                Ok(self.builder.offsets(&targets).untyped())
            }
            element => {
                let (size, align) = self.schema.inline(element);
                let mut bytes = vec![0; size * values.len()];
                for (n, (value, out)) in values.iter().zip(bytes.chunks_exact_mut(size)).enumerate() {
                    self.inline(element, value, hash, out)
                        .map_err(|error| under(&format!("[{n}]"), error))?;
                }
                Ok(self.builder.vector_bytes(values.len(), &bytes, align))
            }
        }
    }

    /// Writes a value at its position.
    fn inline(&self, ty: &Type, value: &Value, hash: Option<Hash>, out: &mut [u8]) -> Result<(), String> {
        match ty {
            Type::Scalar(scalar) => {
                let hashed = match (hash, value) {
                    (Some(hash), Value::String(name)) => Some(fnv(hash, name)),
                    _ => None,
                };
                match hashed {
                    Some(number) => out.copy_from_slice(&number.to_le_bytes()[..out.len()]),
                    None => number(*scalar, value, out)?,
                }
            }
            Type::Enum(at) => {
                let declared = &self.schema.enums[*at];
                match value {
                    Value::String(names) => {
                        let number = parse_names(declared, names)?;
                        out.copy_from_slice(&number.to_le_bytes()[..out.len()]);
                    }
                    value => number(declared.base, value, out)?,
                }
            }
            Type::Struct(at) => {
                let object = value.as_object().ok_or("expected an object")?;
                let declared = &self.schema.structs[*at];
                if let Some(name) =
                    object.keys().find(|name| declared.fields.iter().all(|field| field.name != **name))
                {
                    return Err(format!("there is no field `{name}`"));
                }
                for field in &declared.fields {
                    let value =
                        object.get(&field.name).ok_or_else(|| format!("`{}` is missing", field.name))?;
                    let (size, _) = self.schema.inline(&field.ty);
                    let out = &mut out[field.offset..field.offset + size];
                    self.inline(&field.ty, value, None, out).map_err(|error| under(&field.name, error))?;
                }
            }
            Type::Array(element, count) => {
                let (values, (size, _)) = (list(value)?, self.schema.inline(element));
                if values.len() != usize::from(*count) {
                    return Err(format!("expected {count} elements"));
                }
                for (value, out) in values.iter().zip(out.chunks_exact_mut(size)) {
                    self.inline(element, value, None, out)?;
                }
            }
            Type::Table(_) | Type::Union(_) | Type::Text | Type::Vector(_) => {
                return Err("expected a scalar".into());
            }
        }
        Ok(())
    }
}

/// Whether a member of an object is the field, or the type of the union in it.
pub(super) fn is_member_of(field: &Field, name: &str) -> bool {
    field.name == name || is_union(&field.ty) && name.strip_suffix("_type") == Some(&field.name)
}

/// The member of a union by its name or number.
pub(super) fn find_member<'s>(declared: &'s Union, kind: &Value) -> Option<&'s Member> {
    declared.members.iter().find(|member| match kind {
        Value::String(name) => member.name == *name,
        kind => kind.as_u64() == Some(member.number.into()),
    })
}

fn is_union(ty: &Type) -> bool {
    match ty {
        Type::Vector(element) => matches!(**element, Type::Union(_)),
        ty => matches!(ty, Type::Union(_)),
    }
}

fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| "expected a string".to_owned())
}

fn list(value: &Value) -> Result<&Vec<Value>, String> {
    value.as_array().ok_or_else(|| "expected a list".to_owned())
}

/// The number of an enum value, or the combined bits of several flags.
fn parse_names(declared: &Enum, names: &str) -> Result<i128, String> {
    let mut number = 0;
    for name in names.split_whitespace() {
        let own = name.rsplit('.').next().unwrap_or(name);
        let value = declared.values.iter().find(|value| value.name == own);
        number |= value.ok_or_else(|| format!("`{}` has no value `{name}`", declared.name))?.value;
    }
    Ok(number)
}

/// Writes a number, which may be quoted.
fn number(scalar: Scalar, value: &Value, out: &mut [u8]) -> Result<(), String> {
    let shown = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Bool(yes) => u8::from(*yes).to_string(),
        Value::Number(number) => number.to_string(),
        _ => return Err("expected a number".into()),
    };
    let wrong = || format!("{shown} is not a valid {}", format!("{scalar:?}").to_lowercase());
    match (scalar, scalar.range()) {
        (Scalar::F32, _) => out.copy_from_slice(&shown.parse::<f32>().map_err(|_| wrong())?.to_le_bytes()),
        (Scalar::F64, _) => out.copy_from_slice(&shown.parse::<f64>().map_err(|_| wrong())?.to_le_bytes()),
        (_, range) => {
            let (least, most) = range.unwrap_or((0, 1));
            let number = match shown.as_str() {
                "true" => 1,
                "false" => 0,
                shown => shown.parse::<i128>().map_err(|_| wrong())?,
            };
            if number < least || number > most {
                return Err(wrong());
            }
            out.copy_from_slice(&number.to_le_bytes()[..out.len()]);
        }
    }
    Ok(())
}

/// The hash of a name, in its lowest bits (flatbuffers `include/flatbuffers/hash.h`).
fn fnv(hash: Hash, name: &str) -> u64 {
    let wide = hash.bits == 64;
    let (prime, basis): (u64, u64) =
        if wide { (0x100_0000_01b3, 0xcbf2_9ce4_8422_2645) } else { (0x0100_0193, 0x811c_9dc5) };
    let cut = |number: u64| if wide { number } else { number & 0xffff_ffff };
    let whole = name.bytes().fold(basis, |sum, byte| match hash.alternate {
        true => cut((sum ^ u64::from(byte)).wrapping_mul(prime)),
        false => cut(sum.wrapping_mul(prime)) ^ u64::from(byte),
    });
    if hash.bits == 16 { (whole >> 16) ^ (whole & 0xffff) } else { whole }
}

/// Prefixes an error with one more step of its path.
fn under(name: &str, error: String) -> String {
    let begins_with_a_path =
        error.starts_with('[') || error.split_once(": ").is_some_and(|(way, _)| !way.contains(' '));
    match (begins_with_a_path, error.starts_with('[')) {
        (true, true) => format!("{name}{error}"),
        (true, false) => format!("{name}.{error}"),
        _ => format!("{name}: {error}"),
    }
}
