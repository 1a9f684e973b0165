use polyrpc::payload::schema::{Cardinality, EnumType, Field, Kind, Message, Pool};
use polyrpc::service::MethodInfo;
use serde_json::{Map, Value, json};

use crate::observed::ObservedServer;

/// Depth to which an example has nested messages: they may contain themselves.
const MAX_DEPTH: usize = 3;

/// Returns a message that the method takes, as JSON: every field with its default. Functions take a list.
pub(crate) fn example(server: &ObservedServer, info: &MethodInfo) -> String {
    let message = info.messages.as_ref().and_then(|(input, _)| {
        let pools = server.monitor.descriptors();
        pools.iter().find_map(|pool| pool.message(input)).map(|message| message_example(&message, MAX_DEPTH))
    });
    let value = message.unwrap_or_else(|| if info.service.is_empty() { json!([]) } else { json!({}) });
    serde_json::to_string_pretty(&value).unwrap_or_default()
}

fn message_example(message: &Message, depth: usize) -> Value {
    let mut fields = Map::new();
    // Of a `oneof` there is one field.
    let mut chosen = Vec::new();
    for field in message.fields() {
        if let Some(oneof) = field.oneof() {
            if chosen.contains(&oneof) {
                continue;
            }
            chosen.push(oneof);
        }
        fields.insert(field.name().to_owned(), field_example(message.pool(), field, depth));
    }
    Value::Object(fields)
}

fn field_example(pool: &Pool, field: &Field, depth: usize) -> Value {
    match (field.is_map(), field.cardinality()) {
        (true, _) => json!({}),
        (false, Cardinality::Repeated) => json!([]),
        (false, _) => kind_example(pool, field.kind(), depth),
    }
}

fn kind_example(pool: &Pool, kind: Kind, depth: usize) -> Value {
    match kind {
        Kind::Bool => json!(false),
        Kind::String | Kind::Bytes => json!(""),
        Kind::Enum(id) => json!(first_value(pool.enum_type(id))),
        Kind::Message(_) | Kind::Group(_) if depth == 0 => json!({}),
        Kind::Message(id) | Kind::Group(id) => message_example(&pool.message_at(id), depth - 1),
        _ => json!(0),
    }
}

fn first_value(declared: &EnumType) -> String {
    declared.values().first().map(|value| value.name().to_owned()).unwrap_or_default()
}
