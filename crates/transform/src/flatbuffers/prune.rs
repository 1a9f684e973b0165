//! Removal of members that a table does not declare.

use polyrpc_build::fbs::{Schema, Type};
use serde_json::Value;

/// Removes members without a field, here and in tables within, and returns their number.
pub(crate) fn prune(schema: &Schema, table: usize, value: &mut Value) -> u64 {
    let Value::Object(members) = value else { return 0 };
    let fields = &schema.tables[table].fields;
    let before = members.len();
    members.retain(|name, _| {
        fields.iter().any(|field| field.name == *name || name.strip_suffix("_type") == Some(&field.name))
    });
    let mut lost = (before - members.len()) as u64;
    for field in fields {
        let Some(value) = members.get_mut(&field.name) else { continue };
        match (&field.ty, value) {
            (Type::Table(table), value) => lost += prune(schema, *table, value),
            (Type::Vector(element), Value::Array(items)) => {
                if let Type::Table(table) = **element {
                    lost += items.iter_mut().map(|item| prune(schema, table, item)).sum::<u64>();
                }
            }
            _ => {}
        }
    }
    lost
}
