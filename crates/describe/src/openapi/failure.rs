//! Responses to calls that failed, as the server writes them.

use serde_json::{Map, Value, json};

/// The schemas of failures. The name of no message begins with a capital letter and has no dot, unless it has no package.
pub(super) fn schemas(streams: bool) -> Map<String, Value> {
    let mut schemas = Map::new();
    let detail = |name: &str| {
        json!({
            "type": "object",
            "properties": {
                name: { "type": "string", "description": "The type of the message in `value`." },
                "value": { "type": "string", "contentEncoding": "base64" },
            },
            "required": [name, "value"],
        })
    };
    let failure = json!({
        "type": "object",
        "description": "A google.rpc.Status.",
        "properties": {
            "code": { "type": "integer", "minimum": 0, "maximum": 16, "description": "The code of gRPC." },
            "message": { "type": "string" },
            "details": { "type": "array", "items": detail("@type") },
        },
        "required": ["code", "message", "details"],
    });
    schemas.insert("polyrpc.Failure".into(), failure);
    if streams {
        let failure = json!({
            "type": "object",
            "description": "A failure of the Connect protocol.",
            "properties": {
                "code": { "type": "string", "description": "The code of gRPC by its name: `not_found`." },
                "message": { "type": "string" },
                "details": { "type": "array", "items": detail("type") },
            },
            "required": ["code"],
        });
        schemas.insert("polyrpc.StreamFailure".into(), failure);
    }
    schemas
}

pub(super) fn responses(streams: bool) -> Value {
    let response = |text: &str, name: &str| {
        json!({
            "description": text,
            "content": {
                "application/json": { "schema": { "$ref": format!("#/components/schemas/polyrpc.{name}") } },
            },
        })
    };
    let failure = "The call failed. The field x-bd-error-code has brpc's number, if it is not an answer to a rule's path.";
    let mut responses = json!({ "Failure": response(failure, "Failure") });
    if streams {
        responses["StreamFailure"] = response("The call failed before its first message.", "StreamFailure");
    }
    responses
}
