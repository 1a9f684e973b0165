//! `polyrpc serve`: serves the demo's services for any client.

use std::io::{self, Write};
use std::net::Ipv6Addr;
use std::num::NonZero;
use std::process::ExitCode;
use std::time::Duration;
use std::{panic, thread};

use clap::Args;
use polyrpc::discovery::{Attributes, Instance, redacted};
use polyrpc::layers::Metrics;
use polyrpc::server::{BoundServer, Cors, Listen, Registration, RegistrationEvent, ServerHandle};
use polyrpc::{Address, Cores, Protocol, Server, kcp, signal, tls};
use polyrpc_console::{AdminHandle, Console};
use polyrpc_describe::{OpenApi, OpenApiPage, Pattern};
use polyrpc_mcp::Mcp;
use polyrpc_record::layer::RecorderStats;
use polyrpc_record::redact::Redaction;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::admin::AdminOptions;
use crate::failure::Failure;
use crate::kcp::Kcp;
use crate::limits::{LimitOptions, Span};
use crate::recording::RecordOptions;
use crate::tls::ServerTlsOptions;
use crate::{services, terminal, url};

/// Options of `polyrpc serve`.
#[derive(Debug, Args)]
#[command(after_help = SERVED)]
pub struct Options {
    /// Address to listen on: host:port (port 0 selects a free one), unix:/path, or over UDP kcp://host:port and (with
    /// --tls-cert) quic://host:port; may be repeated
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8002")]
    listen: Vec<String>,
    /// The protocols to accept, for example `rpcx,http` [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = url::parse_protocol)]
    protocols: Vec<Protocol>,
    /// Allow calls from web pages of this origin, for example `https://app.example`, or `*` for any; may be repeated
    #[arg(long, value_name = "ORIGIN", value_parser = parse_origin)]
    cors: Vec<String>,
    /// Count calls, and serve the metrics to Prometheus as GET /metrics: on this address, used for nothing else,
    /// and on every listener that accepts HTTP
    #[arg(long, value_name = "ADDR")]
    metrics: Option<String>,
    /// Offer the methods that match this pattern as tools of the Model Context Protocol, at /mcp of every listener that
    /// accepts HTTP: Service/Method, a service or a function, in which * stands for any text; may be repeated
    #[arg(long, value_name = "PATTERN")]
    mcp: Vec<Pattern>,
    /// Describe the methods that match this pattern in OpenAPI, at /openapi.json; may be repeated
    #[arg(long, value_name = "PATTERN")]
    openapi: Vec<Pattern>,
    /// Run on this many threads with a runtime each, instead of one runtime on all cores
    #[arg(long, value_name = "N", value_parser = parse_cores, allow_negative_numbers = true)]
    cores: Option<NonZero<usize>>,
    /// On shutdown, keep accepting calls for this long while reporting that the server is not ready
    #[arg(long, value_name = "TIME")]
    lame_duck: Option<Span>,
    /// On shutdown, wait this long for accepted calls before cancelling them
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = terminal::parse_duration)]
    grace: Duration,
    #[command(flatten)]
    registering: RegistryOptions,
    #[command(flatten)]
    proof: ServerTlsOptions,
    #[command(flatten)]
    kcp: Kcp,
    #[command(flatten)]
    pub(crate) admin: AdminOptions,
    // Last, since their headings apply to all following options.
    #[command(flatten)]
    recording: RecordOptions,
    #[command(flatten)]
    limits: LimitOptions,
}

/// Options of service registration.
#[derive(Debug, Args)]
pub(crate) struct RegistryOptions {
    /// Register the services in this registry, for example etcd://127.0.0.1:2379/base; may be repeated
    #[arg(long, value_name = "URL")]
    register: Vec<String>,
    /// Address for clients: host, host:port or network@host:port [default: the first listener]
    #[arg(long, value_name = "ADDR", requires = "register", value_parser = parse_advertised_address)]
    advertise: Option<String>,
    /// Attributes for clients, as a query string: weight=5&group=a
    #[arg(long, value_name = "QUERY", requires = "register", default_value = "", value_parser = parse_attributes)]
    attributes: Attributes,
}

impl RegistryOptions {
    /// Makes the server register itself once it runs, and reports the events.
    pub(crate) fn add_to(&self, mut server: Server) -> Result<Server, Failure> {
        for url in &self.register {
            let redacted = redacted(url);
            let mut registration = Registration::new()
                .attributes(self.attributes.clone())
                .publish_rates()
                .on_event(move |event| report_registration(&redacted, event));
            if let Some(address) = &self.advertise {
                registration = registration.advertise(address);
            }
            server = server.register_in(polyrpc_discovery::registrar(url)?, registration);
        }
        Ok(server)
    }
}

/// Parses an address to advertise.
fn parse_advertised_address(text: &str) -> Result<String, String> {
    let is_whole = text.parse::<Instance>().is_ok();
    let is_host = !text.contains('@') && format!("{text}:1").parse::<Instance>().is_ok();
    match is_whole || is_host || text.parse::<Ipv6Addr>().is_ok() {
        true => Ok(text.to_owned()),
        false => Err("expected host, host:port or network@host:port".to_owned()),
    }
}

/// Parses attributes strictly. Attributes from registries are parsed leniently.
fn parse_attributes(text: &str) -> Result<Attributes, String> {
    let read = |text: &str| match text.parse::<Attributes>() {
        Ok(attributes) => attributes,
        Err(never) => match never {},
    };
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        if pair.starts_with('=') || read(pair).iter().next().is_none() {
            return Err(format!(
                "`{pair}` is not name=value: two hexadecimal digits must follow %, and ; is written %3B"
            ));
        }
    }
    let attributes = read(text);
    match attributes.value("weight") {
        Some(weight) if weight.parse::<u32>().is_err() => {
            Err(format!("the weight `{weight}` is not a number"))
        }
        _ => Ok(attributes),
    }
}

fn report_registration(url: &str, event: RegistrationEvent<'_>) {
    match event {
        RegistrationEvent::Registered(entry) => {
            terminal::print_error(format_args!("registered {entry} in {url}"));
        }
        // The log reports it, once.
        RegistrationEvent::Failed(..) => {}
        RegistrationEvent::Deregistered(entry) => {
            terminal::print_error(format_args!("deregistered {entry} from {url}"));
        }
        _ => {}
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode, Failure> {
    run_servers(options, |options| Ok(vec![options.server(services::server(), |listen| listen)?]))
}

/// Runs the servers that `servers` sets up until SIGTERM or SIGINT. The function is called within the runtime of the
/// servers, and may start tasks.
///
/// # Errors
///
/// If a server cannot be set up, or cannot listen.
pub fn run_servers(
    options: &Options,
    servers: impl FnOnce(&Options) -> Result<Vec<ServerSetup>, Failure>,
) -> Result<ExitCode, Failure> {
    log_panics_in_one_line();
    let runtime =
        build_runtime(options.cores.is_some()).map_err(|error| Failure::system("start a runtime", &error))?;
    let recorder = options.recording.open_recorder(&services::DESCRIPTOR_SETS)?;
    let recorded = |setup: ServerSetup| match &recorder {
        Some((recorder, _)) => ServerSetup { server: setup.server.layer(recorder.clone()), ..setup },
        None => setup,
    };
    runtime.block_on(async {
        let servers = servers(options)?.into_iter().map(recorded).collect();
        serve(options, servers).await
    })?;
    if let Some((recorder, redaction)) = recorder {
        recorder.close();
        report_recording(recorder.stats(), &redaction);
    }
    Ok(ExitCode::SUCCESS)
}

fn report_recording(stats: RecorderStats, redaction: &Redaction) {
    let RecorderStats { recorded, queue_full, method_limit, not_written, .. } = stats;
    let lost = queue_full + method_limit + not_written;
    let calls = terminal::pluralize(recorded, "call");
    terminal::print_error(format_args!("recorded {calls}; {lost} could not be recorded"));
    // A misspelled path leaves a secret in the recording.
    for path in redaction.unmatched().filter(|_| recorded > 0) {
        terminal::print_error(format_args!(
            "warning: no recorded message has a field `{path}`: nothing was removed"
        ));
    }
}

/// Sets a panic hook that prints no backtrace. The library logs a handler's panic together with the method, so the hook
/// adds the location in the code at DEBUG only. A panic of the main thread ends the process and is printed as one line.
/// The standard hook keeps the debug information of the whole program in memory once it has printed a backtrace, and
/// ends the process if standard error is closed.
fn log_panics_in_one_line() {
    let main = thread::current().id();
    panic::set_hook(Box::new(move |panic| match thread::current().id() == main {
        true => terminal::print_error(panic),
        false => tracing::debug!("{panic}"),
    }));
}

/// A server with its own threads uses this runtime only to accept connections.
fn build_runtime(cores: bool) -> io::Result<Runtime> {
    let mut builder = if cores { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.enable_all().build()
}

async fn serve(options: &Options, servers: Vec<ServerSetup>) -> Result<(), Failure> {
    options.check(&servers)?;
    let stop = signal::shutdown();
    let (console, mut bound) = (options.admin.console(), Vec::new());
    let documents = Documents::new(options)?;
    for server in documents.add_to(options.add_metrics(servers, console.as_ref())) {
        bound.push(server.bind().await?);
    }
    let admin = match &console {
        Some(console) => options.admin.start(console, options.proof.server()?)?,
        None => None,
    };
    let running: Vec<_> = bound.into_iter().map(|(names, bound)| (names, bound.start())).collect();
    documents.start(running.first().map(|(_, server)| server))?;
    if let Some(console) = &console {
        running.iter().for_each(|(_, server)| console.observe(server));
    }
    announce(&running, admin.as_ref().map(AdminHandle::address))
        .map_err(|error| Failure::system("write to standard output", &error))?;
    stop.await;
    shut_down(running.into_iter().map(|(_, server)| server).collect(), options.grace).await;
    Ok(())
}

/// Descriptions of the methods of the first server for programs: MCP tools and OpenAPI.
struct Documents {
    tools: Option<Mcp>,
    page: Option<OpenApiPage>,
}

impl Documents {
    fn new(options: &Options) -> Result<Self, Failure> {
        let tools = (!options.mcp.is_empty())
            .then(|| Mcp::builder(options.mcp.iter().map(ToString::to_string)).build())
            .transpose()
            .map_err(|error| Failure::new(error.to_string()))?;
        let page = || OpenApiPage::new(OpenApi::new("polyrpc serve"), options.openapi.clone());
        Ok(Self { tools, page: (!options.openapi.is_empty()).then(page) })
    }

    fn add_to(&self, mut servers: Vec<ServerSetup>) -> Vec<ServerSetup> {
        if let Some(first) = servers.first_mut() {
            let mut server = std::mem::take(&mut first.server);
            if let Some(tools) = &self.tools {
                server = tools.serve(server);
            }
            if let Some(page) = &self.page {
                server = page.serve(server);
            }
            first.server = server;
        }
        servers
    }

    fn start(&self, server: Option<&ServerHandle>) -> Result<(), Failure> {
        let Some(server) = server else { return Ok(()) };
        if let Some(tools) = &self.tools {
            tools.start(server).map_err(|error| Failure::new(format!("--mcp: {error}")))?;
        }
        if let Some(page) = &self.page {
            page.start(server).map_err(|error| Failure::new(format!("--openapi: {error}")))?;
        }
        Ok(())
    }
}

/// Shuts servers down; a second signal ends the shutdown at once.
pub(crate) async fn shut_down(running: Vec<ServerHandle>, grace: Duration) {
    let second_signal = signal::shutdown();
    let mut shutting: JoinSet<_> = running.into_iter().map(|server| server.shutdown(grace)).collect();
    tokio::select! {
        () = second_signal => {}
        () = async { while shutting.join_next().await.is_some() {} } => {}
    }
}

impl Options {
    /// Sets up a server and its listeners from these options. `adapt` changes each listener.
    ///
    /// # Errors
    ///
    /// If a certificate, a cipher or a registry is invalid, or if the limits contradict each other.
    pub fn server(&self, server: Server, adapt: fn(Listen) -> Listen) -> Result<ServerSetup, Failure> {
        let mut server = self.configure(server)?;
        if let Some(cores) = self.cores {
            let cores =
                Cores::start(cores.get()).map_err(|error| Failure::system("start threads", &error))?;
            server = server.executor(cores);
        }
        let template = ListenTemplate {
            protocols: self.protocols.clone(),
            tls: self.proof.server()?,
            kcp: self.kcp.config()?,
            adapt,
        };
        let mut setup =
            ServerSetup { server: self.registering.add_to(server)?, template, listeners: Vec::new() };
        for address in &self.listen {
            setup = setup.listen("main", address, |listen| listen)?;
        }
        Ok(setup)
    }

    /// Sets up a further server, with the limits of these options and the listener settings of `setup`.
    ///
    /// # Errors
    ///
    /// If the limits contradict each other.
    pub fn further_server(&self, server: Server, setup: &ServerSetup) -> Result<ServerSetup, Failure> {
        let (server, template) = (self.configure(server)?, setup.template.clone());
        Ok(ServerSetup { server, template, listeners: Vec::new() })
    }

    /// Rejects options that no listener could follow.
    fn check(&self, servers: &[ServerSetup]) -> Result<(), Failure> {
        let mut addresses =
            servers.iter().flat_map(|setup| &setup.listeners).map(|listener| &*listener.address);
        if let Some(option) =
            self.kcp.given_option().filter(|_| !addresses.any(|address| has_scheme(address, "kcp")))
        {
            return Err(Failure::new(format!("{option} is for KCP, and no listener speaks it"))
                .with_hint("add one with --listen kcp://host:port"));
        }
        if self.protocols.is_empty() || self.protocols.contains(&Protocol::Http) {
            return Ok(());
        }
        let documents = [
            (!self.mcp.is_empty(), "--mcp"),
            (!self.openapi.is_empty(), "--openapi"),
            (self.admin.has_pages(), "--pages"),
            (!self.cors.is_empty() && !self.protocols.contains(&Protocol::Grpc), "--cors"),
        ];
        match documents.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, option)) => {
                Err(Failure::new(format!("{option} needs HTTP, and no listener accepts it"))
                    .with_hint("add http to --protocols"))
            }
            None => Ok(()),
        }
    }

    fn configure(&self, server: Server) -> Result<Server, Failure> {
        let lame_duck = self.lame_duck.map_or(Duration::ZERO, |span| span.0);
        Ok(server.limits(self.limits.limits()?).lame_duck(lame_duck).cors(self.cors()))
    }

    fn cors(&self) -> Cors {
        match self.cors.as_slice() {
            [] => Cors::None,
            origins if origins.iter().any(|origin| origin == "*") => Cors::Any,
            origins => Cors::Origins(origins.to_vec()),
        }
    }

    /// Makes the servers count their calls if the counts are shown, and adds a server for the metrics only.
    fn add_metrics(&self, servers: Vec<ServerSetup>, console: Option<&Console>) -> Vec<ServerSetup> {
        if self.metrics.is_none() && console.is_none() {
            return servers;
        }
        let metrics = Metrics::new();
        let exports = self.metrics.is_some();
        let counted = |server: Server| match console {
            Some(console) => self.admin.add_to(server, console, &metrics, exports),
            None => server.metrics(&metrics),
        };
        let counted = |setup: ServerSetup| ServerSetup { server: counted(setup.server), ..setup };
        let mut servers: Vec<_> = servers.into_iter().map(counted).collect();
        let Some(address) = &self.metrics else { return servers };
        servers.push(ServerSetup {
            server: Server::new().metrics(&metrics),
            template: ListenTemplate::default(),
            listeners: vec![Listener {
                name: "metrics",
                address: address.clone(),
                listen: Listen::on(address).protocols([Protocol::Http]),
            }],
        });
        servers
    }
}

/// A server with its listeners.
#[derive(Debug)]
pub struct ServerSetup {
    server: Server,
    template: ListenTemplate,
    listeners: Vec<Listener>,
}

/// Settings of all listeners of a server.
#[derive(Debug, Clone)]
struct ListenTemplate {
    protocols: Vec<Protocol>,
    tls: Option<tls::Server>,
    kcp: kcp::Config,
    adapt: fn(Listen) -> Listen,
}

impl Default for ListenTemplate {
    fn default() -> Self {
        Self { protocols: Vec::new(), tls: None, kcp: kcp::Config::default(), adapt: |listen| listen }
    }
}

#[derive(Debug)]
struct Listener {
    /// Name for [`announce`].
    name: &'static str,
    address: String,
    listen: Listen,
}

impl ServerSetup {
    /// Adds a listener, announced by this name.
    ///
    /// # Errors
    ///
    /// If it needs a certificate and none is set.
    pub fn listen(
        mut self,
        name: &'static str,
        address: &str,
        adapt: impl FnOnce(Listen) -> Listen,
    ) -> Result<Self, Failure> {
        let authority = address.split_once("://").map_or(address, |(_, authority)| authority);
        if let Some(port) = authority.strip_prefix(':') {
            let hint = format!(
                "0.0.0.0:{port} is every address of this machine, 127.0.0.1:{port} is for its own programs"
            );
            return Err(Failure::new(format!("cannot listen on {address}: it names no host")).with_hint(hint));
        }
        let ListenTemplate { protocols, tls, kcp, adapt: adapt_all } = &self.template;
        let mut listen = adapt_all(Listen::on(address));
        if !protocols.is_empty() {
            listen = listen.protocols(protocols.iter().copied());
        }
        match tls {
            Some(tls) => listen = listen.tls(tls.clone()),
            None if has_scheme(address, "quic") => {
                let failure = Failure::new(format!("cannot listen on {address}: QUIC needs a certificate"));
                return Err(failure.with_hint("set --tls-cert and --tls-key"));
            }
            None => {}
        }
        if has_scheme(address, "kcp") {
            listen = listen.kcp(kcp.clone());
        }
        self.listeners.push(Listener { name, address: address.to_owned(), listen: adapt(listen) });
        Ok(self)
    }

    /// Binds the listeners. Also returns their names.
    async fn bind(self) -> Result<(Vec<&'static str>, BoundServer), Failure> {
        let names = self.listeners.iter().map(|listener| listener.name).collect();
        let refused = |address, error| Failure::system(format!("listen on {address}"), &error);
        let mut listeners = self.listeners.into_iter();
        let Listener { address, listen, .. } =
            listeners.next().ok_or_else(|| Failure::new("there is nothing to listen on"))?;
        let mut bound = self.server.bind(listen).await.map_err(|error| refused(address, error))?;
        for Listener { address, listen, .. } in listeners {
            bound = bound.and(listen).await.map_err(|error| refused(address, error))?;
        }
        Ok((names, bound))
    }
}

/// Whether an address, which may be invalid otherwise, has this scheme.
fn has_scheme(address: &str, scheme: &str) -> bool {
    address.split_once("://").is_some_and(|(found, _)| found.eq_ignore_ascii_case(scheme))
}

/// Prints the addresses, for people and for scripts that wait for `ready`.
///
/// The servers must be running and observed: the first request may be one for their pages.
fn announce(running: &[(Vec<&str>, ServerHandle)], admin: Option<&Address>) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    for (names, server) in running {
        for (name, address) in names.iter().zip(server.addresses()) {
            writeln!(stdout, "listening {name} {address}")?;
        }
    }
    if let Some(address) = admin {
        writeln!(stdout, "listening admin {address}")?;
    }
    writeln!(stdout, "ready")?;
    stdout.flush()
}

fn parse_cores(text: &str) -> Result<NonZero<usize>, String> {
    text.parse().map_err(|_| "expected a number above 0".to_owned())
}

/// An origin as browsers write it, or `*`.
fn parse_origin(text: &str) -> Result<String, String> {
    let authority = text.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https"));
    let is_origin =
        authority.is_some_and(|(_, host)| !host.is_empty() && !host.contains(['/', '?', '#', '@']));
    match text == "*" || is_origin {
        true => Ok(text.to_ascii_lowercase()),
        false => Err("expected an origin without a path, for example `https://app.example`, or *".to_owned()),
    }
}

const SERVED: &str = "\
Services, each over every protocol:
  example.EchoService     Echo returns the request and its attachment, and each message of a brpc stream
  Arith, PBArith          Mul, Add, Div; Error fails and Panic panics (rpcx's example, with 64 and 32 bits)
  helloworld.Greeter      SayHello (gRPC's example)
  pb.Hello                Say (rpcx's benchmark)
  test.BenchmarkService   Test, in FlatBuffers
  echo, add               functions of a text and of two numbers
  grpc.health.v1.Health, and the reflection of gRPC (grpc.reflection.v1, v1alpha) and of rpcx

Examples:
  polyrpc serve
  polyrpc serve --listen 0.0.0.0:8002 --tls-cert server.pem --tls-key server.key
  polyrpc serve --metrics 127.0.0.1:9090 --cors https://app.example --grace 30
  polyrpc serve --record calls.rec --record-drop user.password
  polyrpc serve --mcp 'example.*' --mcp add --openapi '*'
  polyrpc serve --register etcd://127.0.0.1:2379/rpcx_test

Prints `listening NAME ADDRESS` for each listener, then `ready`.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_advertised_address_or_attributes_are_rejected() {
        for right in ["h", "10.0.0.7", "fd00::7", "[fd00::7]", "h:80", "quic@h:80", "a_b.c:1"] {
            assert_eq!(parse_advertised_address(right), Ok(right.to_owned()));
        }
        for wrong in ["", "not an address", "h:x", "h:0", "h:70000", "ftp@h:1", "tcp@h", ":1", "h :1"] {
            assert!(parse_advertised_address(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_attributes("weight=5&group=a%20b&x").unwrap().value("group"), Some("a b"));
        for wrong in ["weight=abc", "weight=5&%zz", "a=%", "a=1;b=2", "=x"] {
            assert!(parse_attributes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn schemes_are_recognised_as_listeners_read_them() {
        for address in ["kcp://127.0.0.1:0", "KCP://127.0.0.1:0"] {
            assert!(has_scheme(address, "kcp"), "{address}");
        }
        for address in ["127.0.0.1:0", "quic://127.0.0.1:0", "unix:/kcp://h:1"] {
            assert!(!has_scheme(address, "kcp"), "{address}");
        }
    }

    #[test]
    fn origin_with_a_path_is_rejected() {
        assert_eq!(parse_origin("*"), Ok("*".to_owned()));
        assert_eq!(parse_origin("https://App.example:8443"), Ok("https://app.example:8443".to_owned()));
        for wrong in
            ["", "app.example", "https://", "https://app.example/", "ftp://app.example", "https://u@h"]
        {
            assert!(parse_origin(wrong).is_err(), "{wrong}");
        }
    }
}
