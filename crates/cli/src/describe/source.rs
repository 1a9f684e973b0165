//! Where a description comes from: files, or a server's reflection.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use polyrpc::{Client, Code, Error, Protocol, Status};
use polyrpc_build::fbs;
use polyrpc_describe::{Method, ProtoFiles};
use tokio::time::timeout;

use super::Options;
use crate::call::protocol_probe;
use crate::failure::Failure;
use crate::message::SchemaSource;
use crate::reflection::{Reflection, Trace, grpc_url};
use crate::terminal;

/// Where a description comes from.
pub(super) enum Source<'a> {
    File(&'a Path, &'a [PathBuf]),
    Server(&'a str),
}

/// A description.
pub(super) enum DescriptionSource {
    Proto(SchemaSource),
    Fbs(Arc<fbs::Schema>),
}

impl DescriptionSource {
    pub(super) fn methods(&self) -> Vec<Method> {
        match self {
            Self::Proto(source) => ProtoFiles::new(source.pool().clone()).methods(),
            Self::Fbs(schema) => Method::from_fbs(schema),
        }
    }

    /// Its origin, for errors.
    pub(super) fn source(&self) -> &str {
        match self {
            Self::Proto(source) => source.source(),
            Self::Fbs(_) => "the .fbs",
        }
    }
}

impl<'a> Source<'a> {
    /// An argument without `://` is a file.
    pub(super) fn new(argument: &'a str, include: &'a [PathBuf]) -> Self {
        match argument.contains("://") {
            true => Self::Server(argument),
            false => Self::File(Path::new(argument), include),
        }
    }

    pub(super) fn read(&self, options: &Options) -> Result<DescriptionSource, Failure> {
        match self {
            Self::File(file, include) => read_file(file, include),
            Self::Server(url) => {
                let client = options.common.client(url)?.build()?;
                options.common.check_headers(&options.headers, client.protocol())?;
                let set = terminal::block_on(query_reflection(&client, url, options))??;
                Ok(DescriptionSource::Proto(SchemaSource::new(&set, "the server")?))
            }
        }
    }
}

fn read_file(file: &Path, include: &[PathBuf]) -> Result<DescriptionSource, Failure> {
    let files = [file.to_owned()];
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("proto") => Ok(DescriptionSource::Proto(SchemaSource::read_proto(&files, include)?)),
        Some("fbs") => {
            let schema = fbs::read(&files, include).map_err(|error| Failure::new(error.to_string()))?;
            Ok(DescriptionSource::Fbs(Arc::new(schema)))
        }
        _ if file.exists() => Ok(DescriptionSource::Proto(SchemaSource::read_sets(&files)?)),
        _ => Err(Failure::new(format!("there is no file {}", file.display()))
            .with_hint("name a server by its URL: grpc://host:port")),
    }
}

/// The files of all services of a server, or of the wanted one, as a serialized `FileDescriptorSet`.
async fn query_reflection(client: &Client, url: &str, options: &Options) -> Result<Vec<u8>, Failure> {
    let trace = Trace::new(url, options.verbose, false);
    if client.protocol() == Protocol::Grpc {
        return match query(client, options, trace.clone()).await {
            Ok(set) => Ok(set),
            Err(error) => Err(failed(&error, url, options, &trace).await),
        };
    }
    // Servers of several protocols have reflection on the same port.
    let what = format!("{} cannot describe services", client.protocol().as_str());
    let refused = || {
        let text = format!("{what}, and the server has no gRPC reflection");
        Failure::new(text).with_hint("name a .proto instead of the server")
    };
    let other_url = grpc_url(url).ok_or_else(refused)?;
    let other = options.common.client(&other_url)?.build()?;
    match timeout(QUERY_TIMEOUT, query(&other, options, trace.with_url(&other_url))).await {
        Ok(Ok(set)) => Ok(set),
        // If nothing listens there, gRPC is not the reason.
        Ok(Err(error)) if error.message().starts_with("cannot connect") => {
            Err(Failure::from_status(error.status(), url))
        }
        Ok(Err(error)) => Err(refused().or_reason(&what, error.status())),
        Err(_) => {
            let late =
                Status::deadline_exceeded(format!("gRPC reflection did not answer within {QUERY_TIMEOUT:?}"));
            Err(refused().or_reason(&what, &late))
        }
    }
}

async fn query(client: &Client, options: &Options, trace: Trace) -> Result<Vec<u8>, Error> {
    let mut reflection = Reflection::new(client, options.common.query_options(&options.headers))
        .with_trace(move |method, query, failure| trace.show(method, query, failure));
    // A wrong name is answered with the right ones, so all are asked for.
    for service in reflection.services().await? {
        reflection.find(&service).await?;
    }
    if let Some(name) = &options.name {
        // It may be a message that no service uses.
        reflection.find(&name.trim_start_matches(['.', '/']).replace('/', ".")).await?;
    }
    reflection.complete().await?;
    reflection.set()
}

async fn failed(error: &Error, url: &str, options: &Options, trace: &Trace) -> Failure {
    let status = error.status();
    if status.code() == Code::Unimplemented {
        return Failure::new("the server has no reflection").with_hint("name a .proto instead of the server");
    }
    let failure = Failure::from_status(status, url);
    match protocol_probe::may_be_of_another_protocol(status) && !failure.has_hint() {
        true => failure.or_hint(protocol_probe::hint(url, &options.common, trace).await),
        false => failure,
    }
}

/// Timeout of queries by a protocol that the server may not support.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
