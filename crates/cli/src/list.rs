//! `polyrpc list`: the services of a server, by reflection or by `.proto` files.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use polyrpc::client::CallOptions;
use polyrpc::{Client, Code, Error, Protocol, Status};
use polyrpc_transform::closest;
use protox::prost::Message;
use protox::prost_reflect::prost_types::{FileDescriptorProto, FileDescriptorSet};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::call::{CommonOptions, Headers, protocol_probe};
use crate::declarations;
use crate::failure::Failure;
use crate::message::{Files, SchemaSource, service_hint};
use crate::reflection::rpcx::Program;
use crate::reflection::{Reflection, Trace, grpc_url};
use crate::terminal;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// The server, as for `call`. A gRPC server is queried by gRPC reflection, an rpcx server by rpcx's, any other by
    /// gRPC reflection on the same port
    url: String,
    /// A service, a method, a message or an enum to describe, by its full name [default: list all services]
    name: Option<String>,
    /// Print JSON; failures and the output of --verbose as JSON on standard error
    #[arg(long)]
    json: bool,
    /// Show the queries to the server and its answers on standard error
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    headers: Headers,
    #[command(flatten)]
    common: CommonOptions,
    #[command(flatten, next_help_heading = "Message descriptions")]
    files: Files,
}

pub(crate) fn run(options: Options) -> Result<ExitCode, Failure> {
    let printed = list(&options).and_then(|text| terminal::print(&terminal::escape(&text)));
    Ok(printed.map_or_else(|failure| terminal::report(&failure, options.json), |_| ExitCode::SUCCESS))
}

fn list(options: &Options) -> Result<String, Failure> {
    if options.files.has_schema() {
        return Err(Failure::new("`list` reads .proto files, and no .fbs")
            .with_hint("`polyrpc describe FILE.fbs --json-schema` describes the methods of a .fbs"));
    }
    match options.files.read()? {
        Some(described) => list_files(&described, options),
        None => list_by_reflection(options),
    }
}

fn list_files(described: &SchemaSource, options: &Options) -> Result<String, Failure> {
    let set = FileDescriptorSet::decode(described.encoded());
    let files = set.map_err(|error| Failure::new(format!("{}: {error}", described.source())))?.file;
    let services = declarations::services(&files);
    match &options.name {
        None => Ok(options.list(&services, &files)),
        Some(name) => options.describe(&files, &to_dotted(name)).ok_or_else(|| {
            unknown(format!("nothing in {} is called `{name}`", described.source()), name, &services)
        }),
    }
}

fn list_by_reflection(options: &Options) -> Result<String, Failure> {
    let client = options.client(&options.url)?;
    terminal::block_on(async {
        match client.protocol() {
            Protocol::Grpc => query(&client, options).await,
            Protocol::Rpcx => query_rpcx(&client, options).await,
            _ => call_grpc_reflection(&client, options).await,
        }
    })?
}

async fn query(client: &Client, options: &Options) -> Result<String, Failure> {
    match query_grpc(client, options, options.trace()).await {
        Ok(Answer::Text(text)) => Ok(text),
        Ok(Answer::Unknown(services)) => Err(options.unknown_name(&services)),
        Err(error) => Err(failed(&error, options).await),
    }
}

/// Response of a server.
enum Answer {
    Text(String),
    /// The name is unknown; these are the server's services.
    Unknown(Vec<String>),
}

async fn query_grpc(client: &Client, options: &Options, trace: Trace) -> Result<Answer, Error> {
    let mut reflection = Reflection::new(client, options.query_options())
        .with_trace(move |method, query, failure| trace.show(method, query, failure));
    let Some(name) = &options.name else {
        let services = reflection.services().await?;
        for service in &services {
            // Only the name of an undescribed service is printed.
            reflection.find(service).await?;
        }
        return Ok(Answer::Text(options.list(&services, &files(&reflection))));
    };
    let dotted = to_dotted(name);
    if !reflection.find(&dotted).await? {
        return Ok(Answer::Unknown(reflection.services().await?));
    }
    // The messages of a method may be in other files.
    reflection.complete().await?;
    match options.describe(&files(&reflection), &dotted) {
        Some(text) => Ok(Answer::Text(text)),
        None => Ok(Answer::Unknown(reflection.services().await?)),
    }
}

async fn query_rpcx(client: &Client, options: &Options) -> Result<String, Failure> {
    let Some(name) = &options.name else {
        let program = match query_program(client, None, options).await {
            Ok(program) => program,
            Err(error) => return Err(failed(&error, options).await),
        };
        return Ok(if options.json { program.to_json().to_string() } else { program.list() });
    };
    let (service, method) = match name.rsplit_once('/') {
        Some((service, method)) => (service, Some(method)),
        None => (name.as_str(), None),
    };
    match query_program(client, Some(service), options).await {
        Ok(program) => {
            let described = program.describe(method);
            let described = described.ok_or_else(|| {
                let methods: Vec<_> = program.methods().collect();
                let hint = closest::hint(method.unwrap_or_default(), &methods, "it has");
                Failure::new(format!("{service} has no method `{}`", method.unwrap_or_default()))
                    .with_hint(hint)
            })?;
            let name = name.as_str();
            Ok(if options.json {
                json!({ "name": name, "declaration": described }).to_string()
            } else {
                described
            })
        }
        Err(error) if error.code() == Code::Unimplemented => Err(failed(&error, options).await),
        Err(error) => match query_program(client, None, options).await {
            Ok(program) => {
                let services: Vec<_> = program.services.into_iter().map(|service| service.name).collect();
                Err(options.unknown_name(&services))
            }
            Err(_) => Err(failed(&error, options).await),
        },
    }
}

async fn query_program(client: &Client, service: Option<&str>, options: &Options) -> Result<Program, Error> {
    let program = Program::query(client, service, options.query_options()).await;
    let failure = program.as_ref().err().map(Error::status);
    let (method, query) = match service {
        Some(name) => ("Reflection/GetService", format!("the service {name}")),
        None => ("Reflection/GetServices", "all services".to_owned()),
    };
    options.trace().show(method, &query, failure);
    program
}

/// Queries over gRPC a server that may not support it.
async fn call_grpc_reflection(client: &Client, options: &Options) -> Result<String, Failure> {
    let what = format!("{} cannot list services", client.protocol().as_str());
    let refused = || {
        Failure::new(format!("{what}, and the server has no gRPC reflection"))
            .with_hint("name a .proto that describes it with --proto FILE")
    };
    let url = grpc_url(&options.url).ok_or_else(refused)?;
    let other = options.client(&url)?;
    match timeout(QUERY_TIMEOUT, query_grpc(&other, options, options.trace().with_url(&url))).await {
        Ok(Ok(Answer::Text(text))) => Ok(text),
        Ok(Ok(Answer::Unknown(services))) => Err(options.unknown_name(&services)),
        // If nothing listens there, gRPC is not the reason.
        Ok(Err(error)) if error.message().starts_with("cannot connect") => {
            Err(Failure::from_status(error.status(), &options.url))
        }
        Ok(Err(error)) => Err(refused().or_reason(&what, error.status())),
        Err(_) => Err(refused().or_reason(&what, &timeout_status())),
    }
}

/// The status of a query that was not answered within [`QUERY_TIMEOUT`].
fn timeout_status() -> Status {
    Status::deadline_exceeded(format!("gRPC reflection did not answer within {QUERY_TIMEOUT:?}"))
}

async fn failed(error: &Error, options: &Options) -> Failure {
    let status = error.status();
    match status.code() {
        Code::Unimplemented => Failure::new("the server has no reflection")
            .with_hint("name a .proto that describes it with --proto FILE"),
        _ => {
            let failure = Failure::from_status(status, &options.url);
            match protocol_probe::may_be_of_another_protocol(status) && !failure.has_hint() {
                true => failure
                    .or_hint(protocol_probe::hint(&options.url, &options.common, &options.trace()).await),
                false => failure,
            }
        }
    }
}

fn unknown(text: String, name: &str, services: &[String]) -> Failure {
    let names: Vec<_> = services.iter().map(String::as_str).collect();
    let hint = service_hint(&to_dotted(name), &names);
    Failure::new(text).with_hint(hint.replace("it has ", "its services are "))
}

impl Options {
    fn client(&self, url: &str) -> Result<Client, Failure> {
        let client = self.common.client(url)?.build()?;
        self.common.check_headers(&self.headers, client.protocol())?;
        Ok(client)
    }

    fn trace(&self) -> Trace {
        Trace::new(&self.url, self.verbose, self.json)
    }

    fn query_options(&self) -> CallOptions {
        self.common.query_options(&self.headers)
    }

    fn list(&self, services: &[String], files: &[FileDescriptorProto]) -> String {
        match self.json {
            true => declarations::list_json(services, files).to_string(),
            false => declarations::list(services, files),
        }
    }

    fn describe(&self, files: &[FileDescriptorProto], name: &str) -> Option<String> {
        match self.json {
            true => declarations::describe_json(files, name).as_ref().map(Value::to_string),
            false => declarations::describe(files, name),
        }
    }

    /// The failure for a name that the server does not have.
    fn unknown_name(&self, services: &[String]) -> Failure {
        let name = self.name.as_deref().unwrap_or_default();
        unknown(format!("nothing that the server describes is called `{name}`"), name, services)
    }
}

fn files(reflection: &Reflection<'_>) -> Vec<FileDescriptorProto> {
    reflection.files().cloned().collect()
}

/// Converts `Service/Method` to the spelling of a `.proto`.
fn to_dotted(name: &str) -> String {
    name.trim_start_matches('.').replace('/', ".")
}

/// Timeout of queries by a protocol that the server may not support.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);

const EXAMPLES: &str = "\
Examples:
  polyrpc list grpc://127.0.0.1:8002
  polyrpc list grpc://127.0.0.1:8002 example.EchoService
  polyrpc list grpc://127.0.0.1:8002 example.EchoService/Echo --json
  polyrpc list rpcx://127.0.0.1:8002 Arith/Mul
  polyrpc list grpc://127.0.0.1:50051 pkg.Message --proto service.proto

The exit codes are those of `call`.";
