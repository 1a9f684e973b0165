use polyrpc::Json;
use polyrpc::payload::TypeSchema;
use polyrpc_describe::{Content, Definitions};
use serde_json::{Value, json};

use super::input::add_definitions;
use super::members::REFERENCE_PREFIX;

/// How a reply becomes the structured content of a result, which is an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// The reply is the content.
    Message,
    /// The reply is the member `result`.
    Value,
    /// The reply is the content if it is an object; it has no schema.
    Any,
    /// The messages of a stream are the list `messages`.
    Messages,
}

impl Output {
    /// Also returns the schema of the content, if it is known. `limit`: the number of messages of a stream.
    pub(super) fn new(content: &Content, limit: Option<usize>) -> Result<(Self, Option<Value>), String> {
        let mut definitions = Definitions::new(Json::Proto3, REFERENCE_PREFIX);
        let is_unknown = matches!(content, Content::Type(TypeSchema::Any));
        let (output, mut schema) = if let Some(limit) = limit {
            let item = definitions.schema(content);
            let messages = json!({ "type": "array", "items": item, "maxItems": limit });
            let truncated = json!({ "type": "boolean", "description": "Whether there were more messages." });
            let properties = json!({ "messages": messages, "truncated": truncated });
            let required = ["messages", "truncated"];
            (Self::Messages, json!({ "type": "object", "properties": properties, "required": required }))
        } else if is_unknown {
            return Ok((Self::Any, None));
        } else {
            let schema = definitions.inline_schema(content);
            match schema["type"] == "object" {
                true => (Self::Message, schema),
                false => {
                    let properties = json!({ "result": schema });
                    let schema =
                        json!({ "type": "object", "properties": properties, "required": ["result"] });
                    (Self::Value, schema)
                }
            }
        };
        add_definitions(&mut schema, definitions)?;
        Ok((output, Some(schema)))
    }
}
