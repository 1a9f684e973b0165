use serde_json::{Map, Value, json};

use crate::Method;

/// An operation of a path.
pub(super) struct Operation {
    description: Vec<String>,
    service: String,
    deprecated: bool,
    parameters: Vec<Value>,
    body: Option<Value>,
    response: Value,
    failure: &'static str,
}

impl Operation {
    pub(super) fn new(method: &Method) -> Self {
        Self {
            description: method.description.iter().cloned().collect(),
            service: method.service.clone(),
            deprecated: method.deprecated,
            parameters: Vec::new(),
            body: None,
            response: Value::Object(Map::new()),
            failure: "Failure",
        }
    }

    pub(super) fn parameters(mut self, parameters: Vec<Value>) -> Self {
        self.parameters = parameters;
        self
    }

    pub(super) fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    /// Sets the content of a successful response, by media types.
    pub(super) fn response(mut self, content: Value) -> Self {
        self.response = content;
        self
    }

    /// Sets the name of the response for failures.
    pub(super) fn failure(mut self, name: &'static str) -> Self {
        self.failure = name;
        self
    }

    pub(super) fn note(mut self, text: impl Into<String>) -> Self {
        self.description.push(text.into());
        self
    }

    pub(super) fn into_value(self, id: String) -> Value {
        let mut operation = json!({
            "operationId": id,
            "responses": {
                "200": { "description": "The response.", "content": self.response },
                "default": { "$ref": format!("#/components/responses/{}", self.failure) },
            },
        });
        if !self.service.is_empty() {
            operation["tags"] = json!([self.service]);
        }
        if !self.description.is_empty() {
            operation["description"] = self.description.join("\n\n").into();
        }
        if self.deprecated {
            operation["deprecated"] = true.into();
        }
        if !self.parameters.is_empty() {
            operation["parameters"] = self.parameters.into();
        }
        if let Some(body) = self.body {
            operation["requestBody"] = body;
        }
        operation
    }
}
