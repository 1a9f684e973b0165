//! Tables of a `.fbs`, as flatc writes them in JSON.

use std::sync::Arc;

use polyrpc_build::fbs::{Enum, Scalar, Schema, Type, Union};
use serde_json::{Map, Value, json};

use super::{Declaration, Definitions, Identity, describe, float, integer, object};

impl Definitions {
    pub(super) fn table(&mut self, schema: &Arc<Schema>, table: usize) -> Value {
        match schema.tables.get(table) {
            Some(declared) => {
                let declaration = Declaration::Table(schema.clone(), table);
                self.reference(&declared.full_name(), identity(schema), declaration)
            }
            None => Value::Object(Map::new()),
        }
    }

    pub(super) fn table_definition(&mut self, schema: &Arc<Schema>, table: usize) -> Value {
        let Some(declared) = schema.tables.get(table) else { return Value::Object(Map::new()) };
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for field in &declared.fields {
            if field.required {
                required.push(field.name.clone());
            }
            // The type of a union is a member of its own.
            let names = |union: usize| schema.unions.get(union).map(member_names);
            let kinds = match &field.ty {
                Type::Union(union) => names(*union),
                Type::Vector(element) => match **element {
                    Type::Union(union) => {
                        names(union).map(|names| json!({ "type": "array", "items": names }))
                    }
                    _ => None,
                },
                _ => None,
            };
            if let Some(kinds) = kinds {
                properties.insert(format!("{}_type", field.name), kinds);
            }
            let mut value = self.value(schema, &field.ty);
            if let (Some(nested), Type::Vector(_)) = (field.nested, &field.ty) {
                value = json!({ "anyOf": [self.table(schema, nested), value] });
            }
            describe(&mut value, docs(&field.docs).as_deref());
            properties.insert(field.name.clone(), value);
        }
        let mut definition = Value::Object(object(properties, required));
        describe(&mut definition, docs(&declared.docs).as_deref());
        definition
    }

    pub(super) fn struct_definition(&mut self, schema: &Arc<Schema>, index: usize) -> Value {
        let Some(declared) = schema.structs.get(index) else { return Value::Object(Map::new()) };
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for field in &declared.fields {
            let mut value = self.value(schema, &field.ty);
            describe(&mut value, docs(&field.docs).as_deref());
            properties.insert(field.name.clone(), value);
            required.push(field.name.clone());
        }
        let mut definition = Value::Object(object(properties, required));
        describe(&mut definition, docs(&declared.docs).as_deref());
        definition
    }

    fn value(&mut self, schema: &Arc<Schema>, ty: &Type) -> Value {
        match ty {
            Type::Scalar(scalar) => scalar_schema(*scalar),
            Type::Enum(index) => schema.enums.get(*index).map_or(Value::Bool(true), enum_schema),
            Type::Struct(index) => match schema.structs.get(*index) {
                Some(declared) => {
                    let name = match declared.namespace.as_str() {
                        "" => declared.name.clone(),
                        namespace => format!("{namespace}.{}", declared.name),
                    };
                    self.reference(&name, identity(schema), Declaration::Struct(schema.clone(), *index))
                }
                None => Value::Bool(true),
            },
            Type::Table(index) => self.table(schema, *index),
            Type::Union(index) => self.union(schema, *index),
            Type::Text => json!({ "type": "string" }),
            Type::Vector(element) => json!({ "type": "array", "items": self.value(schema, element) }),
            Type::Array(element, count) => {
                let items = self.value(schema, element);
                json!({ "type": "array", "items": items, "minItems": count, "maxItems": count })
            }
        }
    }

    fn union(&mut self, schema: &Arc<Schema>, index: usize) -> Value {
        let Some(declared) = schema.unions.get(index) else { return Value::Bool(true) };
        let mut members = Vec::new();
        for member in &declared.members {
            let member = self.value(schema, &member.ty);
            if !members.contains(&member) {
                members.push(member);
            }
        }
        // A missing member, and a struct in a vector.
        members.push(json!({ "type": "null" }));
        json!({ "anyOf": members })
    }
}

fn scalar_schema(scalar: Scalar) -> Value {
    match scalar {
        Scalar::Bool => json!({ "type": "boolean" }),
        Scalar::F32 | Scalar::F64 => float(&["NaN", "inf", "-inf"]),
        Scalar::I8 => integer(true, 8),
        Scalar::U8 => integer(false, 8),
        Scalar::I16 => integer(true, 16),
        Scalar::U16 => integer(false, 16),
        Scalar::I32 => integer(true, 32),
        Scalar::U32 => integer(false, 32),
        Scalar::I64 => integer(true, 64),
        Scalar::U64 => integer(false, 64),
    }
}

/// A value by its name, and one without a name as a number. Flags are names with blanks between them.
fn enum_schema(declared: &Enum) -> Value {
    let names: Vec<_> = declared.values.iter().map(|value| value.name.as_str()).collect();
    let named = match declared.bit_flags {
        true => {
            let any = names.join("|");
            json!({ "type": "string", "pattern": format!("^({any})( ({any}))*$") })
        }
        false => json!({ "type": "string", "enum": names }),
    };
    let mut schema = json!({ "anyOf": [named, scalar_schema(declared.base)] });
    describe(&mut schema, docs(&declared.docs).as_deref());
    schema
}

fn member_names(union: &Union) -> Value {
    let names: Vec<_> = union.members.iter().map(|member| member.name.as_str()).collect();
    json!({ "type": "string", "enum": names })
}

fn docs(lines: &[String]) -> Option<String> {
    let text = lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join("\n");
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn identity(schema: &Arc<Schema>) -> Identity {
    Identity(Arc::as_ptr(schema).addr())
}
