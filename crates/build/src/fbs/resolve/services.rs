//! Services and their methods.

use std::collections::HashSet;

use super::attributes::find;
use super::names::Named;
use super::values::integer;
use super::{Resolver, fail};
use crate::Error;
use crate::fbs::ast::{Attribute, Located, MethodDecl, ServiceDecl, Value};
use crate::fbs::load::SourceFile;
use crate::fbs::schema::{Method, Service};

impl<'f> Resolver<'f> {
    pub(super) fn services(&mut self) -> Result<(), Error> {
        let mut known = HashSet::new();
        for (at, file) in self.files.iter().enumerate() {
            for decl in &file.declared.services {
                let service = self.service(file, at, decl)?;
                if !known.insert(service.full_name()) {
                    let reason = format!("`{}` is declared twice", service.full_name());
                    return Err(fail(file, decl.head.name.at, reason));
                }
                self.schema.services.push(service);
            }
        }
        Ok(())
    }

    fn service(&self, file: &SourceFile, at: usize, decl: &ServiceDecl) -> Result<Service, Error> {
        self.check_attributes(file, &decl.head.attributes)?;
        let mut methods: Vec<Method> = Vec::new();
        for method in &decl.methods {
            let resolved = self.method(file, method, &decl.head.namespace)?;
            if methods.iter().any(|other| other.name == resolved.name) {
                return Err(fail(file, method.name.at, format!("duplicate method `{}`", resolved.name)));
            }
            if let Some(other) = methods.iter().find(|other| other.id.is_some() && other.id == resolved.id) {
                let reason = format!("`{}` and `{}` have the same id", other.name, resolved.name);
                return Err(fail(file, method.name.at, reason));
            }
            if methods.first().is_some_and(|first| first.id.is_some() != resolved.id.is_some()) {
                let reason = "either every method of a service has an id, or none".to_owned();
                return Err(fail(file, method.name.at, reason));
            }
            methods.push(resolved);
        }
        let head = &decl.head;
        Ok(Service {
            docs: head.docs.clone(),
            namespace: head.namespace.clone(),
            name: head.name.value.clone(),
            methods,
            file: at,
        })
    }

    fn method(&self, file: &SourceFile, decl: &MethodDecl, namespace: &str) -> Result<Method, Error> {
        self.check_attributes(file, &decl.attributes)?;
        let table = |name: &Located<String>| match self.names.find(&name.value, namespace) {
            Some(Named::Table(table)) => Ok(table),
            Some(_) => Err(fail(file, name.at, format!("`{}` is not a table", name.value))),
            None => Err(fail(file, name.at, format!("there is no `{}`", name.value))),
        };
        let id = match find(&decl.attributes, "id") {
            None => None,
            Some(attribute) => Some(method_id(file, attribute)?),
        };
        let (client_streams, server_streams) = match find(&decl.attributes, "streaming") {
            None => (false, false),
            Some(attribute) => streaming(file, attribute)?,
        };
        Ok(Method {
            docs: decl.docs.clone(),
            name: decl.name.value.clone(),
            request: table(&decl.request)?,
            response: table(&decl.response)?,
            id,
            client_streams,
            server_streams,
            at: (decl.name.at.line, decl.name.at.column),
        })
    }
}

fn method_id(file: &SourceFile, attribute: &Attribute) -> Result<u32, Error> {
    let id = attribute.value.as_ref().map(|literal| integer(file, literal)).transpose()?;
    let id = id.and_then(|id| i32::try_from(id).ok()).and_then(|id| u32::try_from(id).ok());
    id.ok_or_else(|| fail(file, attribute.name.at, "expected an id from 0 to 2147483647".into()))
}

fn streaming(file: &SourceFile, attribute: &Attribute) -> Result<(bool, bool), Error> {
    match attribute.value.as_ref().map(|literal| &literal.value) {
        Some(Value::Text(text)) if text == "none" => Ok((false, false)),
        Some(Value::Text(text)) if text == "client" => Ok((true, false)),
        Some(Value::Text(text)) if text == "server" => Ok((false, true)),
        Some(Value::Text(text)) if text == "bidi" => Ok((true, true)),
        _ => {
            Err(fail(file, attribute.name.at, "expected \"none\", \"client\", \"server\" or \"bidi\"".into()))
        }
    }
}
