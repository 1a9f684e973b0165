use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use polyrpc_payload::schema::{Message, Method};

use super::error::Error;
use super::message::{self, RequestMappingError};
use super::rule::{Body, Rule};

/// Which methods are called by which verbs and paths.
#[derive(Debug, Clone, Default)]
pub struct Routes {
    /// By the number of words in their path, and those with the same number as they were added.
    all: Vec<Arc<Route>>,
    /// The methods that are declared free of side effects, by their services.
    harmless: HashMap<Box<str>, HashSet<Box<str>>>,
}

/// One way to call a method.
#[derive(Clone)]
pub struct Route {
    rule: Rule,
    service: Box<str>,
    method: Box<str>,
    input: Message,
    output: Message,
}

/// A route and what the path says.
#[derive(Debug)]
pub struct MatchedRoute<'r> {
    route: &'r Arc<Route>,
    values: Vec<String>,
}

/// What a verb and a path lead to.
#[derive(Debug)]
pub enum Lookup<'r> {
    /// A method.
    Found(MatchedRoute<'r>),
    /// Methods of other verbs: these.
    OtherVerbs(Vec<&'r str>),
    /// No rule has this path.
    Nothing,
}

impl Routes {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds the ways to call a method that its rule declares, if it has one; it is offered as `service`. A method
    /// that streams has none. Notes, too, whether it is declared free of side effects.
    ///
    /// # Errors
    ///
    /// When the rule is none, or names fields that the method's messages do not have.
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
        // Stable: of equal ones the first is meant.
        self.all.sort_by_key(|route| std::cmp::Reverse(route.rule.path.weight()));
        Ok(())
    }

    /// Notes that a method has no side effects, as if it were [declared](Self::has_no_side_effects) so.
    pub fn declare_no_side_effects(&mut self, service: &str, method: &str) {
        self.harmless.entry(service.into()).or_default().insert(method.into());
    }

    /// Forgets the routes of a service.
    pub fn remove(&mut self, service: &str) {
        self.all.retain(|route| &*route.service != service);
        self.harmless.remove(service);
    }

    /// Whether a method is declared free of side effects (`idempotency_level = NO_SIDE_EFFECTS`).
    pub fn has_no_side_effects(&self, service: &str, method: &str) -> bool {
        self.harmless.get(service).is_some_and(|methods| methods.contains(method))
    }

    /// Whether a path leads anywhere, by whatever verb.
    pub fn leads(&self, path: &str) -> bool {
        self.all.iter().any(|route| route.rule.path.matches(path).is_some())
    }

    /// Looks for the method of a verb and a path without its query.
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
    /// The service, as it is registered.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// The method within it.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// What is answered of a reply in canonical JSON: all of it, or the field that the rule names.
    pub fn response(&self, reply: Bytes) -> Bytes {
        match self.rule.response.as_deref().and_then(|name| message::field(&self.output, name)) {
            Some(field) => message::value_of(&reply, field).unwrap_or(reply),
            None => reply,
        }
    }

    /// Every field that the rule names must be there, and hold what can be put into it.
    fn check(&self) -> Result<(), Error> {
        let path = || format!("{} {}/{}", self.rule.verb, self.service, self.method);
        for variable in self.rule.path.variables() {
            if !message::takes_text(&self.input, &variable.field) {
                return Err(Error::new(&path(), "a variable names no field that a text could be put into"));
            }
        }
        if let Body::Field(name) = &self.rule.body
            && message::field(&self.input, name).is_none()
        {
            return Err(Error::new(&path(), "the body names a field that the request does not have"));
        }
        match &self.rule.response {
            Some(name) if message::field(&self.output, name).is_none() => {
                Err(Error::new(&path(), "the response names a field that the reply does not have"))
            }
            _ => Ok(()),
        }
    }
}

impl<'r> MatchedRoute<'r> {
    /// The route.
    pub fn route(&self) -> &'r Arc<Route> {
        self.route
    }

    /// The method's request in canonical JSON, of what the path, the query and the body say.
    ///
    /// Parts of the query that name no field are passed over, as others do who read these rules: they are for
    /// whoever stands between caller and server.
    ///
    /// # Errors
    ///
    /// Why they make no request.
    pub fn message(&self, query: &str, body: &[u8]) -> Result<Bytes, RequestMappingError> {
        let Route { rule, input, .. } = &**self.route;
        let mut request = match &rule.body {
            Body::None => message::Object::default(),
            Body::Whole => message::Object::read(input, body)?,
            Body::Field(name) => message::Object::with(input, name, body)?,
        };
        if rule.body != Body::Whole {
            request.add_query(input, query)?;
        }
        for (variable, value) in rule.path.variables().iter().zip(&self.values) {
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
