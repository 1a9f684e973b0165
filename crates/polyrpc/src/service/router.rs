use std::fmt;
use std::sync::Arc;

use foldhash::HashMap;
use polyrpc_core::Metadata;
use polyrpc_core::session::NotFound;
use polyrpc_payload::schema::Pool;
use polyrpc_wire::fb_rpc::ServiceDirectory;
use polyrpc_wire::http::rule::Routes;

use super::function::{Function, FunctionMethod, IntoOutcome};
use super::method::{Method, TypedMethod};
use super::method_info::MethodInfo;
use super::route::{MethodRole, Route};
use super::streaming_method::{BidiStreaming, ClientStreaming, ServerStreaming, StreamingMethod};
use crate::Failure;
use crate::call::Context;
use crate::call::streaming::Streaming;
use crate::codec::Codec;

/// A service with several methods: what `#[polyrpc::service]` implements for a trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a service",
    label = "this is no service, but perhaps the implementation of one",
    note = "`#[polyrpc::service]` makes a server of a trait: for the trait `Greeter` it is \
            `.service(GreeterServer::new({Self}))`"
)]
pub trait Service {
    /// Converts it to a builder with its name and methods.
    fn into_builder(self) -> ServiceBuilder;
}

/// A service as a list of methods.
///
/// Generated code fills one; written by hand it serves methods that no trait describes:
///
/// ```
/// # use bytes::Bytes;
/// # use polyrpc::{Context, Server, codec::Raw, service::ServiceBuilder};
/// let raw = ServiceBuilder::new("Echo").method::<Raw, Bytes, Bytes, _, _>("Raw", |cx: Context, body| async {
///     (cx, Ok(body))
/// });
/// let server = Server::new().service(raw);
/// ```
pub struct ServiceBuilder {
    name: String,
    /// The last one describes the methods that are added next.
    schemas: Vec<Pool>,
    methods: Vec<(String, Arc<dyn Method>)>,
    /// Ids of methods, by the methods' index.
    ids: Vec<(usize, u32)>,
}

impl ServiceBuilder {
    /// Creates a service without methods.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), schemas: Vec::new(), methods: Vec::new(), ids: Vec::new() }
    }

    /// Sets the serialized `FileDescriptorSet` that describes the messages of the methods added after it.
    /// [Reflection](crate::Server::reflection) serves it too.
    ///
    /// # Panics
    ///
    /// If it is malformed: it is part of the program, not input.
    #[must_use]
    pub fn schema(mut self, descriptors: &[u8]) -> Self {
        self.schemas.push(Pool::decode(descriptors).expect("the generated descriptors are valid"));
        self
    }

    /// Adds a method that runs on the connection's task: it must not block.
    #[must_use]
    pub fn method<C, Req, Resp, F, Fut>(self, name: &str, handler: F) -> Self
    where
        C: Codec<Req> + Codec<Resp>,
        Req: Send + 'static,
        Resp: Send + 'static,
        F: Fn(Context, Req) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = (Context, Result<Resp, Failure>)> + Send + 'static,
    {
        self.typed_method::<C, Req, Resp, F, Fut>(name, false, handler)
    }

    /// Adds a method that may block: it runs on the blocking pool.
    #[must_use]
    pub fn blocking_method<C, Req, Resp, F, Fut>(self, name: &str, handler: F) -> Self
    where
        C: Codec<Req> + Codec<Resp>,
        Req: Send + 'static,
        Resp: Send + 'static,
        F: Fn(Context, Req) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = (Context, Result<Resp, Failure>)> + Send + 'static,
    {
        self.typed_method::<C, Req, Resp, F, Fut>(name, true, handler)
    }

    /// Adds a method with one request and a stream of responses.
    #[must_use]
    pub fn server_streaming<C, Req, Resp, F, Fut>(mut self, name: &str, handler: F) -> Self
    where
        C: Codec<Req> + Codec<Resp>,
        Req: Send + 'static,
        Resp: Send + 'static,
        F: Fn(Context, Req) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = (Context, Result<Streaming<Resp>, Failure>)> + Send + 'static,
    {
        let method = StreamingMethod::<C, Req, Resp, F, ServerStreaming>::new(self.schemas.last(), handler);
        self.methods.push((name.to_owned(), Arc::new(method)));
        self
    }

    /// Adds a method with a stream of requests and one response.
    #[must_use]
    pub fn client_streaming<C, Req, Resp, F, Fut>(mut self, name: &str, handler: F) -> Self
    where
        C: Codec<Req> + Codec<Resp>,
        Req: Send + 'static,
        Resp: Send + 'static,
        F: Fn(Context, Streaming<Req>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = (Context, Result<Resp, Failure>)> + Send + 'static,
    {
        let method = StreamingMethod::<C, Req, Resp, F, ClientStreaming>::new(self.schemas.last(), handler);
        self.methods.push((name.to_owned(), Arc::new(method)));
        self
    }

    /// Adds a method with a stream of requests and a stream of responses.
    #[must_use]
    pub fn bidi_streaming<C, Req, Resp, F, Fut>(mut self, name: &str, handler: F) -> Self
    where
        C: Codec<Req> + Codec<Resp>,
        Req: Send + 'static,
        Resp: Send + 'static,
        F: Fn(Context, Streaming<Req>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = (Context, Result<Streaming<Resp>, Failure>)> + Send + 'static,
    {
        let method = StreamingMethod::<C, Req, Resp, F, BidiStreaming>::new(self.schemas.last(), handler);
        self.methods.push((name.to_owned(), Arc::new(method)));
        self
    }

    fn typed_method<C, Req, Resp, F, Fut>(mut self, name: &str, blocking: bool, handler: F) -> Self
    where
        C: Codec<Req> + Codec<Resp>,
        Req: Send + 'static,
        Resp: Send + 'static,
        F: Fn(Context, Req) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = (Context, Result<Resp, Failure>)> + Send + 'static,
    {
        let method = TypedMethod::<C, Req, Resp, F>::new(self.schemas.last(), blocking, handler);
        self.methods.push((name.to_owned(), Arc::new(method)));
        self
    }

    /// Sets the number of the method that was added last, by which fb_rpc calls it. By default it is the method's index
    /// in the service.
    ///
    /// # Panics
    ///
    /// If there is no method yet.
    #[must_use]
    pub fn id(mut self, id: u32) -> Self {
        let last = self.methods.len().checked_sub(1).expect("an id is given to the method before it");
        self.ids.push((last, id));
        self
    }
}

impl Service for ServiceBuilder {
    fn into_builder(self) -> ServiceBuilder {
        self
    }
}

impl fmt::Debug for ServiceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let methods: Vec<_> = self.methods.iter().map(|(name, _)| name).collect();
        f.debug_struct("ServiceBuilder").field("name", &self.name).field("methods", &methods).finish()
    }
}

/// Finds the method of a call.
///
/// Its tables are keyed by the server's own names, so that their hash need not withstand an attacker who chooses keys;
/// it is looked up twice per call, at a tenth of the standard hash's cost.
#[derive(Clone, Default)]
pub(crate) struct Router {
    services: HashMap<Box<str>, Arc<Methods>>,
    /// Services by the last part of their name, for peers that omit the package; `None` if two services share it.
    short: HashMap<Box<str>, Option<Arc<Methods>>>,
    /// Functions that belong to no service.
    functions: HashMap<Box<str>, Arc<Route>>,
    /// Methods that are called by plain HTTP, as their `.proto` declares.
    routes: Routes,
    /// Methods declared to have no side effects, by service and name.
    no_side_effects: Vec<(String, String)>,
    /// Services and methods by number.
    directory: ServiceDirectory,
    fallbacks: Fallbacks,
}

/// Whether a call has one request message, by service, method and metadata.
type HasSingleRequest = dyn Fn(&str, &str, &Metadata) -> bool + Send + Sync;

/// Whether a fallback has a method, by service and method.
type HasMethod = dyn Fn(&str, &str) -> bool + Send + Sync;

/// Methods for calls and requests that no other method handles.
#[derive(Clone, Default)]
struct Fallbacks {
    /// Handles calls.
    calls: Option<Arc<Route>>,
    /// Decides which of these calls have one request message.
    has_single_request: Option<Arc<HasSingleRequest>>,
    /// Decides which methods it has; any method without it.
    has_method: Option<Arc<HasMethod>>,
    /// Handles HTTP requests that are not calls.
    http: Option<Arc<Route>>,
    /// Whether it handles all other HTTP requests too.
    every_request: bool,
    /// Handles HTTP requests for pages, by the first segments of their paths.
    pages: Vec<(Vec<Box<str>>, Arc<Route>)>,
}

/// The methods of one service, and the descriptors that were added with them.
#[derive(Clone, Default)]
struct Methods {
    by_name: HashMap<Box<str>, Arc<Route>>,
    schemas: Vec<Pool>,
    /// Their names in order, with their ids if set.
    numbers: Vec<(Box<str>, Option<u32>)>,
}

impl Router {
    /// Adds a service and replaces one of the same name.
    ///
    /// # Panics
    ///
    /// If an option `google.api.http` of its `.proto` is invalid, or if two of its methods, or it and another service,
    /// have the same number in fb_rpc: that is part of the program, not input.
    pub(crate) fn service(&mut self, service: impl Service) {
        let (name, methods) = Methods::from_service(service, MethodRole::User);
        self.add_routes(&name, &methods);
        self.add_numbers(&name, &methods);
        self.insert(&name, methods);
    }

    /// Adds a service of the framework that is called by its full name only: its short name stays free for the user's.
    pub(crate) fn add_standard(&mut self, role: MethodRole, service: impl Service) {
        let (name, methods) = Methods::from_service(service, role);
        self.services.insert(name.into(), methods);
    }

    /// Adds a function of the framework, unless there is another of that name.
    pub(crate) fn add_standard_function(&mut self, name: &str, method: Arc<dyn Method>) {
        if !self.functions.contains_key(name) {
            self.insert_entry(name, |service, name| {
                Route::new(service, name, method, MethodRole::Introspection)
            });
        }
    }

    /// Declares that a method has no side effects.
    pub(crate) fn declare_no_side_effects(&mut self, service: &str, method: &str) {
        self.no_side_effects.push((service.to_owned(), method.to_owned()));
    }

    fn add_routes(&mut self, name: &str, methods: &Methods) {
        self.routes.remove(name);
        let Some(described) = methods.schemas.iter().rev().find_map(|pool| pool.service(name)) else {
            return;
        };
        for method in described.methods().filter(|known| methods.by_name.contains_key(known.name())) {
            if let Err(error) = self.routes.add(name, method) {
                panic!("the option google.api.http of {name}/{}: {error}", method.name());
            }
        }
    }

    fn add_numbers(&mut self, name: &str, methods: &Methods) {
        let numbers = methods.numbers.iter().map(|(name, id)| (&**name, *id));
        if let Err(error) = self.directory.add_service(name, numbers) {
            panic!("{error}");
        }
    }

    /// Returns the directory for protocols that identify services and methods by number.
    pub(crate) fn directory(&self) -> &ServiceDirectory {
        &self.directory
    }

    /// Returns the methods that have HTTP verbs and paths of their own.
    pub(crate) fn routes(&self) -> Routes {
        let mut routes = self.routes.clone();
        self.no_side_effects
            .iter()
            .for_each(|(service, method)| routes.declare_no_side_effects(service, method));
        routes
    }

    /// Makes everything under `target` available as `alias` too. Returns whether there is such a service.
    pub(crate) fn alias(&mut self, alias: &str, target: &str) -> bool {
        let Some(methods) = self.services.get(target).cloned() else { return false };
        self.add_numbers(alias, &methods);
        self.insert(alias, methods);
        true
    }

    /// Makes the method `target` available under another name too: `math/times` for `Arith/Mul`, or a name without a
    /// service. Returns whether there is such a method.
    pub(crate) fn alias_method(&mut self, alias: &str, target: &str) -> bool {
        let (service, method) = target.rsplit_once('/').unwrap_or(("", target));
        let Ok(entry) = self.entry(service, method).cloned() else { return false };
        self.insert_entry(alias, |_, _| entry);
        true
    }

    /// Adds a function. A name with a `/` puts it into a service: `a.fake.service/mul`.
    ///
    /// See [`Fallible`](super::Fallible) if the compiler asks for `PlainOrFallible`.
    pub(crate) fn function<Args: 'static, PlainOrFallible: 'static>(
        &mut self,
        name: &str,
        function: impl Function<Args, Output: IntoOutcome<PlainOrFallible>>,
    ) {
        let method = Arc::new(FunctionMethod::<_, Args, PlainOrFallible>::new(function));
        self.insert_entry(name, |service, name| Route::new(service, name, method, MethodRole::User));
    }

    fn insert_entry(&mut self, name: &str, entry: impl FnOnce(&str, &str) -> Arc<Route>) {
        match name.rsplit_once('/') {
            None => {
                self.functions.insert(name.into(), entry("", name));
            }
            Some((service, name)) => {
                let mut methods =
                    self.services.get(service).map(|known| (**known).clone()).unwrap_or_default();
                methods.by_name.insert(name.into(), entry(service, name));
                self.insert(service, Arc::new(methods));
            }
        }
    }

    /// Finds a method with its names and layers.
    ///
    /// A service is found by its full name and, if that is unambiguous, by the last part of it. A function is found by
    /// its name alone, however the protocol encodes that: without a service, without a method, or with both equal.
    ///
    /// # Errors
    ///
    /// If there is no such service or method.
    pub(crate) fn entry(&self, service: &str, method: &str) -> Result<&Arc<Route>, NotFound> {
        let methods = self.services.get(service).or_else(|| self.short.get(service)?.as_ref());
        if let Some(methods) = methods {
            return methods.by_name.get(method).ok_or(NotFound::Method);
        }
        self.find_function(service, method).ok_or(NotFound::Service)
    }

    /// Returns every method, including fallbacks; one with several names may appear several times.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Arc<Route>> {
        let methods = self.services.values().flat_map(|methods| methods.by_name.values());
        let fallbacks = self.fallbacks.calls.iter().chain(&self.fallbacks.http);
        methods.chain(self.functions.values()).chain(fallbacks)
    }

    /// Sets the method for calls that find no method.
    pub(crate) fn set_fallback(&mut self, method: Arc<dyn Method>) {
        self.fallbacks.calls = Some(Route::new("", "", method, MethodRole::Fallback));
    }

    /// Sets the method for HTTP requests that are not calls.
    pub(crate) fn set_http_fallback(&mut self, method: Arc<dyn Method>) {
        self.fallbacks.http = Some(Route::new("", "", method, MethodRole::Fallback));
    }

    /// Makes the method for HTTP requests that are not calls handle every HTTP request.
    pub(crate) fn pass_every_request(&mut self) {
        self.fallbacks.every_request = true;
    }

    /// Returns whether that method handles every HTTP request.
    pub(crate) fn passes_every_request(&self) -> bool {
        self.fallbacks.every_request
    }

    /// Adds the method for HTTP requests whose paths begin with one of these segments, unless there is a method of that
    /// name, or others were added for it before.
    pub(crate) fn add_pages(&mut self, names: Vec<Box<str>>, method: Arc<dyn Method>) {
        self.fallbacks.pages.push((names, Route::new("", "", method, MethodRole::Introspection)));
    }

    /// Returns the method for the page at this path, if any.
    pub(crate) fn page(&self, path: &str) -> Option<&Arc<Route>> {
        let first = path.split('/').find(|segment| !segment.is_empty()).unwrap_or_default();
        let has = |names: &[Box<str>]| names.iter().any(|name| **name == *first);
        self.fallbacks.pages.iter().find(|(names, _)| has(names)).map(|(_, route)| route)
    }

    /// Returns whether HTTP requests may be passed to a method for requests that are not calls.
    pub(crate) fn passes_requests(&self) -> bool {
        self.fallbacks.http.is_some() || !self.fallbacks.pages.is_empty()
    }

    /// Returns the method for calls that find no method, if any.
    pub(crate) fn fallback(&self) -> Option<&Arc<Route>> {
        self.fallbacks.calls.as_ref()
    }

    /// Sets which calls that find no method have one request message.
    pub(crate) fn set_fallback_has_single_request(&mut self, has_single_request: Arc<HasSingleRequest>) {
        self.fallbacks.has_single_request = Some(has_single_request);
    }

    /// Returns whether a function decides which calls that find no method have one request message.
    pub(crate) fn knows_fallback_calls(&self) -> bool {
        self.fallbacks.has_single_request.is_some()
    }

    /// Returns whether a call that finds no method has one request message, as far as is known.
    pub(crate) fn fallback_has_single_request(
        &self,
        service: &str,
        method: &str,
        metadata: &Metadata,
    ) -> bool {
        self.fallbacks
            .has_single_request
            .as_ref()
            .is_some_and(|has_single_request| has_single_request(service, method, metadata))
    }

    /// Sets which methods the fallback has.
    pub(crate) fn set_fallback_has_method(&mut self, has_method: Arc<HasMethod>) {
        self.fallbacks.has_method = Some(has_method);
    }

    /// Returns whether there is a fallback that has this method, as far as is known.
    pub(crate) fn fallback_has_method(&self, service: &str, method: &str) -> bool {
        let Fallbacks { calls, has_method, .. } = &self.fallbacks;
        calls.is_some() && has_method.as_ref().is_none_or(|has_method| has_method(service, method))
    }

    /// Returns the method for HTTP requests that are not calls, if any.
    pub(crate) fn http_fallback(&self) -> Option<&Arc<Route>> {
        self.fallbacks.http.as_ref()
    }

    /// Returns everything with a name: the methods of a service, one of them as `Service/Method`, or a function.
    pub(crate) fn routes_named(&self, name: &str) -> Vec<&Arc<Route>> {
        if let Some(methods) = self.services.get(name).or_else(|| self.short.get(name)?.as_ref()) {
            return methods.by_name.values().collect();
        }
        let (service, method) = name.rsplit_once('/').unwrap_or(("", name));
        self.entry(service, method).into_iter().collect()
    }

    /// Returns every service with its methods, sorted; functions are under the empty name.
    pub(crate) fn list(&self) -> Vec<(String, Vec<String>)> {
        let sorted = |names: &HashMap<Box<str>, Arc<Route>>| {
            let mut names: Vec<String> = names.keys().map(|name| name.to_string()).collect();
            names.sort_unstable();
            names
        };
        let mut all: Vec<_> = self
            .services
            .iter()
            .map(|(name, methods)| (name.to_string(), sorted(&methods.by_name)))
            .collect();
        if !self.functions.is_empty() {
            all.push((String::new(), sorted(&self.functions)));
        }
        all.sort_unstable();
        all
    }

    /// Returns the unary methods of every service, sorted.
    pub(crate) fn methods(&self) -> Vec<(&str, Vec<(&str, &Arc<dyn Method>)>)> {
        let mut services: Vec<_> = self.services.iter().map(|(name, methods)| (&**name, methods)).collect();
        services.sort_unstable_by_key(|(name, _)| *name);
        services.into_iter().map(|(name, methods)| (name, methods.unary_methods())).collect()
    }

    /// Returns the services that have descriptors, and these, sorted by name.
    pub(crate) fn described_services(&self) -> Vec<(&str, &[Pool])> {
        let mut described: Vec<_> =
            self.services.iter().map(|(name, methods)| (&**name, &methods.schemas[..])).collect();
        described.retain(|(_, schemas)| !schemas.is_empty());
        described.sort_unstable_by_key(|(name, _)| *name);
        described
    }

    /// Describes every method under its own name, without aliases, sorted by service and name.
    pub(crate) fn describe(&self) -> Vec<MethodInfo> {
        let mut described = Vec::new();
        for (service, methods) in &self.services {
            for (name, route) in &methods.by_name {
                let own = route.name();
                if own.service() == &**service && own.method() == &**name {
                    described.push(MethodInfo::from_route(route, methods.message_names(service, name)));
                }
            }
        }
        let functions = self.functions.iter().filter(|(name, route)| route.name().method() == &***name);
        described.extend(functions.map(|(_, route)| MethodInfo::from_route(route, None)));
        described
            .sort_unstable_by(|one, other| (&one.service, &one.name).cmp(&(&other.service, &other.name)));
        described
    }

    fn find_function(&self, service: &str, method: &str) -> Option<&Arc<Route>> {
        let name = match (service, method) {
            ("", name) | (name, "") => name,
            (service, method) if service == method => method,
            _ => return None,
        };
        self.functions.get(name)
    }

    fn insert(&mut self, name: &str, methods: Arc<Methods>) {
        if let Some((_, short)) = name.rsplit_once('.') {
            let others = self.services.keys().any(|known| {
                &**known != name && known.rsplit_once('.').is_some_and(|(_, last)| last == short)
            });
            self.short.insert(short.into(), (!others).then(|| methods.clone()));
        }
        self.services.insert(name.into(), methods);
    }
}

impl Methods {
    fn from_service(service: impl Service, role: MethodRole) -> (String, Arc<Self>) {
        let ServiceBuilder { name, schemas, methods, ids } = service.into_builder();
        let mut numbers: Vec<(Box<str>, _)> =
            methods.iter().map(|(name, _)| (name.as_str().into(), None)).collect();
        for (index, id) in ids {
            numbers[index].1 = Some(id);
        }
        let entry = |method_name: &str, method| Route::new(&name, method_name, method, role);
        let by_name =
            methods.into_iter().map(|(name, method)| (name.as_str().into(), entry(&name, method))).collect();
        (name, Arc::new(Self { by_name, schemas, numbers }))
    }

    /// Returns the full names of a method's messages, if a descriptor is known.
    fn message_names(&self, service: &str, name: &str) -> Option<(String, String)> {
        let described = self.schemas.iter().rev().find_map(|pool| pool.service(service))?;
        let method = described.methods().find(|method| method.name() == name)?;
        Some((method.input().full_name().to_owned(), method.output().full_name().to_owned()))
    }

    fn unary_methods(&self) -> Vec<(&str, &Arc<dyn Method>)> {
        let methods = self.by_name.iter().map(|(name, entry)| (&**name, entry.method()));
        let mut unary: Vec<_> = methods.filter(|(_, method)| method.stream_type().is_unary()).collect();
        unary.sort_unstable_by_key(|(name, _)| *name);
        unary
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.list()).finish()
    }
}
