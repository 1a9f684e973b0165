use std::collections::HashMap;
use std::sync::Arc;

use crate::call::Outcome;
use crate::layer::{Call, Layer, Next};

/// Replaces names of services and methods in a client's calls: see [`Builder::alias`](super::Builder::alias).
///
/// A name is looked up once: its target is not an alias again. A method's alias takes precedence over its service's.
#[derive(Debug, Clone, Default)]
pub(super) struct Aliases(HashMap<Box<str>, Names>);

/// The targets of the names in a service.
#[derive(Debug, Clone, Default)]
struct Names {
    service: Option<Box<str>>,
    methods: HashMap<Box<str>, (Box<str>, Box<str>)>,
}

impl Aliases {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an alias of a service.
    pub(super) fn add_service(&mut self, alias: &str, target: &str) {
        self.0.entry(alias.into()).or_default().service = Some(target.into());
    }

    /// Adds an alias of a method.
    pub(super) fn add_method(&mut self, alias: &str, target: &str) {
        let ((service, method), (target, name)) = (super::split(alias), super::split(target));
        let names = self.0.entry(service.into()).or_default();
        names.methods.insert(method.into(), (target.into(), name.into()));
    }
}

impl Layer for Aliases {
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
        let mut aliases = Aliases::default();
        aliases.add_method("math/times", "Arith/Mul");
        aliases.add_service("math", "Geo");
        aliases.add_method("plus", "Arith/Add");
        aliases.add_method("Arith/Sub", "minus");
        let client = echo.layered(aliases);
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
