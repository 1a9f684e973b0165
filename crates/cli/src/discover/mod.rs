//! `polyrpc discover`: shows and watches the contents of a registry.

mod table;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use futures_util::StreamExt;
use polyrpc::discovery::{Instance, InstanceStream};
use polyrpc::{Error, Status};
use tokio::time::timeout;

use self::table::KnownInstance;
use crate::failure::Failure;
use crate::terminal;
use crate::terminal::Painter;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// The registry: etcd://, zookeeper://, consul://, redis://, nacos://, kubernetes://, list://, dlist://, file://,
    /// remotefile://, dns://, mdns://; a protocol before it (rpcx+dns://) is ignored, and so are its parameters
    url: String,
    /// Keep running, and print every change
    #[arg(long)]
    watch: bool,
    /// Print JSON: one line with all instances; with --watch one line per change; a failure as JSON on standard error
    #[arg(long)]
    json: bool,
    /// Timeout of the first response
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = terminal::parse_duration)]
    timeout: Duration,
}

pub(crate) fn run(options: Options) -> Result<ExitCode, Failure> {
    let ended = find(&options);
    Ok(ended.unwrap_or_else(|failure| terminal::report(&failure, options.json)))
}

fn find(options: &Options) -> Result<ExitCode, Failure> {
    let discover = polyrpc_discovery::discover(&options.url)?;
    terminal::block_on(async {
        let mut sets = discover.watch();
        match options.watch {
            true => watch(&mut sets, options).await,
            false => show_once(&mut sets, options).await,
        }
    })?
}

async fn show_once(sets: &mut InstanceStream, options: &Options) -> Result<ExitCode, Failure> {
    let first = wait_for_first(sets, options).await?;
    let instances = first.ok_or_else(|| Failure::new(format!("{} lists nothing", options.url)))?;
    let instances = instances.map_err(|error| Failure::from_status(error.status(), &options.url))?;
    terminal::print(&format_instances(&instances, options.json))?;
    Ok(ExitCode::SUCCESS)
}

/// Waits for the first response, at most for the timeout. Later ones come only with changes.
async fn wait_for_first(
    sets: &mut InstanceStream,
    options: &Options,
) -> Result<Option<Result<Vec<Instance>, Error>>, Failure> {
    let late = || Status::deadline_exceeded("the registry did not answer in time");
    let first = timeout(options.timeout, sets.next()).await;
    first.map_err(|_| Failure::from_status(&late(), &options.url))
}

/// Prints until a signal arrives or standard output is closed.
async fn watch(sets: &mut InstanceStream, options: &Options) -> Result<ExitCode, Failure> {
    let mut stop = polyrpc::signal::shutdown();
    let mut known = None;
    let mut has_answered = false;
    loop {
        let next = async {
            match has_answered {
                true => Ok(sets.next().await),
                false => wait_for_first(sets, options).await,
            }
        };
        let item = tokio::select! {
            () = &mut stop => return Ok(ExitCode::SUCCESS),
            item = next => item?,
        };
        has_answered = true;
        let instances = match item {
            None => return Ok(ExitCode::SUCCESS),
            Some(Ok(instances)) => instances,
            Some(Err(error)) => {
                terminal::print_error(format_args!("warning: {}", error.message().escape_debug()));
                continue;
            }
        };
        let now = KnownInstance::new(&instances);
        let text = match known.replace(now.clone()) {
            // A registry returns the same set again after a failure.
            Some(before) if before == now => continue,
            Some(before) if !options.json => table::changes(&before, &now, Painter::for_stdout()),
            _ => format_instances(&instances, options.json),
        };
        if !text.is_empty() && !terminal::print(&text)? {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

fn format_instances(instances: &[Instance], json: bool) -> String {
    if json { table::json(instances).to_string() } else { table::table(instances, Painter::for_stdout()) }
}

const EXAMPLES: &str = "\
Examples:
  polyrpc discover 'list://10.0.0.1:8000 3,10.0.0.2:8000'
  polyrpc discover file:///etc/servers --watch
  polyrpc discover dns://_grpc._tcp.example.org
  polyrpc discover mdns://Arith --watch --json

The exit codes are those of `call`.";
