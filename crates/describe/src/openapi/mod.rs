//! OpenAPI 3.1 documents.

mod binding;
mod failure;
mod operation;

use std::collections::HashSet;

use polyrpc::Json;
use polyrpc_wire::http::rule::Binding;
use serde_json::{Map, Value, json};

use self::operation::Operation;
use crate::{Content, Definitions, Method};

/// An OpenAPI 3.1 document of methods, as a PolyRPC server answers them over HTTP.
///
/// * A method with the option `google.api.http` has the paths of its rules; its JSON is canonical.
/// * Any other unary method is `POST /Service/Method`; its JSON is in the dialect of the server's listener.
/// * A method that streams its responses is the same with one line or one server-sent event per message.
/// * Methods that take streams are omitted, since plain HTTP cannot call them. The description names them.
///
/// ```
/// use polyrpc::payload::TypeSchema;
/// use polyrpc_describe::{Content, Method, OpenApi};
///
/// let number = || Content::Type(TypeSchema::Int(64));
/// let method = Method::new("Arith", "Double", number(), number());
/// let document = OpenApi::new("Arithmetic").document(&[method]).unwrap();
/// assert_eq!(document["paths"]["/Arith/Double"]["post"]["operationId"], "Arith.Double");
/// ```
#[derive(Debug, Clone)]
pub struct OpenApi {
    title: String,
    version: String,
    server: Option<String>,
    dialect: Json,
}

/// Shared state of the operations while a document is created.
struct Document {
    paths: Map<String, Value>,
    /// Messages in the listener's dialect.
    usual: Definitions,
    /// Messages in ProtoJSON.
    canonical: Definitions,
    /// Ids of the operations so far.
    operations: HashSet<String>,
    /// Ids of the methods' first operations, which no further operation may have.
    first_ids: HashSet<String>,
    omitted: Vec<String>,
}

impl OpenApi {
    /// Creates a document with this title, for servers whose listeners have brpc's dialect of JSON, which is the
    /// default.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), version: "0".to_owned(), server: None, dialect: Json::Brpc }
    }

    /// Sets the version of the described interface.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// Sets the URL of the server: `http://host:port`.
    #[must_use]
    pub fn server(mut self, url: impl Into<String>) -> Self {
        self.server = Some(url.into());
        self
    }

    /// Sets the dialect of the server's listener: [`Listen::json`](polyrpc::server::Listen::json).
    #[must_use]
    pub fn dialect(mut self, dialect: Json) -> Self {
        self.dialect = dialect;
        self
    }

    /// Returns the document.
    ///
    /// # Errors
    ///
    /// If the rule of a method is invalid, two methods have the same path, or messages of the same name are declared in
    /// different ways.
    pub fn document(&self, methods: &[Method]) -> Result<Value, String> {
        // Messages have no suffix unless the same document needs them in both dialects.
        let is_canonical =
            |method: &Method| method.http_rule.is_some() || method.stream_type.server_streaming;
        let mixed = self.dialect != Json::Proto3
            && methods.iter().any(is_canonical)
            && methods.iter().any(|method| !is_canonical(method));
        let mut document = Document {
            paths: Map::new(),
            usual: Definitions::new(self.dialect, REFERENCE_PREFIX),
            canonical: Definitions::new(Json::Proto3, REFERENCE_PREFIX).suffix(if mixed {
                ".canonical"
            } else {
                ""
            }),
            operations: HashSet::new(),
            first_ids: methods.iter().map(id_of).collect(),
            omitted: Vec::new(),
        };
        for method in methods {
            document.method(method)?;
        }
        self.complete(document, methods)
    }

    fn complete(&self, document: Document, methods: &[Method]) -> Result<Value, String> {
        let Document { paths, usual, canonical, omitted, .. } = document;
        let (mut schemas, mut conflicts) = canonical.into_parts();
        let (others, more) = usual.into_parts();
        conflicts.extend(more);
        for (name, schema) in others {
            if schemas.insert(name.clone(), schema.clone()).is_some_and(|known| known != schema) {
                conflicts.push(name);
            }
        }
        if let Some(name) = conflicts.first() {
            return Err(format!("{name} is declared in several different ways"));
        }
        let streams = methods
            .iter()
            .any(|method| method.stream_type.server_streaming && !method.stream_type.client_streaming);
        schemas.extend(failure::schemas(streams));
        let mut info = json!({ "title": self.title, "version": self.version });
        if !omitted.is_empty() {
            let names = omitted.join(", ");
            info["description"] =
                format!("Not described, since plain HTTP cannot call them: {names}.").into();
        }
        let mut whole = json!({
            "openapi": "3.1.0",
            "info": info,
            "paths": paths,
            "components": {
                "schemas": schemas,
                "responses": failure::responses(streams),
                "securitySchemes": {
                    "bearer": { "type": "http", "scheme": "bearer" },
                    "basic": { "type": "http", "scheme": "basic" },
                },
            },
            // Whether a credential is needed is up to the listener.
            "security": [{}, { "bearer": [] }, { "basic": [] }],
        });
        if let Some(url) = &self.server {
            whole["servers"] = json!([{ "url": url }]);
        }
        Ok(whole)
    }
}

impl Document {
    fn method(&mut self, method: &Method) -> Result<(), String> {
        match &method.http_rule {
            _ if method.stream_type.client_streaming => self.omitted.push(method.target()),
            // Rules of methods that stream have no effect.
            Some(rule) if !method.stream_type.server_streaming => {
                let bindings = Binding::read_all(rule);
                let bindings = bindings.map_err(|error| format!("{}: {error}", method.target()))?;
                for binding in bindings {
                    self.binding(method, &binding)?;
                }
            }
            _ if method.stream_type.server_streaming => self.stream(method)?,
            _ => self.post(method)?,
        }
        Ok(())
    }

    /// `POST /Service/Method` with a message, and a message in return.
    fn post(&mut self, method: &Method) -> Result<(), String> {
        let (request, response) = (self.usual.schema(&method.input), self.usual.schema(&method.output));
        let operation = Operation::new(method)
            .body(body(&method.input, request))
            .response(json!({ "application/json": { "schema": response } }))
            .failure("Failure");
        self.add("post", &path(method), method, operation)
    }

    /// `POST /Service/Method` with a message, and any number in return. These calls are Connect's, which has canonical
    /// JSON.
    fn stream(&mut self, method: &Method) -> Result<(), String> {
        let (request, response) =
            (self.canonical.schema(&method.input), self.canonical.schema(&method.output));
        let content = json!({
            "application/x-ndjson": { "schema": response },
            "text/event-stream": { "schema": response },
        });
        let operation = Operation::new(method)
            .body(body(&method.input, request))
            .response(content)
            .failure("StreamFailure")
            .note(
                "Answers with one line of JSON, or one server-sent event, per message; the schema is that of a message. \
                 The field Accept must name one of the two. A failure behind the first message is the last line, \
                 `{\"error\":{…}}`, or the event `error`; the event `end` is the end.",
            );
        self.add("post", &path(method), method, operation)
    }

    /// Adds an operation.
    fn add(&mut self, verb: &str, path: &str, method: &Method, operation: Operation) -> Result<(), String> {
        let id = self.unique_id(method);
        let item = self.paths.entry(path).or_insert_with(|| Value::Object(Map::new()));
        if item.get(verb).is_some() {
            return Err(format!("{}: `{verb} {path}` is that of another method", method.target()));
        }
        item[verb] = operation.into_value(id);
        Ok(())
    }

    /// Returns a new id: a method may have several bindings. A number is skipped if the result is the id of another
    /// method, also of a later one, so that the ids of methods do not depend on their order.
    fn unique_id(&mut self, method: &Method) -> String {
        let first = id_of(method);
        let (mut id, mut number) = (first.clone(), 1);
        while self.operations.contains(&id) || number > 1 && self.first_ids.contains(&id) {
            number += 1;
            id = format!("{first}_{number}");
        }
        self.operations.insert(id.clone());
        id
    }
}

/// Returns the id of a method's first operation.
fn id_of(method: &Method) -> String {
    method.target().replace('/', ".")
}

/// A message is required unless it has defaults for everything.
fn body(content: &Content, schema: Value) -> Value {
    let is_message = matches!(content, Content::Message(..));
    json!({ "required": !is_message, "content": { "application/json": { "schema": schema } } })
}

fn path(method: &Method) -> String {
    format!("/{}", method.target())
}

const REFERENCE_PREFIX: &str = "#/components/schemas/";

#[cfg(test)]
mod tests;
