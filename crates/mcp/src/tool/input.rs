use std::collections::BTreeMap;

use polyrpc::Json;
use polyrpc::payload::TypeSchema;
use polyrpc_describe::{Content, Definitions};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::members::{self, REFERENCE_PREFIX};

/// How the arguments of a tool, which are an object, become a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Input {
    /// They are the message.
    Message,
    /// The member `value` is the message.
    Value,
    /// The members `arg1` and so on are the list of arguments. `true`: the argument may be left out.
    Arguments(Vec<bool>),
}

impl Input {
    /// Also returns the schema of the arguments.
    pub(super) fn new(content: &Content) -> Result<(Self, Value), String> {
        let mut definitions = Definitions::new(Json::Proto3, REFERENCE_PREFIX);
        let schema = definitions.inline_schema(content);
        let (input, mut schema) = match content {
            Content::Type(TypeSchema::Any) => (Self::Message, json!({ "type": "object" })),
            _ if schema["type"] == "object" => (Self::Message, schema),
            Content::Type(TypeSchema::Tuple(types)) => {
                let optional = |ty: &TypeSchema| matches!(ty, TypeSchema::Optional(_));
                let optional: Vec<_> = types.iter().map(optional).collect();
                let schema = arguments(&schema, &optional);
                (Self::Arguments(optional), schema)
            }
            Content::Arguments(types) => {
                let optional = vec![false; types.len()];
                let schema = arguments(&schema, &optional);
                (Self::Arguments(optional), schema)
            }
            _ => {
                let properties = json!({ "value": schema });
                let schema = json!({ "type": "object", "properties": properties, "required": ["value"] });
                (Self::Value, schema)
            }
        };
        add_definitions(&mut schema, definitions)?;
        Ok((input, schema))
    }

    /// Returns the message for these arguments. `schema`: their schema, as the tool is described.
    ///
    /// # Errors
    ///
    /// If they are not an object, or an argument, or a member of one, is missing or unknown.
    pub(crate) fn message(&self, schema: &Value, arguments: Option<&RawValue>) -> Result<String, String> {
        let text = arguments.map_or("{}", RawValue::get);
        let not_an_object = |_| "the arguments are not an object".to_owned();
        let mut members: BTreeMap<String, &RawValue> = serde_json::from_str(text).map_err(not_an_object)?;
        members::check(schema, text)?;
        let message = match self {
            Self::Message => return Ok(text.to_owned()),
            Self::Value => match members.remove("value") {
                Some(value) => value.get().to_owned(),
                None => return Err("the argument `value` is missing".to_owned()),
            },
            Self::Arguments(optional) => {
                let mut list = Vec::with_capacity(optional.len());
                for (n, optional) in optional.iter().enumerate() {
                    let name = argument(n);
                    match members.remove(&name) {
                        Some(value) => list.push(value.get()),
                        None if *optional => list.push("null"),
                        None => return Err(format!("the argument `{name}` is missing")),
                    }
                }
                format!("[{}]", list.join(","))
            }
        };
        match members.keys().next() {
            None => Ok(message),
            Some(name) => Err(format!("there is no argument `{name}`")),
        }
    }
}

/// The schema of an object with the items of a list.
fn arguments(list: &Value, optional: &[bool]) -> Value {
    let items = list["prefixItems"].as_array().cloned().unwrap_or_default();
    let properties: Map<_, _> = items.into_iter().enumerate().map(|(n, item)| (argument(n), item)).collect();
    let needed = optional.iter().enumerate().filter(|(_, optional)| !**optional);
    let required: Vec<_> = needed.map(|(n, _)| argument(n)).collect();
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema
}

/// The name of an argument: the names of a function's parameters are unknown.
fn argument(n: usize) -> String {
    format!("arg{}", n + 1)
}

/// Adds the definitions that a schema refers to.
pub(super) fn add_definitions(schema: &mut Value, definitions: Definitions) -> Result<(), String> {
    let (mut definitions, conflicts) = definitions.into_parts();
    if let Some(name) = conflicts.first() {
        return Err(format!("{name} is declared in several different ways"));
    }
    // The message itself has a definition too, which matters only if it contains itself.
    let names: Vec<_> = definitions.keys().cloned().collect();
    for name in names {
        let reference = Value::from(format!("{REFERENCE_PREFIX}{name}")).to_string();
        let refers = |value: &Value| value.to_string().contains(&reference);
        if !refers(schema) && !definitions.values().any(refers) {
            definitions.remove(&name);
        }
    }
    if !definitions.is_empty() {
        schema["$defs"] = definitions.into();
    }
    Ok(())
}
