//! A whole document of JSON Schema.

use polyrpc::Json;
use polyrpc::payload::schema::Message;
use serde_json::{Map, Value, json};

use crate::{Content, Definitions, Method, ProtoFiles};

/// Returns the JSON Schema (2020-12) of messages: for each method an object with `request` and `response`; in a
/// direction that streams, this is one message of the stream. For a single method that object is the schema; for
/// several, each is a member under the method's name. `$defs` has every message and enum by its full name.
///
/// # Errors
///
/// If messages of the same name are declared in different ways.
pub fn json_schema(methods: &[Method], dialect: Json) -> Result<Value, String> {
    let mut definitions = Definitions::new(dialect, REFERENCE_PREFIX).exclusive_oneofs();
    let mut described: Vec<_> =
        methods.iter().map(|method| describe_method(&mut definitions, method)).collect();
    let mut document = match described.len() {
        1 => described.remove(0),
        _ => {
            let targets = methods.iter().map(Method::target);
            let properties: Map<_, _> = targets.zip(described.into_iter().map(Value::Object)).collect();
            let whole = json!({ "type": "object", "properties": properties });
            whole.as_object().cloned().unwrap_or_default()
        }
    };
    complete(&mut document, definitions)?;
    Ok(document.into())
}

impl ProtoFiles {
    /// Returns the JSON Schema (2020-12) of one message.
    ///
    /// # Errors
    ///
    /// If messages of the same name are declared in different ways.
    pub fn message_schema(&self, message: Message, dialect: Json) -> Result<Value, String> {
        let mut definitions = Definitions::new(dialect, REFERENCE_PREFIX).exclusive_oneofs();
        let schema = definitions.schema(&Content::Message(message, self.comments.clone()));
        let mut document = schema.as_object().cloned().unwrap_or_default();
        complete(&mut document, definitions)?;
        Ok(document.into())
    }
}

fn describe_method(definitions: &mut Definitions, method: &Method) -> Map<String, Value> {
    let mut schema = Map::new();
    schema.insert("title".into(), method.target().into());
    if let Some(text) = &method.description {
        schema.insert("description".into(), text.as_str().into());
    }
    schema.insert("type".into(), "object".into());
    let (request, response) = (definitions.schema(&method.input), definitions.schema(&method.output));
    schema.insert("properties".into(), json!({ "request": request, "response": response }));
    schema
}

fn complete(document: &mut Map<String, Value>, definitions: Definitions) -> Result<(), String> {
    let (definitions, conflicts) = definitions.into_parts();
    if let Some(name) = conflicts.first() {
        return Err(format!("{name} is declared in several different ways"));
    }
    document.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
    document.insert("$defs".into(), definitions.into());
    Ok(())
}

const REFERENCE_PREFIX: &str = "#/$defs/";
