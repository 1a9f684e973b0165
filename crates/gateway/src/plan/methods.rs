//! The methods that HTTP callers can call, for descriptions.

use polyrpc::payload::struct_pack::Type;
use polyrpc::{Format, Json, Protocol};
use polyrpc_describe::{Content, Method, ProtoFiles};

use polyrpc_core::protocol::Streams;
use polyrpc_transform::{Direction, Options, Translator};

use super::Plan;
use super::route::Route;

impl Plan {
    /// Returns the declared methods that a route accepts from HTTP callers in JSON, by the callers' names.
    pub(crate) fn methods(&self) -> Vec<Method> {
        let mut methods: Vec<Method> = Vec::new();
        for declared in self.declared_methods() {
            for route in &self.routes {
                let names = route.callers_names(&declared.service, &declared.name);
                let Some((service, name)) = names else { continue };
                let is_known = |known: &Method| known.service == service && known.name == name;
                if !methods.iter().any(is_known) && self.takes(route, &declared) {
                    // `google.api.http` rules belong to servers; the gateway has none.
                    let mut method = declared.clone();
                    (method.service, method.name, method.http_rule) = (service, name, None);
                    methods.push(method);
                }
            }
        }
        methods
    }

    fn declared_methods(&self) -> Vec<Method> {
        let protos =
            self.schemas.protos().flat_map(|source| ProtoFiles::new(source.pool().clone()).methods());
        let tables = self.schemas.fbs().flat_map(Method::from_fbs);
        let functions = self.schemas.functions().map(|(name, signature)| {
            let result = signature.answer().cloned().unwrap_or(Type::Unit);
            Method::new("", name, Content::Arguments(signature.arguments().to_vec()), Content::Result(result))
        });
        protos.chain(tables).chain(functions).collect()
    }

    /// Whether every upstream of a route can answer HTTP callers of a method in JSON.
    fn takes(&self, route: &Route, declared: &Method) -> bool {
        let from = Format::Json(Json::Proto3);
        let options = Options { on_loss: route.on_loss, ..Options::default() };
        route.targets().iter().map(|target| &target.upstream).all(|upstream| {
            let protocol = upstream.protocol();
            let to = upstream.format(from);
            let schema = self.schemas.method(&declared.target(), protocol == Protocol::FbRpc);
            let streams = declared.stream_type.client_streaming || declared.stream_type.server_streaming;
            Translator::new(Direction::Request, from, to, &schema, options).is_ok()
                && Translator::new(Direction::Response, to, from, &schema, options).is_ok()
                && (!streams || protocol.descriptor().capabilities.streams != Streams::None)
        })
    }
}

impl Route {
    /// Returns the names by which callers can call an upstream's method through this route, if they can.
    fn callers_names(&self, service: &str, method: &str) -> Option<(String, String)> {
        let name = |renamed: &Option<String>, glob: Option<&str>, name: &str| match renamed {
            None => Some(name.to_owned()),
            // Every name that matches is renamed, so only an exact one can be described.
            Some(renamed) if renamed == name => glob.map(str::to_owned),
            Some(_) => None,
        };
        let exact = |glob: &Option<crate::config::Glob>| {
            glob.as_ref().and_then(|glob| glob.exact().map(str::to_owned))
        };
        let service = name(&self.rename.service, exact(&self.matches.service).as_deref(), service)?;
        let method = name(&self.rename.method, exact(&self.matches.method).as_deref(), method)?;
        self.matches_names(&service, &method).then_some((service, method))
    }
}
