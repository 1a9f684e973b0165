//! `polyrpc list`: what a server offers, by its own word or by `.proto` files.

use std::process::ExitCode;

use clap::Args;
use polyrpc::{Client, Code, Error, Protocol};
use protox::prost::Message;
use protox::prost_reflect::prost_types::{FileDescriptorProto, FileDescriptorSet};

use crate::call::{CommonOptions, Headers};
use crate::describe;
use crate::failure::Failure;
use crate::message::{Files, SchemaSource};
use crate::reflection::Reflection;
use crate::terminal;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// The server: grpc://host:port or grpc+unix:///path
    url: String,
    /// A service, a method, a message or an enum to describe, by its full name [default: list all services]
    name: Option<String>,
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    beside: CommonOptions,
    #[command(flatten)]
    headers: Headers,
}

pub(crate) fn run(options: Options) -> Result<ExitCode, Failure> {
    let text = match options.files.described()? {
        Some(described) => by_files(&described, options.name.as_deref())?,
        None => by_reflection(&options)?,
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn by_files(described: &SchemaSource, name: Option<&str>) -> Result<String, Failure> {
    let set = FileDescriptorSet::decode(described.encoded());
    let files = set.map_err(|error| Failure::new(format!("{}: {error}", described.source())))?.file;
    let services = describe::services(&files);
    match name {
        None => Ok(describe::list(&services, &files)),
        Some(name) => describe::name(&files, &dotted(name)).ok_or_else(|| {
            let hint = format!("its services are {}", services.join(", "));
            Failure::new(format!("nothing in {} is called `{name}`", described.source())).with_hint(hint)
        }),
    }
}

fn by_reflection(options: &Options) -> Result<String, Failure> {
    let client = options.beside.client(&options.url)?.build()?;
    if client.protocol() != Protocol::Grpc {
        return Err(Failure::new("only gRPC has a way to ask a server what it offers")
            .with_hint("write grpc:// if it speaks that too, or name a .proto with --proto FILE"));
    }
    terminal::block_on(ask(&client, options))?
}

async fn ask(client: &Client, options: &Options) -> Result<String, Failure> {
    let mut reflection = Reflection::new(client, options.beside.asking(&options.headers));
    let failed = |error: Error| failed(&error, &options.url);
    let Some(name) = &options.name else {
        let services = reflection.services().await.map_err(failed)?;
        for service in &services {
            // One that cannot be described is told by its name alone.
            reflection.find(service).await.map_err(failed)?;
        }
        return Ok(describe::list(&services, &files(&reflection)));
    };
    let dotted = dotted(name);
    if !reflection.find(&dotted).await.map_err(failed)? {
        let services = reflection.services().await.map_err(failed)?;
        let hint = format!("its services are {}", services.join(", "));
        return Err(
            Failure::new(format!("nothing that the server describes is called `{name}`")).with_hint(hint)
        );
    }
    // The messages of a method may be in other files.
    reflection.complete().await.map_err(failed)?;
    describe::name(&files(&reflection), &dotted)
        .ok_or_else(|| Failure::new(format!("the server's file does not have the `{name}` it should have")))
}

fn failed(error: &Error, url: &str) -> Failure {
    match error.code() {
        Code::Unimplemented => Failure::new("the server does not tell what it offers: it has no reflection")
            .with_hint("name a .proto that describes it with --proto FILE"),
        _ => Failure::of_call(error.status(), url),
    }
}

fn files(reflection: &Reflection<'_>) -> Vec<FileDescriptorProto> {
    reflection.files().cloned().collect()
}

/// A method's name as it is called, `Service/Method`, as a `.proto` has it.
fn dotted(name: &str) -> String {
    name.trim_start_matches('.').replace('/', ".")
}

const EXAMPLES: &str = "\
Examples:
  polyrpc list grpc://127.0.0.1:8002
  polyrpc list grpc://127.0.0.1:8002 example.EchoService
  polyrpc list grpc://127.0.0.1:8002 example.EchoService/Echo
  polyrpc list grpc://127.0.0.1:50051 pkg.Message --proto service.proto";
