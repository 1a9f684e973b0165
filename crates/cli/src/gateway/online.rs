//! Whether the upstreams of a configuration have servers, and these accept connections.

use std::time::Duration;

use futures_util::StreamExt;
use polyrpc::discovery::Network;
use polyrpc_gateway::Config;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::url::Url;

/// Looks for the servers of all upstreams. Returns which of them do not answer; an upstream without a server that does is an
/// error.
pub(super) async fn servers(config: &Config) -> Result<Vec<String>, String> {
    let (mut notes, mut problems) = (Vec::new(), Vec::new());
    for (line, name, url) in config.upstreams() {
        let found = match listed(url).await {
            Ok(found) => found,
            Err(why) => {
                problems.push(format!("line {line}: `{name}`: {why}"));
                continue;
            }
        };
        let mut unreachable = Vec::new();
        for (network, address) in &found {
            if let Err(why) = reached(*network, address).await {
                unreachable.push(format!("line {line}: `{name}`: {address}: {why}"));
            }
        }
        if unreachable.len() == found.len() {
            unreachable.push(format!("line {line}: `{name}` has no server that can be reached"));
            problems.append(&mut unreachable);
        }
        notes.append(&mut unreachable);
    }
    if problems.is_empty() { Ok(notes) } else { Err(problems.join("\n")) }
}

/// The servers that a URL names, or its registry.
async fn listed(url: &str) -> Result<Vec<(Network, String)>, String> {
    let parsed = Url::parse(url).ok_or_else(|| "its URL is malformed".to_owned())?;
    if parsed.registry.is_none() {
        let network = match parsed.parameter("transport") {
            Some("kcp") => Network::Kcp,
            Some("quic") => Network::Quic,
            _ if parsed.socket().is_some() => Network::Unix,
            _ => Network::Tcp,
        };
        return Ok(vec![(network, with_port(&parsed))]);
    }
    let discover = polyrpc_discovery::discover(url).map_err(|error| error.to_string())?;
    let first = timeout(PATIENCE, discover.watch().next()).await;
    let first = first.map_err(|_| "its registry does not answer".to_owned())?;
    let instances = first.ok_or_else(|| "its registry lists nothing".to_owned())?;
    let instances = instances.map_err(|error| error.to_string())?;
    if instances.is_empty() {
        return Err("its registry has no server".to_owned());
    }
    Ok(instances.into_iter().map(|instance| (instance.network, instance.address)).collect())
}

fn with_port(url: &Url) -> String {
    let server = url.server();
    let has_port = server.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    match (has_port || url.socket().is_some(), url.tls) {
        (true, _) => server.to_owned(),
        (false, true) => format!("{server}:443"),
        (false, false) => format!("{server}:80"),
    }
}

async fn reached(network: Network, address: &str) -> Result<(), String> {
    let connecting = async {
        match network {
            Network::Unix => UnixStream::connect(address).await.map(drop),
            _ => TcpStream::connect(address).await.map(drop),
        }
    };
    if matches!(network, Network::Kcp | Network::Quic) {
        // A packet of UDP is not answered by itself.
        return Ok(());
    }
    match timeout(PATIENCE, connecting).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it does not answer".to_owned()),
    }
}

const PATIENCE: Duration = Duration::from_secs(5);
