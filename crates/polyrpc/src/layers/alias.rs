use std::collections::HashMap;
use std::sync::Arc;

use crate::call::Outcome;
use crate::client;
use crate::layer::{Call, Layer, Next, Side};

/// Replaces names of services and methods in a client's calls: the counterpart on the client of rpcx's alias plugin for
/// servers.
///
/// ```
/// use polyrpc::layers::Alias;
///
/// let aliases = Alias::new().method("math/times", "Arith/Mul").service("geometry", "Geo");
/// let client = polyrpc::Client::builder("rpcx://127.0.0.1:8972").layer(aliases);
/// ```
///
/// A name is looked up once: its target is not an alias again. A method's alias takes precedence over its service's.
#[derive(Debug, Clone, Default)]
pub struct Alias(HashMap<Box<str>, Names>);

/// The targets of the names in a service.
#[derive(Debug, Clone, Default)]
struct Names {
    service: Option<Box<str>>,
    methods: HashMap<Box<str>, (Box<str>, Box<str>)>,
}

impl Alias {
    /// Creates a layer without aliases.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an alias of a service.
    #[must_use]
    pub fn service(mut self, alias: &str, target: &str) -> Self {
        self.0.entry(alias.into()).or_default().service = Some(target.into());
        self
    }

    /// Adds an alias of a method: `math/times` for `Arith/Mul`, or names without a service.
    #[must_use]
    pub fn method(mut self, alias: &str, target: &str) -> Self {
        let ((service, method), (target, name)) = (client::split(alias), client::split(target));
        let names = self.0.entry(service.into()).or_default();
        names.methods.insert(method.into(), (target.into(), name.into()));
        self
    }
}

impl Layer for Alias {
    async fn call(self: Arc<Self>, mut call: Call, next: Next) -> Outcome {
        if let Some(names) = self.0.get(call.service()) {
            let redirected = if let Some((service, method)) = names.methods.get(call.method()) {
                call.redirect(service, method)
            } else if let Some(service) = &names.service {
                let method = call.method().to_owned();
                call.redirect(service, &method)
            } else {
                Ok(())
            };
            if let Err(status) = redirected {
                return Outcome::failed(status);
            }
        }
        next.call(call).await
    }

    /// A server has [`Server::alias`](crate::Server::alias).
    fn only_side(&self) -> Option<Side> {
        Some(Side::Client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;
    use crate::codec::Serde;

    #[tokio::test]
    async fn aliases_are_resolved_before_the_call() {
        let echo = Client::mock(|call| {
            call.encode_reply::<Serde, _>(&(call.service.to_owned(), call.method.to_owned()))
        });
        let client = echo.layered(
            Alias::new()
                .method("math/times", "Arith/Mul")
                .service("math", "Geo")
                .method("plus", "Arith/Add")
                .method("Arith/Sub", "minus"),
        );
        for (called, service, method) in [
            ("math/times", "Arith", "Mul"),
            ("math/area", "Geo", "area"),
            ("plus", "Arith", "Add"),
            ("Arith/Sub", "", "minus"),
            ("Arith/Mul", "Arith", "Mul"),
            ("other", "", "other"),
        ] {
            let reached: (String, String) = client.call(called, &()).await.unwrap();
            assert_eq!(reached, (service.to_owned(), method.to_owned()), "{called}");
        }
    }
}
