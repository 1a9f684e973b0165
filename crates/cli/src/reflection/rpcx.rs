//! Services of an rpcx server by its service `Reflection`: the text of a Go program (rpcx
//! `reflection/server_reflection.go`).

use polyrpc::client::{self, Result};
use polyrpc::codec::Body;
use polyrpc::{Client, Format, Json, Status};
use serde_json::{Value, json};

/// Services with their methods and types.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) services: Vec<Service>,
    /// The declarations of the types by their names, in the order of the text.
    types: Vec<(String, String)>,
}

/// A service and its declarations.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) methods: Vec<Method>,
}

/// A method with the names of its types.
#[derive(Debug)]
pub(crate) struct Method {
    pub(crate) name: String,
    pub(crate) request: String,
    pub(crate) reply: String,
}

impl Program {
    /// Queries a server for all its services, or for one.
    ///
    /// # Errors
    ///
    /// [`Unimplemented`](polyrpc::Code::Unimplemented) if the server has no reflection.
    pub(crate) async fn query(
        client: &Client,
        service: Option<&str>,
        options: client::CallOptions,
    ) -> Result<Self> {
        let (method, name) = match service {
            Some(name) => ("Reflection/GetService", name),
            None => ("Reflection/GetServices", ""),
        };
        let name = serde_json::to_vec(name).map_err(Status::from_error)?;
        let body = Body::new(Format::Json(Json::Go), name);
        let response = client.call_raw(method, body, options).await?;
        let text: String = serde_json::from_slice(&response.message.bytes).map_err(Status::from_error)?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut program = Self::default();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let Some(declared) = line.strip_prefix("type ").or_else(|| line.strip_prefix("func ")) else {
                continue;
            };
            if let Some((service, method)) = parse_method(declared) {
                program.add(service, method);
            } else if let Some(name) = declared.strip_suffix("struct {").map(str::trim) {
                let fields: Vec<_> =
                    lines.by_ref().take_while(|line| *line != "}").map(str::trim_end).collect();
                program.declare(name, format!("type {name} struct {{\n{}\n}}", fields.join("\n")));
            }
        }
        program
    }

    fn add(&mut self, service: &str, method: Method) {
        match self.services.iter_mut().find(|known| known.name == service) {
            Some(known) => known.methods.push(method),
            None => self.services.push(Service { name: service.to_owned(), methods: vec![method] }),
        }
    }

    fn declare(&mut self, name: &str, text: String) {
        if !self.types.iter().any(|(known, _)| known == name) {
            self.types.push((name.to_owned(), text));
        }
    }

    /// Services with their methods, in the format used for a `.proto`.
    pub(crate) fn list(&self) -> String {
        let service = |service: &Service| {
            let methods = service.methods.iter().map(|method| format!("\n  {}", method.signature()));
            format!("{}{}", service.name, methods.collect::<String>())
        };
        self.services.iter().map(service).collect::<Vec<_>>().join("\n")
    }

    /// The same as JSON.
    pub(crate) fn to_json(&self) -> Value {
        let method = |method: &Method| json!({ "name": method.name, "request": method.request, "response": method.reply });
        let service = |service: &Service| {
            let methods: Vec<_> = service.methods.iter().map(method).collect();
            json!({ "name": service.name, "methods": methods })
        };
        json!({ "services": self.services.iter().map(service).collect::<Vec<_>>() })
    }

    /// The names of all methods.
    pub(crate) fn methods(&self) -> impl Iterator<Item = &str> {
        self.services.iter().flat_map(|service| &service.methods).map(|method| method.name.as_str())
    }

    /// The methods, or the one with this name, and the declarations of their types.
    pub(crate) fn describe(&self, method: Option<&str>) -> Option<String> {
        let methods = self.services.iter().flat_map(|service| &service.methods);
        let methods: Vec<_> = methods.filter(|known| method.is_none_or(|name| known.name == name)).collect();
        if methods.is_empty() {
            return None;
        }
        let signatures: Vec<_> = methods.iter().map(|method| method.signature()).collect();
        let used = |name: &str| methods.iter().any(|method| method.request == name || method.reply == name);
        let types = self.types.iter().filter(|(name, _)| used(name)).map(|(_, text)| format!("\n\n{text}"));
        Some(signatures.join("\n") + &types.collect::<String>())
    }
}

impl Method {
    fn signature(&self) -> String {
        format!("{} ({}) returns ({})", self.name, self.request, self.reply)
    }
}

/// `(s *Arith) Mul(ctx context.Context, arg *Args, reply *Reply) error {`
fn parse_method(declared: &str) -> Option<(&str, Method)> {
    let (receiver, rest) = declared.strip_prefix("(s *")?.split_once(") ")?;
    let (name, arguments) = rest.split_once('(')?;
    let (_, arguments) = arguments.split_once("arg *")?;
    let (request, rest) = arguments.split_once(", reply *")?;
    let (reply, _) = rest.rsplit_once(") error")?;
    let method = Method { name: name.to_owned(), request: request.to_owned(), reply: reply.to_owned() };
    Some((receiver, method))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Response of Go rpcx v1.9.4: a type is repeated with every method.
    const TEXT: &str = "package main\n\ntype Arith struct{}\n\n\ntype Args struct {\n\tA int64 \n\tB int64 \n}\n\n\
        type Reply struct {\n\tC int64 \n}\n\ntype (s *Arith) Mul(ctx context.Context, arg *Args, reply *Reply) error {\n\
        \n\treturn nil\n}\n\ntype Args struct {\n\tA int64 \n\tB int64 \n}\n\ntype Reply struct {\n\tC int64 \n}\n\n\
        type (s *Arith) Sum(ctx context.Context, arg *[]int64, reply *Reply) error {\n\n\treturn nil\n}\n";

    #[test]
    fn reflection_text_of_rpcx_is_parsed() {
        let program = Program::parse(TEXT);
        assert_eq!(program.list(), "Arith\n  Mul (Args) returns (Reply)\n  Sum ([]int64) returns (Reply)");
        assert_eq!(
            program.describe(Some("Mul")).unwrap(),
            "Mul (Args) returns (Reply)\n\ntype Args struct {\n\tA int64\n\tB int64\n}\n\ntype Reply struct {\n\tC int64\n}"
        );
        assert!(program.describe(Some("Nope")).is_none());
        assert_eq!(Program::parse("").list(), "");
    }
}
