//! Conversion of a FlatBuffer to JSON.
//!
//! Only the root was verified: every access checks its bounds, so malformed parts read as absent. Depth and number of
//! tables are limited, since a few bytes can be read as very many.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use polyrpc::payload::flatbuffers::{Fields, Inline, Opaque, Text, Value, Vector};
use polyrpc_build::fbs::{Default, Enum, Field, Scalar, Schema, Type};

use super::Style;

/// The JSON of a table.
pub(super) fn message(
    schema: &Schema,
    table: usize,
    fields: Fields<'_>,
    style: Style,
    max: usize,
) -> Result<String, &'static str> {
    let mut reader = Reader { schema, out: String::new(), tables: 0, style, max };
    reader.table(table, fields, DEPTH)?;
    Ok(reader.out)
}

/// Maximum depth of Google's verifiers.
const DEPTH: usize = 64;
const TABLES: usize = 1_000_000;

struct Reader<'s> {
    schema: &'s Schema,
    out: String,
    tables: usize,
    style: Style,
    /// Maximum length of the text, which may refer to the same bytes many times.
    max: usize,
}

impl Reader<'_> {
    fn table(&mut self, table: usize, fields: Fields<'_>, depth: usize) -> Result<(), &'static str> {
        self.tables += 1;
        if depth == 0 || self.tables > TABLES {
            return Err("it is too deep, or has too many tables");
        }
        self.check_size()?;
        self.out.push('{');
        let start = self.out.len();
        for field in &self.schema.tables[table].fields {
            let before = self.out.len();
            self.comma(start);
            let named = self.out.len();
            self.name(&field.name);
            let empty = self.out.len();
            self.field(field, fields, named, depth)?;
            if self.out.len() == empty {
                self.out.truncate(before);
            }
        }
        self.out.push('}');
        Ok(())
    }

    /// Writes a field's value; nothing if it is absent. `named` is the start of its name, before which a union's type
    /// is put.
    fn field(
        &mut self,
        field: &Field,
        fields: Fields<'_>,
        named: usize,
        depth: usize,
    ) -> Result<(), &'static str> {
        let id = field.id;
        match &field.ty {
            Type::Text => {
                if let Some(text) = fields.get::<Text<'_>>(id) {
                    self.text(text)?;
                }
            }
            Type::Table(table) => {
                if let Some(inner) = fields.get::<Opaque>(id) {
                    self.table(*table, inner, depth - 1)?;
                }
            }
            Type::Union(union) => {
                let kind = fields.get::<u8>(id - 1).unwrap_or_default();
                let Some(member) =
                    self.schema.unions[*union].members.iter().find(|member| member.number == kind)
                else {
                    return Ok(());
                };
                self.out.truncate(named);
                self.name(&format!("{}_type", field.name));
                self.write_quoted(&member.name);
                self.out.push(',');
                self.name(&field.name);
                match &member.ty {
                    Type::Table(table) => match fields.union::<Opaque>(id) {
                        Some(inner) => self.table(*table, inner, depth - 1)?,
                        None => self.out.push_str("null"),
                    },
                    Type::Text => self.text(fields.union::<Text<'_>>(id).unwrap_or_default())?,
                    ty => {
                        let (size, _) = self.schema.inline(ty);
                        match fields.bytes_in_union(id, size) {
                            Some(bytes) => self.inline(ty, bytes),
                            None => self.out.push_str("null"),
                        }
                    }
                }
            }
            Type::Vector(element) => self.vector(field, element, fields, named, depth)?,
            ty => {
                let (size, _) = self.schema.inline(ty);
                if let Some(bytes) = fields.bytes(id, size).filter(|bytes| !self.is_default(field, bytes)) {
                    self.inline(ty, bytes);
                }
            }
        }
        Ok(())
    }

    fn vector(
        &mut self,
        field: &Field,
        element: &Type,
        fields: Fields<'_>,
        named: usize,
        depth: usize,
    ) -> Result<(), &'static str> {
        match element {
            Type::Text => {
                if let Some(texts) = fields.get::<[Text<'_>]>(field.id) {
                    self.each(texts, Self::text)?;
                }
            }
            Type::Table(table) => {
                if let Some(tables) = fields.get::<[Opaque]>(field.id) {
                    self.each(tables, |reader, inner| reader.table(*table, inner, depth - 1))?;
                }
            }
            Type::Union(union) => self.unions(field, *union, fields, named, depth)?,
            ty => {
                let (size, _) = self.schema.inline(ty);
                let Some((_, bytes)) = fields.elements(field.id, size) else { return Ok(()) };
                self.check_size()?;
                if self.style == Style::Protobuf && matches!(ty, Type::Scalar(Scalar::U8 | Scalar::I8)) {
                    self.write_quoted(&STANDARD.encode(bytes));
                    return Ok(());
                }
                if let Some(inner) = field.nested.zip(Fields::root(bytes)) {
                    return self.table(inner.0, inner.1, depth - 1);
                }
                self.out.push('[');
                let start = self.out.len();
                for bytes in bytes.chunks_exact(size) {
                    self.comma(start);
                    self.inline(ty, bytes);
                }
                self.out.push(']');
            }
        }
        Ok(())
    }

    fn unions(
        &mut self,
        field: &Field,
        union: usize,
        fields: Fields<'_>,
        named: usize,
        depth: usize,
    ) -> Result<(), &'static str> {
        let (Some(kinds), Some(values)) = (fields.get::<[u8]>(field.id - 1), fields.get::<[u32]>(field.id))
        else {
            return Ok(());
        };
        let member =
            |kind| self.schema.unions[union].members.iter().find(move |member| member.number == kind);
        let names: Vec<&str> =
            kinds.iter().map(|kind| member(kind).map_or("NONE", |member| &member.name)).collect();
        let members: Vec<_> = kinds.iter().map(|kind| member(kind).cloned()).collect();
        self.out.truncate(named);
        self.name(&format!("{}_type", field.name));
        let names: Vec<String> = names.into_iter().map(quote).collect();
        let _ = write!(self.out, "[{}],", names.join(","));
        self.name(&field.name);
        self.out.push('[');
        let start = self.out.len();
        for (n, member) in members.into_iter().enumerate() {
            self.comma(start);
            match member.map(|member| member.ty) {
                Some(Type::Table(table)) => match values.union::<Opaque>(n) {
                    Some(inner) => self.table(table, inner, depth - 1)?,
                    None => self.out.push_str("null"),
                },
                Some(Type::Text) => self.text(values.union::<Text<'_>>(n).unwrap_or_default())?,
                // A struct in a vector of unions is represented by its type alone.
                _ => self.out.push_str("null"),
            }
        }
        self.out.push(']');
        Ok(())
    }

    fn each<'a, T: Value>(
        &mut self,
        elements: Vector<'a, T>,
        mut show: impl FnMut(&mut Self, T::View<'a>) -> Result<(), &'static str>,
    ) -> Result<(), &'static str> {
        self.out.push('[');
        let start = self.out.len();
        for element in elements {
            self.comma(start);
            show(self, element)?;
        }
        self.out.push(']');
        Ok(())
    }

    fn inline(&mut self, ty: &Type, bytes: &[u8]) {
        match ty {
            Type::Scalar(scalar) => self.scalar(*scalar, bytes),
            Type::Enum(at) => {
                let declared = &self.schema.enums[*at];
                match names(declared, integer(declared.base, bytes)) {
                    Some(names) => self.write_quoted(&names),
                    None => self.scalar(declared.base, bytes),
                }
            }
            Type::Struct(at) => {
                self.out.push('{');
                let start = self.out.len();
                let schema = self.schema;
                for field in &schema.structs[*at].fields {
                    let (size, _) = schema.inline(&field.ty);
                    self.comma(start);
                    self.name(&field.name);
                    self.inline(&field.ty, bytes.get(field.offset..field.offset + size).unwrap_or_default());
                }
                self.out.push('}');
            }
            Type::Array(element, _) => {
                let (size, _) = self.schema.inline(element);
                self.out.push('[');
                let start = self.out.len();
                for bytes in bytes.chunks_exact(size) {
                    self.comma(start);
                    self.inline(element, bytes);
                }
                self.out.push(']');
            }
            Type::Table(_) | Type::Union(_) | Type::Text | Type::Vector(_) => {}
        }
    }

    fn scalar(&mut self, scalar: Scalar, bytes: &[u8]) {
        let shown = match scalar {
            Scalar::Bool => (integer(scalar, bytes) != 0).to_string(),
            Scalar::F32 => self.float(at::<f32>(bytes).to_string()),
            Scalar::F64 => self.float(at::<f64>(bytes).to_string()),
            scalar => integer(scalar, bytes).to_string(),
        };
        self.out.push_str(&shown);
    }

    /// Numbers that JSON cannot represent are quoted.
    fn float(&self, shown: String) -> String {
        match (shown.as_str(), self.style) {
            ("inf", Style::Protobuf) => quote("Infinity"),
            ("-inf", Style::Protobuf) => quote("-Infinity"),
            ("NaN" | "inf" | "-inf", _) => quote(&shown),
            _ => shown,
        }
    }

    fn is_default(&self, field: &Field, bytes: &[u8]) -> bool {
        match (&field.ty, &field.default) {
            (Type::Scalar(Scalar::F32), Default::Float(number)) => f64::from(at::<f32>(bytes)) == *number,
            (Type::Scalar(Scalar::F64), Default::Float(number)) => at::<f64>(bytes) == *number,
            (Type::Scalar(scalar), Default::Integer(number)) => integer(*scalar, bytes) == *number,
            (Type::Enum(known), Default::Integer(number)) => {
                integer(self.schema.enums[*known].base, bytes) == *number
            }
            _ => false,
        }
    }

    fn comma(&mut self, start: usize) {
        if self.out.len() > start {
            self.out.push(',');
        }
    }

    fn name(&mut self, name: &str) {
        self.write_quoted(name);
        self.out.push(':');
    }

    fn check_size(&self) -> Result<(), &'static str> {
        if self.out.len() > self.max { Err("it is too large") } else { Ok(()) }
    }

    fn text(&mut self, text: Text<'_>) -> Result<(), &'static str> {
        self.check_size()?;
        self.write_quoted(text.to_str().map_err(|_| "a string in it is not UTF-8")?);
        Ok(())
    }

    fn write_quoted(&mut self, text: &str) {
        self.out.push_str(&quote(text));
    }
}

fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The name of a number, or the names of its bits; `None` if it has none.
fn names(declared: &Enum, number: i128) -> Option<String> {
    if let Some(value) = declared.values.iter().find(|value| value.value == number) {
        return Some(value.name.clone());
    }
    let set: Vec<_> = declared.values.iter().filter(|value| number & value.value == value.value).collect();
    let whole =
        declared.bit_flags && number != 0 && set.iter().map(|value| value.value).sum::<i128>() == number;
    whole.then(|| set.iter().map(|value| value.name.as_str()).collect::<Vec<_>>().join(" "))
}

fn integer(scalar: Scalar, bytes: &[u8]) -> i128 {
    match scalar {
        Scalar::I8 => at::<i8>(bytes).into(),
        Scalar::Bool | Scalar::U8 => at::<u8>(bytes).into(),
        Scalar::I16 => at::<i16>(bytes).into(),
        Scalar::U16 => at::<u16>(bytes).into(),
        Scalar::I32 => at::<i32>(bytes).into(),
        Scalar::U32 => at::<u32>(bytes).into(),
        Scalar::I64 => at::<i64>(bytes).into(),
        Scalar::U64 => at::<u64>(bytes).into(),
        Scalar::F32 | Scalar::F64 => 0,
    }
}

fn at<T: Inline + std::default::Default>(bytes: &[u8]) -> T {
    T::view(bytes, 0).unwrap_or_default()
}
