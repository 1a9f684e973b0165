//! rpcx's reflection: the services of a server, as the text of a Go program (rpcx `reflection/server_reflection.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use polyrpc_core::Status;

use crate::Result;
use crate::call::Context;
use crate::codec::{Serde, TypeSchema};
use crate::service::{MethodRole, Router, ServiceBuilder};

/// Adds the service, unless the program has one of that name; it describes the services added so far.
pub(super) fn add(router: &mut Router) {
    let texts: BTreeMap<String, Text> = router
        .methods()
        .into_iter()
        .map(|(service, methods)| {
            let methods = methods.into_iter().map(|(name, method)| (name, method.type_schemas()));
            (service.to_owned(), Text::new(service, methods))
        })
        .collect();
    if texts.contains_key(SERVICE) {
        return;
    }
    let one = Arc::new(texts);
    let all = one.clone();
    router.add_standard(
        MethodRole::Introspection,
        ServiceBuilder::new(SERVICE)
            .method::<Serde, String, String, _, _>("GetService", move |cx: Context, name: String| {
                let text = one.get(&name).map(Text::whole).ok_or_else(|| unknown(&name));
                async move { (cx, text) }
            })
            .method::<Serde, Option<String>, String, _, _>(
                "GetServices",
                move |cx: Context, _: Option<String>| {
                    let text = merge_services(&all);
                    async move { (cx, text) }
                },
            ),
    );
}

/// The description of a service.
#[derive(Debug)]
struct Text {
    package: String,
    declarations: String,
}

impl Text {
    fn new<'m>(service: &str, methods: impl Iterator<Item = (&'m str, (TypeSchema, TypeSchema))>) -> Self {
        let (package, name) = service.rsplit_once('.').unwrap_or(("main", service));
        let package = identifier(package.rsplit('.').next().unwrap_or(package));
        let name = identifier(name);
        let mut declarations = vec![format!("type {name} struct{{}}\n")];
        for (method, (request, reply)) in methods {
            for declaration in [&request, &reply].into_iter().filter_map(declaration) {
                if !declarations.contains(&declaration) {
                    declarations.push(declaration);
                }
            }
            let (request, reply) = (go_type(&request), go_type(&reply));
            // `type` in place of Go's `func` is as in rpcx.
            declarations.push(format!(
                "type (s *{name}) {method}(ctx context.Context, arg *{request}, reply *{reply}) error {{\n\
                 \treturn nil\n}}\n"
            ));
        }
        Self { package, declarations: declarations.join("\n") }
    }

    fn whole(&self) -> String {
        format!("package {}\n\n{}", self.package, self.declarations)
    }
}

/// Of several packages only the first is named, as in rpcx.
fn merge_services(texts: &BTreeMap<String, Text>) -> Result<String> {
    let package = texts.values().next().map(|text| format!("package {}\n\n", text.package));
    let declarations: Vec<&str> = texts.values().map(|text| text.declarations.as_str()).collect();
    Ok(package.unwrap_or_default() + &declarations.join("\n"))
}

#[cold]
fn unknown(name: &str) -> crate::Failure {
    Status::not_found(format!("not found service {name}")).into()
}

/// The declaration of a named type.
fn declaration(schema: &TypeSchema) -> Option<String> {
    match schema {
        TypeSchema::Struct { name, fields } => {
            Some(format!("type {} {}\n", identifier(name), members(fields, 1)))
        }
        _ => None,
    }
}

fn members(fields: &[(String, TypeSchema)], depth: usize) -> String {
    let indent = "\t".repeat(depth);
    let mut text = "struct {\n".to_owned();
    for (name, schema) in fields {
        let exported = exported_name(name);
        let tag =
            if exported == *name { String::new() } else { format!(" `json:\"{name}\" msgpack:\"{name}\"`") };
        text += &format!("{indent}{exported} {}{tag}\n", inline(schema, depth));
    }
    text + &"\t".repeat(depth - 1) + "}"
}

/// A reference to a type.
fn go_type(schema: &TypeSchema) -> String {
    match schema {
        TypeSchema::Struct { name, .. } => identifier(name),
        other => inline(other, 1),
    }
}

/// An inline type.
fn inline(schema: &TypeSchema, depth: usize) -> String {
    match schema {
        TypeSchema::Bool => "bool".to_owned(),
        TypeSchema::Int(bits) => format!("int{bits}"),
        TypeSchema::Uint(bits) => format!("uint{bits}"),
        TypeSchema::Float(bits) => format!("float{bits}"),
        TypeSchema::String => "string".to_owned(),
        TypeSchema::Bytes => "[]byte".to_owned(),
        TypeSchema::Optional(inner) => format!("*{}", inline(inner, depth)),
        TypeSchema::List(item) => format!("[]{}", inline(item, depth)),
        TypeSchema::Tuple(_) => "[]any".to_owned(),
        TypeSchema::Map(key, value) => format!("map[{}]{}", inline(key, depth), inline(value, depth)),
        TypeSchema::Struct { fields, .. } => members(fields, depth + 1),
        // Whatever is not known.
        _ => "any".to_owned(),
    }
}

/// A field name that Go exports: it starts with an upper-case letter.
fn exported_name(name: &str) -> String {
    let mut letters = identifier(name).chars().collect::<Vec<_>>();
    if let Some(first) = letters.first_mut() {
        *first = first.to_ascii_uppercase();
    }
    match letters.first() {
        Some('A'..='Z') => letters.into_iter().collect(),
        _ => format!("X{}", letters.into_iter().collect::<String>()),
    }
}

/// Replaces characters that are invalid in a Go identifier.
fn identifier(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
}

const SERVICE: &str = "Reflection";

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, fields: &[(&str, TypeSchema)]) -> TypeSchema {
        let fields = fields.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
        TypeSchema::Struct { name: name.into(), fields }
    }

    #[test]
    fn service_is_described_as_by_rpcx() {
        let args = pair(
            "Args",
            &[("A", TypeSchema::Int(64)), ("b_c", TypeSchema::List(Box::new(TypeSchema::String)))],
        );
        let reply = pair(
            "Reply",
            &[("C", TypeSchema::Optional(Box::new(pair("Inner", &[("D", TypeSchema::Bool)]))))],
        );
        let methods =
            [("Add", (args.clone(), reply.clone())), ("Mul", (args, reply)), ("Odd", <_>::default())];
        let text = Text::new("example.Arith", methods.into_iter());
        assert_eq!(
            text.whole(),
            "package example\n\n\
             type Arith struct{}\n\n\
             type Args struct {\n\tA int64\n\tB_c []string `json:\"b_c\" msgpack:\"b_c\"`\n}\n\n\
             type Reply struct {\n\tC *struct {\n\t\tD bool\n\t}\n}\n\n\
             type (s *Arith) Add(ctx context.Context, arg *Args, reply *Reply) error {\n\treturn nil\n}\n\n\
             type (s *Arith) Mul(ctx context.Context, arg *Args, reply *Reply) error {\n\treturn nil\n}\n\n\
             type (s *Arith) Odd(ctx context.Context, arg *any, reply *any) error {\n\treturn nil\n}\n"
        );
    }
}
