//! `polyrpc console`: the servers of a registry on one page.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use polyrpc::discovery::redacted;
use polyrpc_console::{Admin, Console};

use crate::admin;
use crate::failure::Failure;
use crate::terminal;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// The registry: etcd://, zookeeper://, consul://, redis://, nacos://, kubernetes://, list://, dlist://, file://,
    /// remotefile://, dns://, mdns://; each server is queried at the address in its attribute `admin`, or else at its
    /// own
    url: String,
    /// Send the token in this file to every server that the registry lists; with a token of the role write, the page
    /// can drain servers
    #[arg(long, value_name = "FILE")]
    server_token: Option<PathBuf>,
    /// Serve the page on this address, host:port or unix:/path; a non-local address requires --tokens
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8002")]
    listen: String,
    /// Accept only tokens from this file; each line is a role (read, call, profile or write) and a token
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Also accept this name as the Host of requests; may be repeated
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Let callers with the role write drain servers
    #[arg(long, requires_all = ["tokens", "server_token"])]
    writable: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let discover = polyrpc_discovery::discover(&options.url)?;
    let token = options.server_token.as_deref().map(read_token).transpose()?;
    let console = Console::new();
    // Readers of the page must not get the credentials for the registry.
    console
        .observe_fleet(&redacted(&options.url), discover, token)
        .map_err(|error| Failure::system("start a thread", &error))?;
    let mut listener = Admin::on(&options.listen).hosts(options.host.iter().cloned());
    for (role, token) in options.tokens.as_deref().map_or_else(|| Ok(Vec::new()), admin::read_tokens)? {
        listener = listener.token(role, token);
    }
    if options.writable {
        listener = listener.writable();
    }
    let running = admin::start(listener, &console, &options.listen)?;
    terminal::print(&format!("{}fleet", admin::url(running.address())))?;
    // Signals are watched from within the runtime only.
    terminal::block_on(async { polyrpc::signal::shutdown().await })?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the file of a token: one line.
fn read_token(path: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::system(format!("read {}", path.display()), &error))?;
    let token = text.trim();
    match token.is_empty() || token.contains(|letter: char| !letter.is_ascii_graphic()) {
        true => {
            Err(Failure::new(format!("{} has no token: expected one line without spaces", path.display())))
        }
        false => Ok(token.to_owned()),
    }
}

const EXAMPLES: &str = "\
Examples:
  polyrpc console 'list://10.0.0.1:8000 admin=8001,10.0.0.2:8000 admin=8001'
  polyrpc console etcd://127.0.0.1:2379/rpcx_test/Arith --server-token token --tokens tokens --writable";
