//! Suggestions for a method that the server does not have.

use std::time::Duration;

use polyrpc::{Client, Protocol};
use tokio::time::timeout;

use super::Options;
use crate::message::{service_hint, split};
use crate::reflection::{Reflection, rpcx};
use crate::{closest, describe};

/// Suggestion for a method that the server does not have.
pub(super) async fn of_target(client: &Client, options: &Options) -> Option<String> {
    let (service, method) = split(&options.target)?;
    let services_of = timeout(AT_MOST, services_of(client, options)).await.ok()??;
    // rpcx's reflection omits packages.
    let last = service.rsplit('.').next();
    let known = services_of.iter().find(|(name, _)| name == service || Some(name.as_str()) == last);
    match known {
        Some((_, methods)) if !methods.iter().any(|known| known == method) => {
            let methods: Vec<_> = methods.iter().map(String::as_str).collect();
            Some(closest::hint(method, &methods, &format!("{service} has")))
        }
        Some(_) => None,
        None => {
            let names: Vec<_> = services_of.iter().map(|(name, _)| name.as_str()).collect();
            Some(service_hint(service, &names).replace("it has ", "the server has "))
        }
    }
}

/// The services of a server with the names of their methods, if it lists them.
async fn services_of(client: &Client, options: &Options) -> Option<Vec<(String, Vec<String>)>> {
    if client.protocol() == Protocol::Rpcx {
        let program = rpcx::Program::ask(client, None, options.asking()).await.ok()?;
        let names = |methods: Vec<rpcx::Method>| methods.into_iter().map(|method| method.name).collect();
        let services = program.services.into_iter();
        return Some(services.map(|service| (service.name, names(service.methods))).collect());
    }
    let other = if client.protocol() == Protocol::Grpc { client.clone() } else { options.by_grpc()? };
    let mut reflection = Reflection::new(&other, options.asking());
    let mut services = Vec::new();
    for service in reflection.services().await.ok()? {
        // Only the name of an undescribed service is known.
        let _ = reflection.find(&service).await;
        services.push(service);
    }
    let files: Vec<_> = reflection.files().cloned().collect();
    let methods = |service: &str| describe::methods(&files, service);
    Some(services.into_iter().map(|service| (service.clone(), methods(&service))).collect())
}

/// Timeout of the query for names.
const AT_MOST: Duration = Duration::from_secs(1);
