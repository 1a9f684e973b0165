use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use polyrpc::Protocol;
use polyrpc_build::fbs;

use super::MethodSchema;
use super::numbers::Numbers;
use crate::struct_pack::Signature;
use crate::{Error, SchemaSource, flatbuffers};

/// Declarations of any number of methods, from several sources.
#[derive(Debug, Default)]
pub struct Schemas {
    protos: Vec<SchemaSource>,
    fbs: Vec<Arc<fbs::Schema>>,
    functions: BTreeMap<String, Signature>,
    /// Computed from the above at first use.
    numbers: OnceLock<Numbers>,
}

impl Schemas {
    /// Creates an empty collection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the content of `.proto` files, a descriptor set or a server's reflection. The first declaration of a method
    /// is used.
    pub fn add_proto(&mut self, source: SchemaSource) {
        self.numbers.take();
        self.protos.push(source);
    }

    /// Adds `.fbs` files.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or is invalid, with the position.
    pub fn add_fbs(&mut self, files: &[PathBuf], includes: &[PathBuf]) -> Result<(), Error> {
        let schema = fbs::read(files, includes).map_err(|error| Error::new(error.to_string()))?;
        self.numbers.take();
        self.fbs.push(Arc::new(schema));
        Ok(())
    }

    /// Adds the text of a `.fbs` without includes.
    ///
    /// # Errors
    ///
    /// If it is invalid.
    pub fn add_fbs_text(&mut self, name: &str, text: &str) -> Result<(), Error> {
        let schema = fbs::read_text(name, text).map_err(|error| Error::new(error.to_string()))?;
        self.numbers.take();
        self.fbs.push(Arc::new(schema));
        Ok(())
    }

    /// Adds a function with the types of its arguments and its result: `add(int64, int64) -> int64`.
    ///
    /// # Errors
    ///
    /// If it has another form, a type is unknown, or the function is declared already.
    pub fn add_function(&mut self, declaration: &str) -> Result<(), Error> {
        let wrong = || {
            Error::new(format!("`{declaration}` is not a function"))
                .with_hint("write its name and types: add(int64, int64) -> int64")
        };
        let (name, rest) = declaration.split_once('(').ok_or_else(wrong)?;
        let (arguments, result) = rest.rsplit_once(')').ok_or_else(wrong)?;
        let result = result.trim();
        if name.trim().is_empty() || !(result.is_empty() || result.starts_with("->")) {
            return Err(wrong());
        }
        let signature: Signature = format!("{arguments} {result}")
            .parse()
            .map_err(|error| Error::new(format!("`{declaration}`: {error}")))?;
        self.numbers.take();
        match self.functions.insert(name.trim().to_owned(), signature) {
            None => Ok(()),
            Some(_) => Err(Error::new(format!("the function `{}` is declared twice", name.trim()))),
        }
    }

    /// Returns the declarations of a method: `Service/Method`, with or without a package, or a function's name.
    /// `numbered`: also look up the name for protocols whose methods have numbers.
    pub fn method(&self, target: &str, numbered: bool) -> MethodSchema {
        self.renamed(target, target, numbered)
    }

    /// Returns the declarations of a method that callers and server name differently: those under the server's name, or
    /// else those under the callers' name. `numbered`: the server's protocol has numbers for methods, which only a
    /// declaration under the server's name provides.
    pub fn renamed(&self, callers: &str, servers: &str, numbered: bool) -> MethodSchema {
        let flatbuffers = |name: &str| {
            self.fbs.iter().find_map(|schema| flatbuffers::Method::find(schema.clone(), numbered, name).ok())
        };
        let proto = |name: &str| self.protos.iter().find_map(|source| source.types(name).ok());
        MethodSchema {
            proto: proto(servers).or_else(|| proto(callers)),
            flatbuffers: flatbuffers(servers).or_else(|| if numbered { None } else { flatbuffers(callers) }),
            signature: self.function(servers).or_else(|| self.function(callers)).cloned(),
        }
    }

    /// A function by its name, or by the method's name within a service.
    fn function(&self, target: &str) -> Option<&Signature> {
        let function = target.rsplit('/').next().unwrap_or(target);
        self.functions.get(target).or_else(|| self.functions.get(function))
    }

    /// Returns service and method for the numbers, or C++ names, that a caller sent; the service of a function is
    /// empty. `None` if they are not declared, if several methods have the number, or if the protocol sends names.
    pub fn resolve(&self, protocol: Protocol, service: &str, method: &str) -> Option<(&str, &str)> {
        match protocol {
            Protocol::RestRpc => self.numbers().function(method),
            Protocol::FbRpc => self.numbers().method(service, method),
            _ => None,
        }
    }

    fn numbers(&self) -> &Numbers {
        self.numbers.get_or_init(|| {
            let mut numbers = Numbers::default();
            for target in self.targets() {
                let (service, method) = target.rsplit_once('/').unwrap_or(("", &target));
                numbers.add_function(service, method);
            }
            self.fbs.iter().flat_map(|schema| &schema.services).for_each(|it| numbers.add_service(it));
            numbers
        })
    }

    /// Whether the `.proto` of a method declares that it has no side effects (`idempotency_level = NO_SIDE_EFFECTS`).
    pub fn has_no_side_effects(&self, target: &str) -> bool {
        self.protos.iter().any(|source| source.has_no_side_effects(target))
    }

    /// Iterates over the sources of `.proto` declarations.
    pub fn protos(&self) -> impl Iterator<Item = &SchemaSource> {
        self.protos.iter()
    }

    /// Iterates over the `.fbs` declarations.
    pub fn fbs(&self) -> impl Iterator<Item = &Arc<fbs::Schema>> {
        self.fbs.iter()
    }

    /// Iterates over the declared functions by name.
    pub fn functions(&self) -> impl Iterator<Item = (&str, &Signature)> {
        self.functions.iter().map(|(name, signature)| (name.as_str(), signature))
    }

    /// Iterates over the names of all declared methods, `Service/Method` or a function's name.
    pub fn targets(&self) -> impl Iterator<Item = String> + '_ {
        let protos = self.protos.iter().flat_map(|source| source.pool().services()).flat_map(|service| {
            service.methods().map(move |method| format!("{}/{}", service.full_name(), method.name()))
        });
        let fbs = self.fbs.iter().flat_map(|schema| &schema.services).flat_map(|service| {
            service.methods.iter().map(move |method| format!("{}/{}", service.full_name(), method.name))
        });
        protos.chain(fbs).chain(self.functions.keys().cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_name() {
        let mut schemas = Schemas::new();
        schemas.add_function("add(int64, int64) -> int64").unwrap();
        schemas.add_function("stop()").unwrap();
        assert!(schemas.method("add", false).signature.is_some());
        assert!(schemas.method("Calc/add", false).signature.is_some());
        assert!(schemas.method("sub", false).is_empty());
        assert!(schemas.renamed("Calc/add", "Maths/plus", false).signature.is_some());
        assert!(schemas.renamed("Calc/minus", "Maths/add", false).signature.is_some());
        assert_eq!(schemas.targets().collect::<Vec<_>>(), ["add", "stop"]);
        for wrong in ["add", "add(int", "(int)", "add(int) int", "add(number)", "add(int)"] {
            assert!(schemas.add_function(wrong).is_err(), "{wrong}");
        }
    }
}
