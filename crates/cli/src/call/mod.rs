//! `polyrpc call`: one call of any method, JSON in, JSON out.

mod description;
mod input;

mod multi_server;
mod stream;

mod hints;
pub(crate) mod protocol_probe;
mod report;
mod suggestion;

use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use polyrpc::client;
use polyrpc::{Client, Compression, Format, Metadata, Protocol, Push};

use self::hints::FailureFacts;
use self::input::Input;
use self::multi_server::MultiServerOptions;
use self::report::{Ending, ReceivedMessages, Report};
use crate::failure::Failure;
use crate::kcp::Kcp;
use crate::message::{self, readable};
use crate::reflection::grpc_url;
use crate::terminal;
use crate::tls::ClientTlsOptions;
use crate::url::{self, Url};

#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub(crate) struct Options {
    /// The server: baidu-std://, rpcx://, fb-rpc://, grpc://, grpc-web://, connect://, http://, rest-rpc:// or
    /// net-rpc:// with host:port, or with the path of a Unix socket as in rpcx:///run/echo.sock; with TLS grpcs://,
    /// https://, rpcx+tls:// and so on; in a registry rpcx+etcd://host:port/base/Service and so on, as for `discover`;
    /// with parameters as in 'rpcx://host:port?transport=ws'; the list is below
    url: String,
    /// The method: Service/Method or Service.Method, with or without the package, or a function's name
    target: String,
    /// The message as JSON; @FILE reads it from a file, @- or - from standard input; for a method that takes several
    /// messages, one after the other
    #[arg(value_name = "JSON", conflicts_with = "data")]
    argument: Option<String>,
    /// The same, as in curl and grpcurl
    #[arg(short, long, value_name = "JSON", allow_hyphen_values = true)]
    data: Option<String>,
    #[command(flatten)]
    headers: Headers,
    /// brpc's log id, a number that brpc logs (baidu_std; a header in HTTP and gRPC)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    log_id: Option<i64>,
    /// Compress the message
    #[arg(long, value_enum)]
    compress: Option<Compress>,
    /// Send this file as the attachment (baidu_std, fb_rpc)
    #[arg(long, value_name = "FILE")]
    attachment: Option<PathBuf>,
    /// Write the attachment of the reply to this file (baidu_std, fb_rpc)
    #[arg(long, value_name = "FILE", conflicts_with = "oneway")]
    save_attachment: Option<PathBuf>,
    /// Do not wait for a reply
    #[arg(long)]
    oneway: bool,
    /// Make only this call: do not query the server for message descriptions or, after a failure, for hints
    #[arg(long)]
    no_reflection: bool,
    /// Show the request, the outcome, the server, the time and the metadata on standard error
    #[arg(short, long)]
    verbose: bool,
    /// Print a failure, and the output of --verbose, as a line of JSON on standard error
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: CommonOptions,
    #[command(flatten, next_help_heading = "Message descriptions")]
    message: message::Options,
}

/// Options of every call, and of `bench`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CommonOptions {
    /// Credential to send
    #[arg(long, value_name = "TOKEN")]
    auth: Option<String>,
    /// Timeout of a call: seconds, or with a unit as in 500ms, 2s or 1m [default: 10s; `polyrpc call` waits for a streaming
    /// method without end]
    #[arg(long, value_name = "TIME", value_parser = terminal::parse_duration, allow_negative_numbers = true)]
    timeout: Option<Duration>,
    #[command(flatten)]
    several: MultiServerOptions,
    #[command(flatten)]
    trust: ClientTlsOptions,
    #[command(flatten)]
    kcp: Kcp,
}

/// Metadata of the call.
#[derive(Debug, Clone, Args)]
pub(crate) struct Headers {
    /// Metadata, a user field or a header, as 'key: value' or key=value; may be repeated
    #[arg(short = 'H', long = "header", value_name = "KEY: VALUE", value_parser = parse_header)]
    headers: Vec<(String, String)>,
}

impl Headers {
    /// All values of a key are sent; a protocol that has only one for a key fails the call.
    pub(crate) fn metadata(&self) -> Metadata {
        let mut metadata = Metadata::new();
        self.headers.iter().for_each(|(key, value)| metadata.append(key.clone(), value.clone()));
        metadata
    }

    fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(key, _)| key.eq_ignore_ascii_case(name))
    }
}

impl CommonOptions {
    /// The same for an unknown server: without the credential.
    fn without_credentials(&self) -> Self {
        Self { auth: None, trust: ClientTlsOptions::default(), ..self.clone() }
    }

    /// Credential and timeout for workers of `bench`, which get no other option.
    ///
    /// # Errors
    ///
    /// Another option that is given.
    pub(crate) fn for_workers(&self) -> Result<(Option<String>, Duration), &'static str> {
        let Self { auth, timeout, several, trust, kcp } = self;
        match several.given_option().or_else(|| trust.given_option()).or_else(|| kcp.given_option()) {
            Some(option) => Err(option),
            None => Ok((auth.clone(), timeout.unwrap_or(DEFAULT_TIMEOUT))),
        }
    }

    /// The timeout of calls, if one is given.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Rejects a header in which the protocol sends the credential, too: servers differ in which of both they read.
    pub(crate) fn check_headers(&self, headers: &Headers, protocol: Protocol) -> Result<(), Failure> {
        let name = match protocol {
            Protocol::Http | Protocol::Grpc => "authorization",
            Protocol::Rpcx => "__AUTH",
            _ => return Ok(()),
        };
        match self.auth.is_some() && headers.has(name) {
            true => Err(Failure::new(format!("--auth and -H both set `{name}`; give one of them"))),
            false => Ok(()),
        }
    }

    /// Rejects options that have no effect on calls by this URL.
    fn check_url(&self, url: &str) -> Result<(), Failure> {
        let Some(url) = Url::parse(url).filter(|url| url.registry.is_none()) else { return Ok(()) };
        if let Some(option) = self.several.choice_option() {
            return Err(Failure::new(format!(
                "{option} chooses among several servers, and this URL names one"
            ))
            .with_hint(format!(
                "several are named by {}+list://host:port,host:port or in a registry",
                url.protocol
            )));
        }
        if url.socket().is_none() {
            check_server(&url)?;
        }
        if let Some(option) = self.kcp.given_option().filter(|_| url.parameter("transport") != Some("kcp")) {
            return Err(Failure::new(format!(
                "{option} is for calls over KCP, and this URL does not name KCP"
            ))
            .with_hint(
                "add transport=kcp to the parameters of the URL, as in 'rpcx://host:port?transport=kcp'",
            ));
        }
        Ok(())
    }

    /// Metadata of queries for the server's description.
    pub(crate) fn query_options(&self, headers: &Headers) -> client::CallOptions {
        client::CallOptions {
            metadata: headers.metadata(),
            timeout: Some(self.timeout.unwrap_or(DEFAULT_TIMEOUT)),
            ..client::CallOptions::default()
        }
    }

    pub(crate) fn client(&self, url: &str) -> Result<client::Builder, Failure> {
        self.check_url(url)?;
        let mut builder = self.several.apply(Client::builder(url));
        if Url::parse(url).is_some_and(|url| url.registry.is_some()) {
            // A misspelled registry address fails at once: a command need not wait for the registry to recover.
            builder = builder.fail_with_registry();
        }
        let mut builder = builder.timeout(self.timeout.unwrap_or(DEFAULT_TIMEOUT)).kcp(self.kcp.config()?);
        if let Some(tls) = self.trust.client() {
            builder = builder.tls(tls);
        }
        Ok(match &self.auth {
            Some(token) => builder.credential(token.clone()),
            None => builder,
        })
    }
}

/// Rejects a server without a host, with a port that does not exist, or that is several.
fn check_server(url: &Url) -> Result<(), Failure> {
    let server = url.server();
    if server.contains(',') {
        let hint = format!("several servers are {}+list://{server}", url.protocol);
        return Err(Failure::new(format!("`{server}` is not one server")).with_hint(hint));
    }
    let Some((host, port)) = server.rsplit_once(':') else { return Ok(()) };
    if host.is_empty() {
        let hint = format!("this machine is {}://127.0.0.1:{port}", url.protocol);
        return Err(Failure::new(format!("`{server}` names no host")).with_hint(hint));
    }
    match port.parse::<u64>() {
        Ok(number) if number > u64::from(u16::MAX) => {
            Err(Failure::new(format!("there is no port {number}: a port is at most 65535")))
        }
        _ => Ok(()),
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Compress {
    Gzip,
    Zlib,
    Snappy,
    Lz4,
    Zstd,
}

impl From<Compress> for Compression {
    fn from(compress: Compress) -> Self {
        match compress {
            Compress::Gzip => Self::Gzip,
            Compress::Zlib => Self::Zlib,
            Compress::Snappy => Self::Snappy,
            Compress::Lz4 => Self::Lz4,
            Compress::Zstd => Self::Zstd,
        }
    }
}

pub(crate) fn run(options: Options) -> Result<ExitCode, Failure> {
    let ended = make(&options);
    Ok(ended.map_or_else(|failure| terminal::report(&failure, options.json), |()| ExitCode::SUCCESS))
}

fn make(options: &Options) -> Result<(), Failure> {
    let report = Report::new(options.verbose, options.json);
    let client = options.client(&report)?;
    terminal::block_on(call(&client, options, report))?
}

async fn call(client: &Client, options: &Options, mut report: Report) -> Result<(), Failure> {
    let description = description::describe(client, options).await?;
    let translator = &description.translator;
    report.forget_answers();
    if translator.has_side_effects() && options.is_get() {
        return Err(Failure::new(format!("{} is not declared free of side effects", options.target))
            .with_hint("leave out http_method=get"));
    }
    if !translator.stream_type().is_unary() {
        return stream::call(client, options, &description, report).await;
    }
    let request = translator.encode_request(&read_argument(options.argument())?).map_err(|failure| {
        let has_several = failure.text().contains("trailing characters");
        failure.or_hint(has_several.then(|| format!("{} takes one message", options.target)))
    })?;
    let (call_options, size) = (options.call_options(client)?, request.bytes.len());
    let target = translator.target(&options.target);
    report.on_start(target, Some(&request), &call_options.metadata);
    let response = match client.call_raw(target, request, call_options).await {
        Ok(response) => response,
        Err(error) if report.is_unsent(error.status()) => {
            let hint = hints::schema_hint(error.status(), client, Some(translator));
            return Err(Failure::from(error).or_hint(hint));
        }
        Err(error) => {
            report.on_failure(error.status());
            let has_answered = report.has_answered() || description.is_by_call;
            let known = FailureFacts { translator: Some(translator), has_answered, request: size };
            return Err(hints::call_failure(error.status(), client, options, known).await);
        }
    };
    if options.oneway {
        report.on_oneway_sent();
        return Ok(());
    }
    let client::Response { message, metadata, trailers, attachment, .. } = &response;
    report.on_success(&Ending {
        received: ReceivedMessages {
            messages: 1,
            bytes: message.bytes.len(),
            format: message.format.as_str(),
        },
        headers: metadata,
        trailers,
        attachment,
    });
    if let Some(path) = &options.save_attachment {
        fs::write(path, attachment)
            .map_err(|error| Failure::system(format!("write {}", path.display()), &error))?;
    }
    if translator.format() == Format::Raw && !io::stdout().is_terminal() {
        // For programs: the bytes as they came, as curl writes them.
        terminal::write(&message.bytes)?;
        return Ok(());
    }
    terminal::print(&translator.decode_reply(message)?)?;
    let undeclared = translator.undeclared_fields(message);
    if !undeclared.is_empty() && !options.json {
        terminal::print_error(format_args!(
            "hint: the reply has fields that the description lacks, which are not shown: {}",
            undeclared.join(", ")
        ));
    }
    if !translator.can_decode(message) && !options.json {
        terminal::print_error(format_args!("hint: {}", description.undecodable_hint()));
    }
    Ok(())
}

/// The message that the command line contains or refers to.
pub(crate) fn read_argument(argument: Option<&str>) -> Result<Vec<u8>, Failure> {
    Input::parse(argument)?.read_all()
}

fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure::system(format!("read {}", path.display()), &error))
}

impl Options {
    fn client(&self, report: &Report) -> Result<Client, Failure> {
        let mut builder = self.common.client(&self.url)?;
        if self.verbose {
            builder = builder.on_push(|push| print_push(&push));
        }
        let client = builder.hook(report.hook()).build()?;
        self.common.check_headers(&self.headers, client.protocol())?;
        Ok(client)
    }

    /// Whether the call is an HTTP GET (Connect).
    fn is_get(&self) -> bool {
        Url::parse(&self.url).is_some_and(|url| url.parameter("http_method") == Some("get"))
    }

    /// A gRPC client of the same server.
    fn grpc_client(&self) -> Option<Client> {
        self.common.client(&grpc_url(&self.url)?).ok()?.build().ok()
    }

    /// Metadata of queries for the server's description.
    fn query_options(&self) -> client::CallOptions {
        self.common.query_options(&self.headers)
    }

    /// The message as the command line has it.
    fn argument(&self) -> Option<&str> {
        self.data.as_deref().or(self.argument.as_deref())
    }

    fn call_options(&self, client: &Client) -> Result<client::CallOptions, Failure> {
        let protocol = client.protocol();
        if self.save_attachment.is_some() && !protocol.descriptor().capabilities.attachments {
            let name = protocol.as_str();
            return Err(Failure::new(format!(
                "{name} has no attachments: --save-attachment would write an empty file"
            )));
        }
        let attachment = match &self.attachment {
            Some(path) => read_file(path)?.into(),
            None => Bytes::new(),
        };
        let mut metadata = self.headers.metadata();
        if let Some(id) = self.log_id {
            if !matches!(protocol, Protocol::BaiduStd | Protocol::Http | Protocol::Grpc) {
                return Err(Failure::new(format!("{} has no log id", protocol.as_str()))
                    .with_hint("a field of your own is sent with -H 'key: value'"));
            }
            metadata.insert("log-id", id.to_string());
        }
        Ok(client::CallOptions {
            metadata,
            attachment,
            compression: self.compress.map(Compression::from),
            oneway: self.oneway,
            ..client::CallOptions::default()
        })
    }
}

fn print_push(push: &Push) {
    terminal::print_error(format_args!(
        "< pushed {}/{}: {}",
        push.service,
        push.method,
        readable(&push.body)
    ));
    for (key, value) in push.metadata.iter() {
        terminal::print_error(format_args!("<   {key}: {}", readable(value)));
    }
}

/// `key: value`, as in curl and grpcurl, or `key=value`: the first separator wins.
fn parse_header(text: &str) -> Result<(String, String), String> {
    match text.find([':', '=']).map(|at| text.split_at(at)) {
        Some((key, value)) if !key.trim().is_empty() => {
            let value = match value.strip_prefix(':') {
                Some(value) => value.trim(),
                None => value.get(1..).unwrap_or_default(),
            };
            Ok((key.trim().to_owned(), value.to_owned()))
        }
        _ => Err("expected 'KEY: VALUE' or KEY=VALUE".to_owned()),
    }
}

/// Default timeout of a call.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Text below the options.
fn after_help() -> String {
    format!("{EXAMPLES}\n\n{}\n\n{EXIT_CODES}", url::parameters_help())
}

const EXAMPLES: &str = r#"Examples:
  polyrpc call rpcx://127.0.0.1:8002 Arith/Mul '{"A":7,"B":8}'
  polyrpc call baidu-std://127.0.0.1:8002 example.EchoService/Echo '{"message":"hi"}' --compress gzip
  polyrpc call 'http://127.0.0.1:8002?dialect=json-rpc' add '[1,2]'
  polyrpc call 'rest-rpc://127.0.0.1:9000?version=0.20' add '[1,2]'
  polyrpc call rest-rpc://127.0.0.1:9004 get_person '[[1,"tom",20]]' --types 'struct<int,string,int>'
  polyrpc call 'net-rpc://127.0.0.1:1234?transport=http-connect' Arith.Multiply -d '{"A":7,"B":8}'
  polyrpc call grpc://127.0.0.1:50051 pkg.Service/Sum '{"n":1} {"n":2}'
  polyrpc call grpcs://echo.example:443 pkg.Service.Sum -d @request.json -H 'tenant: a' --cacert ca.pem -v
  polyrpc call rpcx+etcd://127.0.0.1:2379/rpcx_test/Arith Arith/Mul '{"A":7,"B":8}'
  polyrpc call rpcx://127.0.0.1:8972 pkg.Service/Method @request.json --proto service.proto

Messages are described by the files that --proto, --descriptor-set or --schema name, or else by the server's gRPC
reflection, which is also used, on the same port, for baidu_std and for --format protobuf. Names in the JSON that a
described message does not declare are errors; what no description covers is sent as it is."#;

const EXIT_CODES: &str = "\
Exit codes:
  0       the call was answered
  1       no call was made, or the reply cannot be read
  2       an option or its value is wrong
  64 + n  the call failed with status n of gRPC: 65 cancelled, 66 unknown, 67 invalid argument, 68 deadline exceeded,
          69 not found, 70 already exists, 71 permission denied, 72 resource exhausted, 73 failed precondition,
          74 aborted, 75 out of range, 76 unimplemented, 77 internal, 78 unavailable, 79 data loss, 80 unauthenticated";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_of_a_repeated_header_is_sent() {
        let pair = |value: &str| ("x".to_owned(), value.to_owned());
        let metadata = Headers { headers: vec![pair("a"), pair("b")] }.metadata();
        assert_eq!(metadata.all("x").map(|value| &value[..]).collect::<Vec<_>>(), [b"a", b"b"]);
    }

    #[test]
    fn header_is_parsed_with_a_colon_or_an_equals_sign() {
        for (text, key, value) in [
            ("k: v", "k", "v"),
            ("authorization: Basic abc=", "authorization", "Basic abc="),
            ("k=a: b", "k", "a: b"),
            ("k=", "k", ""),
            ("k:", "k", ""),
            ("k= v", "k", " v"),
        ] {
            assert_eq!(parse_header(text), Ok((key.to_owned(), value.to_owned())), "{text}");
        }
        for wrong in ["", "k", ": v", "=v", " : v"] {
            assert!(parse_header(wrong).is_err(), "{wrong}");
        }
    }
}
