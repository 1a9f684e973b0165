//! Layers, hooks and concurrency limits around a server's methods.

use std::sync::Arc;
use std::{fmt, io};

use polyrpc_core::Status;

use super::Server;
use super::concurrency::{ConcurrencyLimit, ConcurrencyLimiter, LimitLayer, LimitScope};
use super::hook_chain::HookChain;
use super::incidents::IncidentCounters;
use crate::layer::hook::Hook;
use crate::layer::{Layer, Layers, Side};
use crate::service::{Route, Router};

impl Server {
    /// Adds a layer around every method and function, inside the layers that were added before it.
    ///
    /// Health, reflection and pages are exempt: a limit must not fail the probes, and the listener's
    /// [authenticator](super::Listen::authenticate) controls access to them. Calls of [file transfer](crate::transfer)
    /// pass layers, since the files are the user's.
    ///
    /// Calls pass [hooks](Self::hook), the listener's authenticator, [concurrency limits](Self::concurrency_limit), the
    /// layers of the whole server and those of a service or method, in this order.
    #[must_use]
    pub fn layer(mut self, layer: impl Layer) -> Self {
        self.extensions.add_layer(None, layer);
        self
    }

    /// Adds a layer around everything of this name, inside the layers of the whole server: the methods of a service,
    /// one method as `Service/Method`, or a function. A method with several names has the layer under all of them.
    ///
    /// # Panics
    ///
    /// If nothing has this name: add it first.
    #[must_use]
    pub fn layer_on(mut self, name: &str, layer: impl Layer) -> Self {
        self.expect(name);
        self.extensions.add_layer(Some(name.to_owned()), layer);
        self
    }

    /// Adds a hook, called after those that were added before it. It does not observe calls to health, reflection and
    /// pages.
    #[must_use]
    pub fn hook(mut self, hook: impl Hook) -> Self {
        self.extensions.hooks.push(Box::new(hook));
        self
    }

    /// Limits how many calls are handled at a time, over all methods together. The rejection marks that the call may be
    /// retried elsewhere. Standard services (health, reflection, transfer) are neither counted nor rejected.
    ///
    /// In addition [`Limits::in_flight`](super::Limits::in_flight) bounds the calls with a pending handler.
    ///
    /// ```
    /// use polyrpc::Server;
    /// use polyrpc::server::ConcurrencyLimit;
    ///
    /// # fn main() -> polyrpc::Result<()> {
    /// let server = Server::new()
    ///     .function("echo", |text: String| async move { text })
    ///     .function("report", |month: String| async move { month })
    ///     .concurrency_limit("auto".parse()?)
    ///     .concurrency_limit_for("report", ConcurrencyLimit::Constant(4));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn concurrency_limit(mut self, limit: ConcurrencyLimit) -> Self {
        self.extensions.together = limit;
        self
    }

    /// Limits how many calls each method handles at a time, unless
    /// [`concurrency_limit_for`](Self::concurrency_limit_for) sets another limit for it (brpc's
    /// `method_max_concurrency`).
    #[must_use]
    pub fn concurrency_limit_per_method(mut self, limit: ConcurrencyLimit) -> Self {
        self.extensions.each = limit;
        self
    }

    /// Limits how many calls are handled at a time under this name: by each of the methods of a service, one method as
    /// `Service/Method`, or a function. For each method the last setting wins.
    ///
    /// # Panics
    ///
    /// If nothing has this name: add it first.
    #[must_use]
    pub fn concurrency_limit_for(mut self, name: &str, limit: ConcurrencyLimit) -> Self {
        self.expect(name);
        self.extensions.limits.push((name.to_owned(), limit));
        self
    }

    fn expect(&self, name: &str) {
        assert!(
            !self.router.routes_named(name).is_empty(),
            "there is no service, method or function `{name}`"
        );
    }
}

/// The layers, hooks and limits around a server's methods.
#[derive(Default)]
pub(super) struct Extensions {
    /// Each with the name that it applies to, `None` if to everything.
    layers: Vec<(Option<String>, Layers)>,
    /// Error for a layer that cannot be added here.
    misplaced: Option<Status>,
    hooks: Vec<Box<dyn Hook>>,
    together: ConcurrencyLimit,
    each: ConcurrencyLimit,
    limits: Vec<(String, ConcurrencyLimit)>,
}

impl Extensions {
    fn add_layer(&mut self, name: Option<String>, layer: impl Layer) {
        let (layer, fits) = Layers::one_for(Side::Server, layer);
        self.misplaced = self.misplaced.take().or_else(|| fits.err());
        self.layers.push((name, layer));
    }

    /// Returns whether the arrival time of every call is needed.
    pub(super) fn needs_call_times(&self) -> bool {
        let limits = self.limits.iter().map(|(_, limit)| limit);
        !self.hooks.is_empty() || limits.chain([&self.together, &self.each]).any(ConcurrencyLimit::measures)
    }

    /// Installs layers and limits around the methods; returns the hooks, which have been notified of the methods.
    pub(super) fn install(self, router: &Router, incidents: &Arc<IncidentCounters>) -> io::Result<HookChain> {
        if let Some(status) = self.misplaced {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, status));
        }
        let together =
            ConcurrencyLimiter::new(&self.together, LimitScope::Server, incidents.clone()).map(Arc::new);
        for entry in router.entries() {
            let own =
                ConcurrencyLimiter::new(self.limit_of(entry, router), LimitScope::Method, incidents.clone())
                    .map(Arc::new);
            let limiters = [together.clone(), own];
            let limits = limiters.into_iter().flatten().filter(|_| !entry.is_standard());
            let limits: Vec<_> = limits.map(|limiter| Layers::one(LimitLayer::new(limiter))).collect();
            entry.layer(limits.iter().collect::<Layers>().compose(&self.layers_of(entry, router)));
        }
        let hooks = HookChain::new(self.hooks);
        hooks.on_register(router).map_err(io::Error::other)?;
        Ok(hooks)
    }

    /// Returns the layers around subscriptions: those of the whole server.
    pub(super) fn layers_of_subscriptions(&self) -> Layers {
        self.layers_of_all().collect()
    }

    fn limit_of(&self, entry: &Arc<Route>, router: &Router) -> &ConcurrencyLimit {
        let own = self.limits.iter().rev().find(|(name, _)| has_name(entry, name, router));
        own.map_or(&self.each, |(_, limit)| limit)
    }

    fn layers_of(&self, entry: &Arc<Route>, router: &Router) -> Layers {
        let of_all = self.layers_of_all().filter(|_| !entry.is_introspection());
        let own = self
            .layers
            .iter()
            .filter(|(name, _)| name.as_ref().is_some_and(|name| has_name(entry, name, router)));
        of_all.chain(own.map(|(_, layers)| layers)).collect()
    }

    fn layers_of_all(&self) -> impl Iterator<Item = &Layers> {
        self.layers.iter().filter(|(name, _)| name.is_none()).map(|(_, layers)| layers)
    }
}

fn has_name(entry: &Arc<Route>, name: &str, router: &Router) -> bool {
    router.routes_named(name).into_iter().any(|named| Arc::ptr_eq(named, entry))
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extensions")
            .field("layers", &self.layers.len())
            .field("hooks", &self.hooks.len())
            .finish_non_exhaustive()
    }
}
