//! `polyrpc serve`: serves the demo's services for any client.

use std::io::{self, Write};
use std::net::Ipv6Addr;
use std::process::ExitCode;
use std::time::Duration;
use std::{panic, thread};

use clap::Args;
use polyrpc::discovery::{Attributes, Instance, redacted};
use polyrpc::net_rpc::Codec;
use polyrpc::rest_rpc::{ByteOrder, Generation};
use polyrpc::server::{BoundServer, Event, Listen, Registration, ServerHandle};
use polyrpc::{Cores, Json, Protocol, Server, Status, signal};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::failure::Failure;
use crate::kcp::Kcp;
use crate::limits::{LimitOptions, Span};
use crate::tls::ServerTlsOptions;
use crate::{services, terminal, vectors};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Where to listen: host:port, port 0 for a free one, unix:/path, or over UDP kcp://host:port and (with
    /// --tls-cert) quic://host:port; may be repeated
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8002")]
    listen: Vec<String>,
    /// The protocols to speak, for example `rpcx,http` [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = protocol)]
    protocols: Vec<Protocol>,
    /// Offer what the recorded conversations of real peers expect
    #[arg(long)]
    vectors: bool,
    /// Also listen here, for those whose credential is `secret-token`
    #[arg(long, value_name = "ADDR")]
    auth_listen: Option<String>,
    /// Also listen here, for those whose credential is `bearer tGzv3JOkF0XG5Qx2TlKWIA`
    #[arg(long, value_name = "ADDR")]
    rpcx_auth_listen: Option<String>,
    #[command(flatten)]
    rest_rpc: RestRpc,
    /// Also listen here, for Go's net/rpc in protobuf, as the rpcx of 2016 has it
    #[arg(long, value_name = "ADDR")]
    old_protobuf_listen: Option<String>,
    /// Also listen here, for Go's net/rpc in gencode, as the rpcx of 2016 has it
    #[arg(long, value_name = "ADDR")]
    old_gencode_listen: Option<String>,
    /// Run on so many threads with a runtime each, instead of one runtime on all cores
    #[arg(long, value_name = "N")]
    cores: Option<usize>,
    /// When told to stop, still take calls for so long, and say that the server is not ready
    #[arg(long, value_name = "TIME")]
    lame_duck: Option<Span>,
    #[command(flatten)]
    registering: RegistryOptions,
    #[command(flatten)]
    proof: ServerTlsOptions,
    #[command(flatten)]
    kcp: Kcp,
    // Last, since its heading applies to all following options.
    #[command(flatten)]
    limits: LimitOptions,
}

/// Where the server makes itself known.
#[derive(Debug, Args)]
pub(crate) struct RegistryOptions {
    /// Make the services known in this registry, for example etcd://127.0.0.1:2379/base; may be repeated
    #[arg(long, value_name = "URL")]
    register: Vec<String>,
    /// Where clients are to call: host, host:port or network@host:port [default: the first listener]
    #[arg(long, value_name = "ADDR", requires = "register", value_parser = advertised)]
    advertise: Option<String>,
    /// What clients are to know, as a query string: weight=5&group=a
    #[arg(long, value_name = "QUERY", requires = "register", default_value = "", value_parser = attributes)]
    attributes: Attributes,
}

impl RegistryOptions {
    /// Has the server make itself known once it runs; what goes wrong with that is told.
    pub(crate) fn add_to(&self, mut server: Server) -> Result<Server, Failure> {
        for url in &self.register {
            let told = redacted(url);
            let mut registration = Registration::new()
                .attributes(self.attributes.clone())
                .rates()
                .on_event(move |event| tell(&told, event));
            if let Some(address) = &self.advertise {
                registration = registration.advertise(address);
            }
            server = server.register_in(polyrpc_discovery::register(url)?, registration);
        }
        Ok(server)
    }
}

/// Where clients can be told to call.
fn advertised(text: &str) -> Result<String, String> {
    let is_whole = text.parse::<Instance>().is_ok();
    let is_host = !text.contains('@') && format!("{text}:1").parse::<Instance>().is_ok();
    match is_whole || is_host || text.parse::<Ipv6Addr>().is_ok() {
        true => Ok(text.to_owned()),
        false => Err("want host, host:port or network@host:port".to_owned()),
    }
}

/// A query string of which everything can be read. What registries hold is read with more patience.
fn attributes(text: &str) -> Result<Attributes, String> {
    let read = |text: &str| match text.parse::<Attributes>() {
        Ok(attributes) => attributes,
        Err(never) => match never {},
    };
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        if pair.starts_with('=') || read(pair).iter().next().is_none() {
            return Err(format!(
                "`{pair}` is no name=value: % wants two hexadecimal digits behind it, and ; is %3B"
            ));
        }
    }
    let attributes = read(text);
    match attributes.value("weight") {
        Some(weight) if weight.parse::<u32>().is_err() => Err(format!("the weight `{weight}` is no number")),
        _ => Ok(attributes),
    }
}

fn tell(url: &str, event: Event<'_>) {
    match event {
        Event::Entered(entry) => terminal::tell(format_args!("registered {entry} in {url}")),
        // The log reports it, once.
        Event::Failed(..) => {}
        Event::Withdrawn(entry) => terminal::tell(format_args!("withdrawn {entry} from {url}")),
        _ => {}
    }
}

/// Where generations of rest_rpc are spoken that nothing on the wire tells.
#[derive(Debug, Args)]
struct RestRpc {
    /// Also listen here for rest_rpc v0.01 to v0.04
    #[arg(long, value_name = "ADDR")]
    rest_w1_listen: Option<String>,
    /// Also listen here for rest_rpc v0.05 to v0.11
    #[arg(long, value_name = "ADDR")]
    rest_w2_listen: Option<String>,
    /// Also listen here for rest_rpc as it was from 2022-12-23 on
    #[arg(long, value_name = "ADDR")]
    rest_w3_listen: Option<String>,
    /// Also listen here for rest_rpc as it was from 2023-02-16 on
    #[arg(long, value_name = "ADDR")]
    rest_w4_listen: Option<String>,
    /// Also listen here for rest_rpc v0.12 to v0.20
    #[arg(long, value_name = "ADDR")]
    rest_w5_listen: Option<String>,
    /// Also listen here for rest_rpc v0.21
    #[arg(long, value_name = "ADDR")]
    rest_w6_listen: Option<String>,
    /// Also listen here for rest_rpc v0.21 with its option enable_cross_ending
    #[arg(long, value_name = "ADDR")]
    rest_w6be_listen: Option<String>,
}

impl RestRpc {
    fn listeners(&self) -> [(&'static str, Option<&String>, fn(Listen) -> Listen); 7] {
        [
            ("rest-w1", self.rest_w1_listen.as_ref(), |listen| listen.rest_rpc(Generation::V0_04)),
            ("rest-w2", self.rest_w2_listen.as_ref(), |listen| listen.rest_rpc(Generation::V0_11)),
            ("rest-w3", self.rest_w3_listen.as_ref(), |listen| listen.rest_rpc(Generation::From20221223)),
            ("rest-w4", self.rest_w4_listen.as_ref(), |listen| listen.rest_rpc(Generation::From20230216)),
            ("rest-w5", self.rest_w5_listen.as_ref(), |listen| listen.rest_rpc(Generation::V0_20)),
            ("rest-w6", self.rest_w6_listen.as_ref(), |listen| {
                listen.rest_rpc(Generation::V0_21(ByteOrder::Little))
            }),
            ("rest-w6be", self.rest_w6be_listen.as_ref(), |listen| {
                listen.rest_rpc(Generation::V0_21(ByteOrder::Big))
            }),
        ]
    }
}

pub(crate) fn run(options: Options) -> Result<ExitCode, Failure> {
    tell_panics_in_a_line();
    let runtime =
        runtime(options.cores.is_some()).map_err(|error| Failure::system("start a runtime", &error))?;
    runtime.block_on(serve(options))?;
    Ok(ExitCode::SUCCESS)
}

/// Sets a panic hook that prints no backtrace. The library logs a handler's panic together with the method, so the hook adds
/// the place in the code at DEBUG only. A panic of the main thread ends the process and is printed as one line. The standard
/// hook keeps the debug information of the whole program in memory once it has printed a backtrace, and ends the process if
/// standard error is closed.
fn tell_panics_in_a_line() {
    let main = thread::current().id();
    panic::set_hook(Box::new(move |panic| match thread::current().id() == main {
        true => terminal::tell(panic),
        false => tracing::debug!("{panic}"),
    }));
}

/// With cores of its own, the server needs this runtime only to accept connections.
fn runtime(cores: bool) -> io::Result<Runtime> {
    let mut builder = if cores { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.enable_all().build()
}

async fn serve(options: Options) -> Result<(), Failure> {
    let stop = signal::shutdown();
    let mut listeners = listeners(&options)?;
    let others = if options.vectors { others(&mut listeners) } else { Vec::new() };
    let limits = options.limits.limits()?;
    let mut server = services::server()
        .limits(limits.clone())
        .lame_duck(options.lame_duck.map_or(Duration::ZERO, |span| span.0));
    let mut publishing = JoinSet::new();
    if options.vectors {
        server = vectors::add_to(server);
        publishing.spawn(vectors::publish(server.publisher()));
    }
    if let Some(cores) = options.cores {
        server =
            server.executor(Cores::start(cores).map_err(|error| Failure::system("start threads", &error))?);
    }
    let server = options.registering.add_to(server)?;
    let mut bound = vec![bind(server, listeners).await?];
    for (server, listener) in others {
        bound.push(bind(server.limits(limits.clone()), vec![listener]).await?);
    }
    announce(&bound).map_err(|error| Failure::system("write to standard output", &error))?;
    let running: Vec<_> = bound.into_iter().map(|(_, bound)| bound.start()).collect();
    stop.await;
    shut_down(running).await;
    Ok(())
}

/// Shuts servers down; a second signal ends the shutdown at once.
pub(crate) async fn shut_down(running: Vec<ServerHandle>) {
    let hurry = signal::shutdown();
    let mut shutting: JoinSet<_> = running.into_iter().map(|server| server.shutdown(GRACE)).collect();
    tokio::select! {
        () = hurry => {}
        () = async { while shutting.join_next().await.is_some() {} } => {}
    }
}

/// A listener by its name and address.
type Listener = (&'static str, String, Listen);

/// Takes out the listeners that have a server of their own.
fn others(listeners: &mut Vec<Listener>) -> Vec<(Server, Listener)> {
    let mut take = |name, server: fn() -> Server| {
        let at = listeners.iter().position(|(known, ..)| *known == name)?;
        Some((server(), listeners.remove(at)))
    };
    let servers: [(_, fn() -> Server); 2] =
        [(OLD_PROTOBUF, vectors::protobuf), (OLD_GENCODE, vectors::gencode)];
    servers.into_iter().filter_map(|(name, server)| take(name, server)).collect()
}

const OLD_PROTOBUF: &str = "old-protobuf";
const OLD_GENCODE: &str = "old-gencode";

/// Every listener by its name and address.
fn listeners(options: &Options) -> Result<Vec<Listener>, Failure> {
    let tls = options.proof.server()?;
    let kcp = options.kcp.config()?;
    let mut listeners = Vec::new();
    let mut add = |name, address: &str, adorn: fn(Listen) -> Listen| {
        let mut listen = Listen::on(address);
        if options.vectors {
            // The recorded conversations are brpc's, which is equally lenient.
            listen = listen.lenient_http().switch_protocols().trust_http_connections();
            listen = listen.json(Json::BrpcLenient);
        }
        if !options.protocols.is_empty() {
            listen = listen.only(options.protocols.iter().copied());
        }
        if let Some(tls) = &tls {
            listen = listen.tls(tls.clone());
        }
        if address.starts_with("kcp://") {
            listen = listen.kcp(kcp.clone());
        }
        listeners.push((name, address.to_owned(), adorn(listen)));
    };
    for address in &options.listen {
        add("main", address, |listen| listen);
    }
    if let Some(address) = &options.auth_listen {
        // Without a custom text, each protocol uses its default one.
        add("auth", address, |listen| only_with(listen, b"secret-token", ""));
    }
    if let Some(address) = &options.rpcx_auth_listen {
        add("rpcx-auth", address, |listen| {
            only_with(listen, b"bearer tGzv3JOkF0XG5Qx2TlKWIA", "invalid token")
        });
    }
    for (name, address, adorn) in options.rest_rpc.listeners() {
        if let Some(address) = address {
            add(name, address, adorn);
        }
    }
    if let Some(address) = &options.old_protobuf_listen {
        add(OLD_PROTOBUF, address, |listen| listen.net_rpc(Codec::Protobuf));
    }
    if let Some(address) = &options.old_gencode_listen {
        add(OLD_GENCODE, address, |listen| listen.net_rpc(Codec::Gencode));
    }
    match listeners.iter().find(|(_, address, _)| tls.is_none() && address.starts_with("quic://")) {
        Some((_, address, _)) => {
            let failure = Failure::new(format!("cannot listen on {address}: QUIC needs a certificate"));
            Err(failure.with_hint("name one by --tls-cert, and its key by --tls-key"))
        }
        None => Ok(listeners),
    }
}

fn only_with(listen: Listen, expected: &'static [u8], refusal: &'static str) -> Listen {
    listen.authenticate(move |credential, _| match credential == Some(expected) {
        true => Ok(()),
        false => Err(Status::unauthenticated(refusal)),
    })
}

/// What listens, with the names of its listeners.
async fn bind(server: Server, listeners: Vec<Listener>) -> Result<(Vec<&'static str>, BoundServer), Failure> {
    let names = listeners.iter().map(|(name, ..)| *name).collect();
    let refused = |address, error| Failure::system(format!("listen on {address}"), &error);
    let mut listeners = listeners.into_iter();
    let (_, address, first) =
        listeners.next().ok_or_else(|| Failure::new("there is nothing to listen on"))?;
    let mut bound = server.bind(first).await.map_err(|error| refused(address, error))?;
    for (_, address, listen) in listeners {
        bound = bound.and(listen).await.map_err(|error| refused(address, error))?;
    }
    Ok((names, bound))
}

/// Says where to call, for people and for scripts that wait for `ready`.
///
/// The sockets listen already: who connects before the first connection is accepted waits in their queue.
fn announce(bound: &[(Vec<&str>, BoundServer)]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    for (names, bound) in bound {
        for (name, address) in names.iter().zip(bound.addresses()) {
            writeln!(stdout, "listening {name} {address}")?;
        }
    }
    writeln!(stdout, "ready")?;
    stdout.flush()
}

fn protocol(name: &str) -> Result<Protocol, String> {
    let wanted = name.replace('-', "_");
    Protocol::ALL.into_iter().find(|protocol| protocol.as_str() == wanted).ok_or_else(|| {
        let known = Protocol::ALL.map(Protocol::as_str).join(", ");
        format!("there is no protocol `{name}`; there are {known}")
    })
}

/// How long calls that were accepted may still take when the server is told to stop.
const GRACE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_are_to_know_must_be_readable() {
        for right in ["h", "10.0.0.7", "fd00::7", "[fd00::7]", "h:80", "quic@h:80", "a_b.c:1"] {
            assert_eq!(advertised(right), Ok(right.to_owned()));
        }
        for wrong in ["", "not an address", "h:x", "h:0", "h:70000", "ftp@h:1", "tcp@h", ":1", "h :1"] {
            assert!(advertised(wrong).is_err(), "{wrong}");
        }
        assert_eq!(attributes("weight=5&group=a%20b&x").unwrap().value("group"), Some("a b"));
        for wrong in ["weight=abc", "weight=5&%zz", "a=%", "a=1;b=2", "=x"] {
            assert!(attributes(wrong).is_err(), "{wrong}");
        }
    }
}
