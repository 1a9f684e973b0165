//! Removal of members that a table does not declare.

use polyrpc_build::fbs::{Schema, Type};
use serde_json::Value;

use super::write::{find_member, is_member_of};

/// Removes members without a field, here and in all values within, and returns their number.
pub(crate) fn prune(schema: &Schema, table: usize, value: &mut Value) -> u64 {
    let Value::Object(members) = value else { return 0 };
    let fields = &schema.tables[table].fields;
    let before = members.len();
    members.retain(|name, _| fields.iter().any(|field| is_member_of(field, name)));
    let mut lost = (before - members.len()) as u64;
    for field in fields {
        let Some(mut value) = members.get_mut(&field.name).map(Value::take) else { continue };
        let kinds = members.get(&format!("{}_type", field.name));
        lost += match field.nested {
            Some(nested) if value.is_object() => prune(schema, nested, &mut value),
            _ => prune_value(schema, &field.ty, kinds, &mut value),
        };
        members.insert(field.name.clone(), value);
    }
    lost
}

/// `kinds`: the types of the unions in the value.
fn prune_value(schema: &Schema, ty: &Type, kinds: Option<&Value>, value: &mut Value) -> u64 {
    match (ty, value) {
        (Type::Table(table), value) => prune(schema, *table, value),
        (Type::Struct(at), Value::Object(members)) => {
            let fields = &schema.structs[*at].fields;
            let before = members.len();
            members.retain(|name, _| fields.iter().any(|field| field.name == *name));
            let mut lost = (before - members.len()) as u64;
            for field in fields {
                if let Some(value) = members.get_mut(&field.name) {
                    lost += prune_value(schema, &field.ty, None, value);
                }
            }
            lost
        }
        (Type::Union(union), value) => {
            let member = kinds.and_then(|kind| find_member(&schema.unions[*union], kind));
            member.map_or(0, |member| prune_value(schema, &member.ty, None, value))
        }
        (Type::Vector(element) | Type::Array(element, _), Value::Array(items)) => {
            let items = items.iter_mut().enumerate();
            items.map(|(n, item)| prune_value(schema, element, kinds.and_then(|all| all.get(n)), item)).sum()
        }
        _ => 0,
    }
}
