//! What the user may have meant by a method that a server does not have.

use std::time::Duration;

use polyrpc::{Client, Protocol};
use tokio::time::timeout;

use super::Options;
use crate::message::{service_hint, split};
use crate::reflection::{Reflection, rpcx};
use crate::{closest, describe};

/// What the user may have meant by a method that the server does not have.
pub(super) async fn of_target(client: &Client, options: &Options) -> Option<String> {
    let offered = timeout(AT_MOST, offered(client, options)).await.ok()??;
    let Some((service, method)) = split(&options.target) else {
        return with_service(&options.target, client.protocol(), &offered);
    };
    // rpcx's reflection leaves out packages.
    let last = service.rsplit('.').next();
    let known = offered.iter().find(|(name, _)| name == service || Some(name.as_str()) == last);
    match known {
        Some((_, methods)) if !methods.iter().any(|known| known == method) => {
            let methods: Vec<_> = methods.iter().map(String::as_str).collect();
            Some(closest::hint(method, &methods, &format!("{service} has")))
        }
        Some(_) => None,
        None => {
            let names: Vec<_> = offered.iter().map(|(name, _)| name.as_str()).collect();
            Some(service_hint(service, &names).replace("it has ", "the server has "))
        }
    }
}

/// What a name without a service may mean: the method of that name. gRPC has no functions.
fn with_service(name: &str, protocol: Protocol, offered: &[(String, Vec<String>)]) -> Option<String> {
    let having = offered.iter().filter(|(_, methods)| methods.iter().any(|method| method == name));
    let targets: Vec<_> = having.map(|(service, _)| format!("`{service}/{name}`")).collect();
    match targets.as_slice() {
        [] if protocol == Protocol::Grpc => {
            Some("a method is named with its service: Service/Method".to_owned())
        }
        [] => None,
        [one] => Some(format!("did you mean {one}?")),
        several => Some(format!("did you mean one of {}?", several.join(", "))),
    }
}

/// The services of a server with the names of their methods, if it tells.
async fn offered(client: &Client, options: &Options) -> Option<Vec<(String, Vec<String>)>> {
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
        // One that cannot be described is known by its name alone.
        let _ = reflection.find(&service).await;
        services.push(service);
    }
    let files: Vec<_> = reflection.files().cloned().collect();
    let methods = |service: &str| describe::methods(&files, service);
    Some(services.into_iter().map(|service| (service.clone(), methods(&service))).collect())
}

/// How long the server is asked for names.
const AT_MOST: Duration = Duration::from_secs(1);
