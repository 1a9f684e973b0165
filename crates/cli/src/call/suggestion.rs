//! Suggestions for a method that the server does not have.

use std::time::Duration;

use polyrpc::{Client, Protocol};
use polyrpc_transform::closest;
use tokio::time::timeout;

use super::Options;
use crate::declarations;
use crate::message::{service_hint, split};
use crate::reflection::{Reflection, rpcx};

/// Suggestion for a method that the server does not have.
pub(super) async fn suggest_target(client: &Client, options: &Options) -> Option<String> {
    let services = timeout(QUERY_TIMEOUT, query_services(client, options)).await.ok()??;
    let Some((service, method)) = split(&options.target) else {
        return suggest_service(&options.target, client.protocol(), &services);
    };
    // rpcx's reflection omits packages.
    let last = service.rsplit('.').next();
    let known = services.iter().find(|(name, _)| name == service || Some(name.as_str()) == last);
    match known {
        Some((_, methods)) if !methods.iter().any(|known| known == method) => {
            let methods: Vec<_> = methods.iter().map(String::as_str).collect();
            Some(closest::hint(method, &methods, &format!("{service} has")))
        }
        Some(_) => None,
        None => {
            let names: Vec<_> = services.iter().map(|(name, _)| name.as_str()).collect();
            Some(service_hint(service, &names).replace("it has ", "the server has "))
        }
    }
}

/// Suggestion for a name without a service: methods of that name. gRPC has no functions.
fn suggest_service(name: &str, protocol: Protocol, services: &[(String, Vec<String>)]) -> Option<String> {
    let with_method = services.iter().filter(|(_, methods)| methods.iter().any(|method| method == name));
    let targets: Vec<_> = with_method.map(|(service, _)| format!("`{service}/{name}`")).collect();
    match targets.as_slice() {
        [] if protocol == Protocol::Grpc => {
            Some("name the method together with its service: Service/Method".to_owned())
        }
        [] => None,
        [one] => Some(format!("did you mean {one}?")),
        several => Some(format!("did you mean one of {}?", several.join(", "))),
    }
}

/// The services of a server with the names of their methods, if it lists them.
async fn query_services(client: &Client, options: &Options) -> Option<Vec<(String, Vec<String>)>> {
    if client.protocol() == Protocol::Rpcx {
        let program = rpcx::Program::query(client, None, options.query_options()).await.ok()?;
        let names = |methods: Vec<rpcx::Method>| methods.into_iter().map(|method| method.name).collect();
        let services = program.services.into_iter();
        return Some(services.map(|service| (service.name, names(service.methods))).collect());
    }
    let other = if client.protocol() == Protocol::Grpc { client.clone() } else { options.grpc_client()? };
    let mut reflection = Reflection::new(&other, options.query_options());
    let mut services = Vec::new();
    for service in reflection.services().await.ok()? {
        // Only the name of an undescribed service is known.
        let _ = reflection.find(&service).await;
        services.push(service);
    }
    let files: Vec<_> = reflection.files().cloned().collect();
    let methods = |service: &str| declarations::methods(&files, service);
    Some(services.into_iter().map(|service| (service.clone(), methods(&service))).collect())
}

/// Timeout of the query for names.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);
