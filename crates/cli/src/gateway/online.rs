//! Whether the upstreams of a configuration have servers, and these accept connections.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use polyrpc::discovery::Network;
use polyrpc_core::protocol::percent_decode;
use polyrpc_gateway::Config;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::url::Url;

/// Looks for the servers of all upstreams. Returns which of them do not answer, or are not tried; an upstream without a
/// server that may answer is an error.
pub(super) async fn check_upstreams(config: &Config) -> Result<Vec<String>, String> {
    let tries = Semaphore::new(MAX_CONCURRENT_TRIES);
    let upstreams = config.upstreams().map(|(line, name, url)| {
        let (tries, upstream) = (&tries, format!("line {line}: `{name}`"));
        async move { check_upstream(tries, &upstream, url).await }
    });
    let (mut notes, mut problems) = (Vec::new(), Vec::new());
    for checked in join_all(upstreams).await {
        match checked {
            Ok(found) => notes.extend(found),
            Err(wrong) => problems.extend(wrong),
        }
    }
    if problems.is_empty() { Ok(notes) } else { Err(problems.join("\n")) }
}

/// Tries the servers of one upstream. Returns notes, or why it has none.
async fn check_upstream(tries: &Semaphore, upstream: &str, url: &str) -> Result<Vec<String>, Vec<String>> {
    let listed = run_limited(tries, find_servers(url)).await;
    let servers = listed.map_err(|why| vec![format!("{upstream}: {why}")])?;
    let reached = servers.iter().map(|(network, address)| run_limited(tries, try_server(*network, address)));
    let (mut notes, mut unreachable) = (Vec::new(), 0);
    for (reach, (_, address)) in join_all(reached).await.into_iter().zip(&servers) {
        match reach {
            Reach::Reached => {}
            Reach::Untried(transport) => notes.push(format!(
                "{upstream}: {address}: {transport} is not checked: only TCP and Unix sockets are tried"
            )),
            Reach::Failed(why) => {
                unreachable += 1;
                notes.push(format!("{upstream}: {address}: {why}"));
            }
        }
    }
    if unreachable < servers.len() {
        return Ok(notes);
    }
    notes.push(format!("{upstream} has no server that can be reached"));
    Err(notes)
}

/// Waits until fewer than [`MAX_CONCURRENT_TRIES`] others are under way.
async fn run_limited<T>(tries: &Semaphore, attempt: impl Future<Output = T>) -> T {
    // It is never closed.
    let _permit = tries.acquire().await;
    attempt.await
}

/// The servers that a URL names, or its registry.
async fn find_servers(url: &str) -> Result<Vec<(Network, String)>, String> {
    let parsed = Url::parse(url).ok_or_else(|| "its URL is malformed".to_owned())?;
    if parsed.registry.is_none() {
        return server_of(&parsed).map(|server| vec![server]);
    }
    let discover = polyrpc_discovery::discover(url).map_err(|error| error.to_string())?;
    let first = timeout(CONNECT_TIMEOUT, discover.watch().next()).await;
    let first = first.map_err(|_| "its registry does not answer".to_owned())?;
    let instances = first.ok_or_else(|| "its registry lists nothing".to_owned())?;
    let instances = instances.map_err(|error| error.to_string())?;
    if instances.is_empty() {
        return Err("its registry has no server".to_owned());
    }
    Ok(instances.into_iter().map(|instance| (instance.network, instance.address)).collect())
}

/// The server that a URL names itself.
fn server_of(url: &Url) -> Result<(Network, String), String> {
    if let Some(path) = url.socket() {
        let path = percent_decode(path).ok_or_else(|| {
            "the path of its socket is not percent-encoded UTF-8: write `%` as %25".to_owned()
        })?;
        return Ok((Network::Unix, path));
    }
    let network = match url.parameter("transport") {
        Some("kcp") => Network::Kcp,
        Some("quic") => Network::Quic,
        _ => Network::Tcp,
    };
    Ok((network, address_with_port(url)))
}

fn address_with_port(url: &Url) -> String {
    let server = url.server();
    let has_port = server.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    match (has_port, url.tls) {
        (true, _) => server.to_owned(),
        (false, true) => format!("{server}:443"),
        (false, false) => format!("{server}:80"),
    }
}

/// What is known of a server.
#[derive(Debug, PartialEq, Eq)]
enum Reach {
    /// It accepts connections.
    Reached,
    /// Nothing, since servers over this transport are not tried.
    Untried(&'static str),
    Failed(String),
}

async fn try_server(network: Network, address: &str) -> Reach {
    let connecting = async {
        match network {
            Network::Unix => UnixStream::connect(address).await.map(drop),
            _ => TcpStream::connect(address).await.map(drop),
        }
    };
    // A packet of UDP is not answered by itself.
    match network {
        Network::Kcp => return Reach::Untried("KCP"),
        Network::Quic => return Reach::Untried("QUIC"),
        _ => {}
    }
    match timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(Ok(())) => Reach::Reached,
        Ok(Err(error)) => Reach::Failed(error.to_string()),
        Err(_) => Reach::Failed("it does not answer".to_owned()),
    }
}

/// Time for a server to accept a connection, and for a registry to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of servers and registries that are tried at a time.
const MAX_CONCURRENT_TRIES: usize = 32;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::net::{TcpListener, UnixListener};

    use super::*;

    fn config(urls: &[&str]) -> Config {
        let upstreams = urls.iter().enumerate();
        let upstreams = upstreams.map(|(n, url)| format!("[[upstream]]\nname = \"u{n}\"\nurl = \"{url}\"\n"));
        let text = format!(
            "{}[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nto = \"u0\"\n",
            upstreams.collect::<String>()
        );
        Config::parse(&text).unwrap()
    }

    #[tokio::test]
    async fn socket_whose_path_has_escapes_is_reached() {
        let path = std::env::temp_dir().join(format!("polyrpc-a%b?{}.sock", std::process::id()));
        let _listener = UnixListener::bind(&path).unwrap();
        let address = polyrpc::Address::Unix(path.clone());
        let found = check_upstreams(&config(&[&Url::from_server("rpcx", &address).to_string()])).await;
        std::fs::remove_file(path).unwrap();
        assert_eq!(found, Ok(Vec::new()));
        let wrong = check_upstreams(&config(&["rpcx:///run/a%zz"])).await.unwrap_err();
        assert!(wrong.contains("line 1: `u0`: the path of its socket is not percent-encoded"), "{wrong}");
    }

    #[tokio::test]
    async fn transports_over_udp_are_noted_as_not_checked() {
        let urls = ["rpcx://127.0.0.1:9?transport=kcp", "grpcs://127.0.0.1:9?transport=quic"];
        let notes = check_upstreams(&config(&urls)).await.unwrap();
        assert_eq!(
            notes,
            [
                "line 1: `u0`: 127.0.0.1:9: KCP is not checked: only TCP and Unix sockets are tried",
                "line 4: `u1`: 127.0.0.1:9: QUIC is not checked: only TCP and Unix sockets are tried",
            ]
        );
    }

    #[tokio::test]
    async fn servers_of_all_upstreams_are_reported_in_their_order() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let right = format!("grpc://{}", listener.local_addr().unwrap());
        // A reserved port without a listener, so that connecting fails at once.
        let wrong = "grpc://127.0.0.1:0";
        let problems = check_upstreams(&config(&[wrong, &right, wrong])).await.unwrap_err();
        let lines: Vec<_> = problems.lines().map(|line| line.split('`').nth(1).unwrap()).collect();
        assert_eq!(lines, ["u0", "u0", "u2", "u2"], "{problems}");
    }

    #[tokio::test]
    async fn only_so_many_servers_are_tried_at_a_time() {
        let (tries, running, most) =
            (Semaphore::new(MAX_CONCURRENT_TRIES), AtomicUsize::new(0), AtomicUsize::new(0));
        let attempts = (0..3 * MAX_CONCURRENT_TRIES).map(|_| {
            run_limited(&tries, async {
                most.fetch_max(1 + running.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
                tokio::task::yield_now().await;
                running.fetch_sub(1, Ordering::Relaxed);
            })
        });
        join_all(attempts).await;
        assert_eq!(most.into_inner(), MAX_CONCURRENT_TRIES);
    }
}
