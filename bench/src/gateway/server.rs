//! Our gateway, in the process of this program.

use std::io;
use std::net::SocketAddr;

use clap::Args;
use polyrpc_gateway::{Config, Gateway};

use super::configuration;
use crate::process;

/// Arguments of the gateway.
#[derive(Debug, Args)]
pub(crate) struct ServerOptions {
    /// The gRPC server that gets the calls.
    #[arg(long)]
    upstream: SocketAddr,
    /// Read the schema of the called service, so that JSON can be translated.
    #[arg(long, overrides_with = "no_schema")]
    schema: bool,
    /// Read no schema: messages are forwarded without decoding.
    #[arg(long)]
    no_schema: bool,
}

/// Main function of the gateway's process.
pub(crate) fn serve(options: &ServerOptions) -> io::Result<()> {
    process::prepare(None)?;
    let text = configuration::polyrpc(options.upstream, options.schema && !options.no_schema);
    let config = Config::parse(&text).map_err(|problems| io::Error::other(problems.to_string()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let gateway = runtime.block_on(Gateway::start(config));
    let gateway = gateway.map_err(|problems| io::Error::other(problems.to_string()))?;
    let address = gateway.addresses().first().map(ToString::to_string).unwrap_or_default();
    process::report_usage(address.parse().map_err(io::Error::other)?)
}
