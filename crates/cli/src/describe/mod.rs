//! `polyrpc describe`: the interface of a server as a document for other programs.

mod proto_file;
mod source;

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use polyrpc::Json;
use polyrpc_describe::{Method, OpenApi, ProtoFiles, json_schema};
use polyrpc_transform::{closest, service_hint};
use serde_json::Value;

use self::source::{DescriptionSource, Source};
use crate::call::{CommonOptions, Headers};
use crate::failure::Failure;
use crate::terminal;
use crate::url::Url;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// The server, as for `call`, which is queried by gRPC reflection; or a .proto file, a .fbs file, or a descriptor
    /// set as `protoc --include_imports --descriptor_set_out=FILE` writes it
    url: String,
    /// Only this service or method, SERVICE or SERVICE/METHOD; for --json-schema and --proto also a message. --proto prints the
    /// whole file that declares it [default: all services]
    name: Option<String>,
    #[command(flatten)]
    form: Form,
    /// The dialect of JSON: that of the server's listener, which is brpc's unless the server is configured otherwise
    /// [default: brpc for --openapi, else proto3]
    #[arg(long, value_enum)]
    dialect: Option<Dialect>,
    /// Directories of imports, if the first argument is a .proto or a .fbs
    #[arg(short = 'I', long = "include", value_name = "DIR")]
    include: Vec<std::path::PathBuf>,
    /// Show the queries to the server and its answers on standard error
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    headers: Headers,
    #[command(flatten)]
    common: CommonOptions,
}

/// The document to print.
#[derive(Debug, Clone, Copy, Args)]
#[group(multiple = false)]
struct Form {
    /// An OpenAPI 3.1 document of the HTTP interface
    #[arg(long)]
    openapi: bool,
    /// The JSON Schema (2020-12) of the messages
    #[arg(long)]
    json_schema: bool,
    /// The .proto files [default]
    #[arg(long)]
    proto: bool,
}

/// A dialect of JSON.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Dialect {
    /// brpc's: names as declared, 64-bit integers as numbers
    Brpc,
    /// ProtoJSON
    Proto3,
}

impl From<Dialect> for Json {
    fn from(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Brpc => Self::Brpc,
            Dialect::Proto3 => Self::Proto3,
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let source = Source::new(&options.url, &options.include);
    let printed = source.read(options).and_then(|described| {
        // Comments of a server may contain anything.
        terminal::print(&terminal::escape(&options.document(&described)?))
    });
    Ok(printed.map_or_else(|failure| terminal::report(&failure, false), |_| ExitCode::SUCCESS))
}

impl Options {
    fn document(&self, described: &DescriptionSource) -> Result<String, Failure> {
        match (self.form, described) {
            (Form { openapi: true, .. }, _) => self.openapi(described),
            (Form { json_schema: true, .. }, _) => self.json_schema(described),
            (_, DescriptionSource::Proto(source)) => {
                // A file is printed whole: a method that it lacks would go unnoticed.
                if self.name.as_ref().is_some_and(|name| name.trim_start_matches(['.', '/']).contains('/')) {
                    self.methods(described)?;
                }
                proto_file::format_files(source, self.name.as_deref())
            }
            (_, DescriptionSource::Fbs(_)) => Err(Failure::new("a .fbs has no .proto")
                .with_hint("print --json-schema or --openapi, or read the file itself")),
        }
    }

    fn openapi(&self, described: &DescriptionSource) -> Result<String, Failure> {
        let methods = self.methods(described)?;
        let title = match &self.name {
            Some(name) => name.clone(),
            None => services(&methods).join(", "),
        };
        let mut openapi = OpenApi::new(title).dialect(self.dialect.unwrap_or(Dialect::Brpc).into());
        if let Some(url) = http_url(&self.url) {
            openapi = openapi.server(url);
        }
        format_json(&openapi.document(&methods).map_err(Failure::new)?)
    }

    fn json_schema(&self, described: &DescriptionSource) -> Result<String, Failure> {
        let dialect = self.dialect.unwrap_or(Dialect::Proto3).into();
        let document = match (described, self.name.as_deref()) {
            (DescriptionSource::Proto(source), Some(name))
                if source.pool().message(trim_dots(name)).is_some() =>
            {
                let files = ProtoFiles::new(source.pool().clone());
                source.pool().message(trim_dots(name)).map(|message| files.message_schema(message, dialect))
            }
            _ => None,
        };
        let document = match document {
            Some(document) => document,
            None => json_schema(&self.methods(described)?, dialect),
        };
        format_json(&document.map_err(Failure::new)?)
    }

    /// The methods with the wanted names. Without a name those of the framework itself are left out.
    fn methods(&self, described: &DescriptionSource) -> Result<Vec<Method>, Failure> {
        let mut methods = described.methods();
        let Some(name) = self.name.as_deref().map(|name| name.trim_start_matches(['.', '/'])) else {
            methods.retain(|method| !method.service.starts_with("grpc."));
            return match methods.is_empty() {
                true => Err(Failure::new(format!("{} describes no method", described.source()))),
                false => Ok(methods),
            };
        };
        let named = |method: &Method| {
            method.service == name
                || method.target() == name
                || format!("{}.{}", method.service, method.name) == name
        };
        if methods.iter().any(&named) {
            methods.retain(named);
            return Ok(methods);
        }
        Err(unknown(name, &methods, described))
    }
}

/// The failure for an unknown name.
fn unknown(name: &str, methods: &[Method], described: &DescriptionSource) -> Failure {
    let (service, method) = name.rsplit_once('/').unwrap_or((name, ""));
    let known: Vec<_> = methods.iter().filter(|known| known.service == service).collect();
    if !method.is_empty() && !known.is_empty() {
        let names: Vec<_> = known.iter().map(|known| known.name.as_str()).collect();
        let text = format!("there is no method `{method}` in {service}");
        return Failure::new(text).with_hint(closest::hint(method, &names, "it has"));
    }
    let services = services(methods);
    let names: Vec<_> = services.iter().map(String::as_str).collect();
    let hint = service_hint(service, &names).replace("it has ", "its services are ");
    Failure::new(format!("{} describes no `{name}`", described.source())).with_hint(hint)
}

fn services(methods: &[Method]) -> Vec<String> {
    let mut names: Vec<_> = methods.iter().map(|method| method.service.clone()).collect();
    names.dedup();
    names
}

fn trim_dots(name: &str) -> &str {
    name.trim_start_matches('.')
}

/// The URL of the same server for HTTP, if the server has one address.
fn http_url(text: &str) -> Option<String> {
    let url = Url::parse(text).filter(|url| url.registry.is_none() && url.socket().is_none())?;
    let scheme = if url.tls { "https" } else { "http" };
    let address = url.server();
    (!address.is_empty()).then(|| format!("{scheme}://{address}"))
}

fn format_json(document: &Value) -> Result<String, Failure> {
    serde_json::to_string_pretty(document)
        .map_err(|error| Failure::new(format!("the document cannot be written: {error}")))
}

const EXAMPLES: &str = "\
Examples:
  polyrpc describe grpc://127.0.0.1:8002 --openapi > openapi.json
  polyrpc describe grpc://127.0.0.1:8002 example.EchoService/Echo --json-schema
  polyrpc describe grpc://127.0.0.1:8002 helloworld.Greeter --proto
  polyrpc describe service.proto --openapi

The OpenAPI document describes what a server of PolyRPC answers over HTTP. `list` prints shorter declarations for people.
The exit codes are those of `call`.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_for_http_has_the_address_of_the_server() {
        for (url, http) in [
            ("grpc://h:1", Some("http://h:1")),
            ("grpcs://h:1", Some("https://h:1")),
            ("rpcx+tls://h:1", Some("https://h:1")),
            ("grpc:///run/x", None),
            ("grpc+etcd://h:1/base/S", None),
            ("service.proto", None),
        ] {
            assert_eq!(http_url(url).as_deref(), http, "{url}");
        }
    }
}
