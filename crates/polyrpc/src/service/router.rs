use std::fmt;
use std::sync::Arc;

use foldhash::HashMap;
use polyrpc_core::session::NotFound;
use polyrpc_payload::schema::Pool;
use polyrpc_wire::fb_rpc::ServiceDirectory;
use polyrpc_wire::http::rule::Routes;

use super::function::{Function, FunctionMethod, IntoOutcome};
use super::method::{Method, TypedMethod};
use super::route::{MethodRole, Route};
use super::streaming_method::{BidiStreaming, ClientStreaming, ServerStreaming, StreamingMethod};
use crate::Failure;
use crate::call::Context;
use crate::codec::Codec;
use crate::streaming::Streaming;

/// Something that answers calls of several methods: what `#[polyrpc::service]` makes of a trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a service",
    label = "this is no service, but perhaps the implementation of one",
    note = "`#[polyrpc::service]` makes a server of a trait: for the trait `Greeter` it is \
            `.service(GreeterServer::new({Self}))`"
)]
pub trait Service {
    /// Names the service and its methods.
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
    /// The last describes the methods to come.
    schemas: Vec<Pool>,
    methods: Vec<(String, Arc<dyn Method>)>,
    /// Ids that methods were given, by the methods' places.
    ids: Vec<(usize, u32)>,
}

impl ServiceBuilder {
    /// A service without methods.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), schemas: Vec::new(), methods: Vec::new(), ids: Vec::new() }
    }

    /// Gives the serialized `FileDescriptorSet` that describes the messages of the methods added after it. It is also
    /// what [reflection](crate::Server::reflection) gives out.
    ///
    /// # Panics
    ///
    /// When it is broken: it is part of the program, not input.
    #[must_use]
    pub fn schema(mut self, descriptors: &[u8]) -> Self {
        self.schemas.push(Pool::decode(descriptors).expect("the generated descriptors are whole"));
        self
    }

    /// Adds a method that is answered on the connection's task: it must not hold its thread.
    #[must_use]
    pub fn method<C, Req, Resp, F, Fut>(self, name: &str, handler: F) -> Self
    where
        C: Codec<Req> + Codec<Resp>,
        Req: Send + 'static,
        Resp: Send + 'static,
        F: Fn(Context, Req) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = (Context, Result<Resp, Failure>)> + Send + 'static,
    {
        self.typed::<C, Req, Resp, F, Fut>(name, false, handler)
    }

    /// Adds a method that may hold its thread: it is answered on a thread of its own.
    #[must_use]
    pub fn blocking_method<C, Req, Resp, F, Fut>(self, name: &str, handler: F) -> Self
    where
        C: Codec<Req> + Codec<Resp>,
        Req: Send + 'static,
        Resp: Send + 'static,
        F: Fn(Context, Req) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = (Context, Result<Resp, Failure>)> + Send + 'static,
    {
        self.typed::<C, Req, Resp, F, Fut>(name, true, handler)
    }

    /// Adds a method that answers one request with any number of messages.
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

    /// Adds a method that answers any number of messages with one.
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

    /// Adds a method that answers any number of messages with any number of messages.
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

    fn typed<C, Req, Resp, F, Fut>(mut self, name: &str, blocking: bool, handler: F) -> Self
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

    /// Gives the method that was added last its number, by which fb_rpc calls it. Without one it is the method's place
    /// in the service.
    ///
    /// # Panics
    ///
    /// When there is no method yet.
    #[must_use]
    pub fn id(mut self, id: u32) -> Self {
        let last = self.methods.len().checked_sub(1).expect("an id is given to the method before it");
        self.ids.push((last, id));
        self
    }

    /// Adds a method whose types are forgotten already.
    #[must_use]
    pub fn erased(mut self, name: &str, method: Arc<dyn Method>) -> Self {
        self.methods.push((name.to_owned(), method));
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
        f.debug_struct("Service").field("name", &self.name).field("methods", &methods).finish()
    }
}

/// Finds the method that a call names.
///
/// Its tables are keyed by the server's own names, so that their hash need not withstand an attacker who
/// chooses keys; it is looked up twice a call, and a tenth of the standard hash's cost.
#[derive(Clone, Default)]
pub struct Router {
    services: HashMap<Box<str>, Arc<Methods>>,
    /// Services by the last part of their name, for peers that leave the package out; `None` where two
    /// services share it.
    short: HashMap<Box<str>, Option<Arc<Methods>>>,
    /// Functions that belong to no service.
    functions: HashMap<Box<str>, Arc<Route>>,
    /// Methods that are called by plain HTTP, as their `.proto` declares.
    routes: Routes,
    /// Methods that are said to be free of side effects, by service and name.
    harmless: Vec<(String, String)>,
    /// Services and methods by number.
    directory: ServiceDirectory,
    fallbacks: Fallbacks,
}

/// What takes calls and requests that nothing else is there for.
#[derive(Clone, Default)]
struct Fallbacks {
    /// Takes calls.
    calls: Option<Arc<Route>>,
    /// Takes requests of HTTP that are no calls.
    http: Option<Arc<Route>>,
}

/// The methods of one service, and the descriptors that came with them.
#[derive(Clone, Default)]
struct Methods {
    by_name: HashMap<Box<str>, Arc<Route>>,
    schemas: Vec<Pool>,
    /// Their names in order, with the ids they were given.
    numbers: Vec<(Box<str>, Option<u32>)>,
}

impl Router {
    /// Adds a service; one of the same name is replaced.
    ///
    /// # Panics
    ///
    /// When an option `google.api.http` of its `.proto` cannot be, or when two of its methods, or it and another
    /// service, bear the same number in fb_rpc: that is part of the program, not input.
    pub fn service(&mut self, service: impl Service) {
        let (name, methods) = Methods::of(service, MethodRole::User);
        self.add_routes(&name, &methods);
        self.add_numbers(&name, &methods);
        self.insert(&name, methods);
    }

    /// Adds a service of the framework's own that is called by its full name only: its short name stays free for the
    /// user's.
    pub(crate) fn standard(&mut self, role: MethodRole, service: impl Service) {
        let (name, methods) = Methods::of(service, role);
        self.services.insert(name.into(), methods);
    }

    /// Adds a function of the framework's own, unless there is another of that name.
    pub(crate) fn standard_function(&mut self, name: &str, method: Arc<dyn Method>) {
        if !self.functions.contains_key(name) {
            self.insert_entry(name, |service, name| {
                Route::new(service, name, method, MethodRole::Introspection)
            });
        }
    }

    /// Notes that a method is free of side effects.
    pub(crate) fn declare_harmless(&mut self, service: &str, method: &str) {
        self.harmless.push((service.to_owned(), method.to_owned()));
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

    /// What numbers mean in protocols that know services and methods by them.
    pub(crate) fn directory(&self) -> &ServiceDirectory {
        &self.directory
    }

    /// The methods that are called by verbs and paths of their own.
    pub(crate) fn routes(&self) -> Routes {
        let mut routes = self.routes.clone();
        self.harmless.iter().for_each(|(service, method)| routes.declare_no_side_effects(service, method));
        routes
    }

    /// Makes everything under `target` answer to `alias` too. Returns whether there is such a service.
    pub fn alias(&mut self, alias: &str, target: &str) -> bool {
        let Some(methods) = self.services.get(target).cloned() else { return false };
        self.add_numbers(alias, &methods);
        self.insert(alias, methods);
        true
    }

    /// Makes the method `target` answer to another name too: `math/times` for `Arith/Mul`, or a name without a service.
    /// Returns whether there is such a method.
    pub fn alias_method(&mut self, alias: &str, target: &str) -> bool {
        let (service, method) = target.rsplit_once('/').unwrap_or(("", target));
        let Ok(entry) = self.entry(service, method).cloned() else { return false };
        self.insert_entry(alias, |_, _| entry);
        true
    }

    /// Adds a function. A name with a `/` puts it into a service: `a.fake.service/mul`.
    ///
    /// See [`Outcome`](super::Outcome) where the compiler wants to know `PlainOrFallible`.
    pub fn function<Args: 'static, PlainOrFallible: 'static>(
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

    /// Finds a method.
    ///
    /// A service is known by its full name and, where that is unambiguous, by the last part of it. A
    /// function is known by its name alone, however the protocol says that: without a service, without a
    /// method, or with both alike.
    ///
    /// # Errors
    ///
    /// What is missing.
    pub fn find(&self, service: &str, method: &str) -> Result<&Arc<dyn Method>, NotFound> {
        self.entry(service, method).map(|entry| entry.method())
    }

    /// Finds a method with its names and layers, as [`find`](Self::find) does.
    pub(crate) fn entry(&self, service: &str, method: &str) -> Result<&Arc<Route>, NotFound> {
        let methods = self.services.get(service).or_else(|| self.short.get(service)?.as_ref());
        if let Some(methods) = methods {
            return methods.by_name.get(method).ok_or(NotFound::Method);
        }
        self.function(service, method).ok_or(NotFound::Service)
    }

    /// Every method; one with several names may come several times. Fallbacks are among them.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Arc<Route>> {
        let methods = self.services.values().flat_map(|methods| methods.by_name.values());
        let fallbacks = self.fallbacks.calls.iter().chain(&self.fallbacks.http);
        methods.chain(self.functions.values()).chain(fallbacks)
    }

    /// Takes calls that find no method.
    pub(crate) fn set_fallback(&mut self, method: Arc<dyn Method>) {
        self.fallbacks.calls = Some(Route::new("", "", method, MethodRole::Fallback));
    }

    /// Takes requests of HTTP that are no calls.
    pub(crate) fn set_http_fallback(&mut self, method: Arc<dyn Method>) {
        self.fallbacks.http = Some(Route::new("", "", method, MethodRole::Fallback));
    }

    /// What takes calls that find no method, if anything does.
    pub(crate) fn fallback(&self) -> Option<&Arc<Route>> {
        self.fallbacks.calls.as_ref()
    }

    /// What takes requests of HTTP that are no calls, if anything does.
    pub(crate) fn http_fallback(&self) -> Option<&Arc<Route>> {
        self.fallbacks.http.as_ref()
    }

    /// What bears a name: the methods of a service, one of them as `Service/Method`, or a function.
    pub(crate) fn named(&self, name: &str) -> Vec<&Arc<Route>> {
        if let Some(methods) = self.services.get(name).or_else(|| self.short.get(name)?.as_ref()) {
            return methods.by_name.values().collect();
        }
        let (service, method) = name.rsplit_once('/').unwrap_or(("", name));
        self.entry(service, method).into_iter().collect()
    }

    /// Every service with its methods, sorted; functions stand under the empty name.
    pub fn list(&self) -> Vec<(String, Vec<String>)> {
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

    /// The methods of every service that are one message each way, sorted.
    pub(crate) fn methods(&self) -> Vec<(&str, Vec<(&str, &Arc<dyn Method>)>)> {
        let mut services: Vec<_> = self.services.iter().map(|(name, methods)| (&**name, methods)).collect();
        services.sort_unstable_by_key(|(name, _)| *name);
        services.into_iter().map(|(name, methods)| (name, methods.unary())).collect()
    }

    /// The services that came with descriptors, and these, sorted by name.
    pub(crate) fn described(&self) -> Vec<(&str, &[Pool])> {
        let mut described: Vec<_> =
            self.services.iter().map(|(name, methods)| (&**name, &methods.schemas[..])).collect();
        described.retain(|(_, schemas)| !schemas.is_empty());
        described.sort_unstable_by_key(|(name, _)| *name);
        described
    }

    fn function(&self, service: &str, method: &str) -> Option<&Arc<Route>> {
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
    fn of(service: impl Service, role: MethodRole) -> (String, Arc<Self>) {
        let ServiceBuilder { name, schemas, methods, ids } = service.into_builder();
        let mut numbers: Vec<(Box<str>, _)> =
            methods.iter().map(|(name, _)| (name.as_str().into(), None)).collect();
        for (place, id) in ids {
            numbers[place].1 = Some(id);
        }
        let entry = |method_name: &str, method| Route::new(&name, method_name, method, role);
        let by_name =
            methods.into_iter().map(|(name, method)| (name.as_str().into(), entry(&name, method))).collect();
        (name, Arc::new(Self { by_name, schemas, numbers }))
    }

    fn unary(&self) -> Vec<(&str, &Arc<dyn Method>)> {
        let methods = self.by_name.iter().map(|(name, entry)| (&**name, entry.method()));
        let mut unary: Vec<_> = methods.filter(|(_, method)| method.shape().is_unary()).collect();
        unary.sort_unstable_by_key(|(name, _)| *name);
        unary
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.list()).finish()
    }
}
