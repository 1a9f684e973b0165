use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use polyrpc_core::Json;
use polyrpc_payload::schema::{Message, Method};

use super::error::Error;
use super::http_rule::{Body, Rule};
use super::message::{self, RequestMappingError};

/// Routing table from HTTP methods and paths to RPC methods.
#[derive(Debug, Clone, Default)]
pub struct Routes {
    /// Sorted by the number of literal segments in their path; those with the same number in order of addition.
    all: Vec<Arc<Route>>,
    /// Methods that are declared free of side effects, by service.
    harmless: HashMap<Box<str>, HashSet<Box<str>>>,
}

/// One HTTP binding of a method.
#[derive(Clone)]
pub struct Route {
    rule: Rule,
    service: Box<str>,
    method: Box<str>,
    input: Message,
    output: Message,
}

/// A matched route and the values from the path.
#[derive(Debug)]
pub struct MatchedRoute<'r> {
    route: &'r Arc<Route>,
    values: Vec<String>,
}

/// Result of a lookup by HTTP method and path.
#[derive(Debug)]
pub enum Lookup<'r> {
    /// A matching route.
    Found(MatchedRoute<'r>),
    /// The path matches only with these other HTTP methods.
    OtherVerbs(Vec<&'r str>),
    /// No rule matches the path.
    Nothing,
}

impl Routes {
    /// Whether there are no routes.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds the HTTP bindings that a method's rule declares, if it has one; its service is registered as `service`. A
    /// streaming method gets none. Also records whether the method is declared free of side effects.
    ///
    /// # Errors
    ///
    /// If the rule is invalid, or names fields that the method's messages do not have.
    pub fn add(&mut self, service: &str, method: Method<'_>) -> Result<(), Error> {
        if method.has_no_side_effects() {
            self.declare_no_side_effects(service, method.name());
        }
        let Some(rule) =
            method.http_rule().filter(|_| !method.client_streaming() && !method.server_streaming())
        else {
            return Ok(());
        };
        for rule in Rule::read_all(rule)? {
            let (service, name) = (service.into(), method.name().into());
            let (input, output) = (method.input(), method.output());
            let route = Route { rule, service, method: name, input, output };
            route.check()?;
            self.all.push(Arc::new(route));
        }
        // The sort is stable: the first of equal ones wins.
        self.all.sort_by_key(|route| std::cmp::Reverse(route.rule.path.weight()));
        Ok(())
    }

    /// Records that a method has no side effects, as if it were [declared](Self::has_no_side_effects) so.
    pub fn declare_no_side_effects(&mut self, service: &str, method: &str) {
        self.harmless.entry(service.into()).or_default().insert(method.into());
    }

    /// Removes the routes of a service.
    pub fn remove(&mut self, service: &str) {
        self.all.retain(|route| &*route.service != service);
        self.harmless.remove(service);
    }

    /// Whether a method is declared free of side effects (`idempotency_level = NO_SIDE_EFFECTS`).
    pub fn has_no_side_effects(&self, service: &str, method: &str) -> bool {
        self.harmless.get(service).is_some_and(|methods| methods.contains(method))
    }

    /// Whether a path matches with any HTTP method.
    pub fn matches_path(&self, path: &str) -> bool {
        self.all.iter().any(|route| route.rule.path.matches(path).is_some())
    }

    /// Looks up the route for an HTTP method and a path without its query.
    pub fn find(&self, verb: &str, path: &str) -> Lookup<'_> {
        let mut others = Vec::new();
        for route in &self.all {
            let Some(values) = route.rule.path.matches(path) else { continue };
            match &*route.rule.verb {
                "*" => return Lookup::Found(MatchedRoute { route, values }),
                known if known == verb => return Lookup::Found(MatchedRoute { route, values }),
                other if others.contains(&other) => {}
                other => others.push(other),
            }
        }
        if others.is_empty() { Lookup::Nothing } else { Lookup::OtherVerbs(others) }
    }
}

impl Route {
    /// Returns the service, as it is registered.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Returns the method within it.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Returns the response body for a reply in ProtoJSON: all of it, or the field that the rule selects.
    pub fn response(&self, reply: Bytes) -> Bytes {
        self.response_in(Json::Proto3, reply)
    }

    /// Does the same for a reply in this dialect of JSON.
    pub(crate) fn response_in(&self, dialect: Json, reply: Bytes) -> Bytes {
        match self.rule.response.as_deref().and_then(|name| message::field(&self.output, name)) {
            Some(field) => message::value_of(&self.output, field, &reply, dialect).unwrap_or(reply),
            None => reply,
        }
    }

    /// Checks that every field named by the rule exists and has a suitable type.
    fn check(&self) -> Result<(), Error> {
        let path = || format!("{} {}/{}", self.rule.verb, self.service, self.method);
        for variable in self.rule.path.variables() {
            if !message::takes_text(&self.input, &variable.field) {
                return Err(Error::new(&path(), "a variable does not name a field that a string can fill"));
            }
        }
        if let Body::Field(name) = &self.rule.body
            && message::field(&self.input, name).is_none()
        {
            return Err(Error::new(&path(), "the body names an unknown field of the request"));
        }
        match &self.rule.response {
            Some(name) if message::field(&self.output, name).is_none() => {
                Err(Error::new(&path(), "the response names an unknown field of the reply"))
            }
            _ => Ok(()),
        }
    }
}

impl<'r> MatchedRoute<'r> {
    /// Returns the route.
    pub fn route(&self) -> &'r Arc<Route> {
        self.route
    }

    /// Builds the method's request in ProtoJSON from the path, the query and the body.
    ///
    /// Query parameters that name no field are ignored, as in other implementations of these rules: they are for
    /// intermediaries between caller and server.
    ///
    /// # Errors
    ///
    /// If they cannot be mapped to a request.
    pub fn message(&self, query: &str, body: &[u8]) -> Result<Bytes, RequestMappingError> {
        self.route.message(&self.values, query, body)
    }

    /// Returns the route and the values from the path.
    pub(crate) fn into_parts(self) -> (Arc<Route>, Vec<String>) {
        (self.route.clone(), self.values)
    }
}

impl Route {
    /// Builds the method's request as [`MatchedRoute::message`] does, with these values from the path.
    ///
    /// # Errors
    ///
    /// If they cannot be mapped to a request.
    pub(crate) fn message(
        &self,
        values: &[String],
        query: &str,
        body: &[u8],
    ) -> Result<Bytes, RequestMappingError> {
        let Self { rule, input, .. } = self;
        let mut request = match &rule.body {
            Body::None => message::Object::default(),
            Body::Whole => message::Object::read(input, body)?,
            Body::Field(name) => message::Object::new(input, name, body)?,
        };
        if rule.body != Body::Whole {
            request.add_query(input, query)?;
        }
        for (variable, value) in rule.path.variables().iter().zip(values) {
            request.set(input, &variable.field, &[value])?;
        }
        Ok(request.write().into())
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.rule.verb, self.service, self.method)
    }
}
