//! `polyrpc gateway`: runs a gateway between protocols.

mod online;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::Args;
use polyrpc::{Address, signal};
use polyrpc_gateway::{Config, Gateway, check, check_online};
use tokio::time::{MissedTickBehavior, interval};

use crate::failure::Failure;
use crate::terminal;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// The configuration, in TOML
    file: PathBuf,
    /// Only check the configuration: read its files, and try every route with the declared methods
    #[arg(long)]
    check: bool,
    /// Also query registries for the servers of each upstream, connect to these, and query the reflection of the
    /// upstreams in `schema.reflect`; no other calls are made
    #[arg(long, requires = "check")]
    online: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let config = read(&options.file)?;
    if options.check {
        let file = &options.file;
        let mut notes: Vec<String> = if options.online {
            let (servers, notes) = terminal::block_on(async {
                (online::check_upstreams(&config).await, check_online(&config).await)
            })?;
            let servers =
                servers.map_err(|wrong| Failure::new(format!("{} is invalid:\n{wrong}", file.display())))?;
            let notes = notes.map_err(|problems| invalid(file, problems))?;
            servers.into_iter().chain(notes.iter().map(ToString::to_string)).collect()
        } else {
            let notes = check(&config).map_err(|problems| invalid(file, problems))?;
            notes.iter().map(ToString::to_string).collect()
        };
        notes.dedup();
        for note in notes {
            terminal::print_error(format_args!("note: {}: {note}", file.display()));
        }
        terminal::print(&format!("{} is valid", options.file.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::system("start a runtime", &error))?;
    runtime.block_on(serve(config, &options.file))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(config: Config, file: &Path) -> Result<(), Failure> {
    let mut stop = signal::shutdown();
    let mut changes = Changes::watch(file)?;
    let mut gateway = Gateway::start(config).await.map_err(|problems| invalid(file, problems))?;
    announce(&gateway).map_err(|error| Failure::system("write to standard output", &error))?;
    loop {
        tokio::select! {
            () = &mut stop => break,
            () = changes.next() => reload(&mut gateway, file).await,
        }
    }
    let second = signal::shutdown();
    tokio::select! {
        () = second => {}
        () = gateway.shutdown() => {}
    }
    Ok(())
}

/// Reloads the file. If it is invalid, the old configuration stays in use.
async fn reload(gateway: &mut Gateway, file: &Path) {
    let reloaded = match read(file) {
        Ok(config) => gateway.reload(config).await.map_err(|problems| invalid(file, problems)),
        Err(failure) => {
            gateway.mark_invalid();
            Err(failure)
        }
    };
    match reloaded {
        Ok(()) => terminal::print_error(format_args!("{} was reloaded", file.display())),
        Err(failure) => {
            terminal::print_error(format_args!("{} was not reloaded: {failure}", file.display()));
        }
    }
}

/// Triggers of a reload: SIGHUP, and a new modification time.
struct Changes {
    file: PathBuf,
    seen: Option<SystemTime>,
    ticks: tokio::time::Interval,
    hangup: tokio::signal::unix::Signal,
}

impl Changes {
    fn watch(file: &Path) -> Result<Self, Failure> {
        let mut ticks = interval(WATCH);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let hangup = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())
            .map_err(|error| Failure::system("watch for SIGHUP", &error))?;
        Ok(Self { seen: modification_time(file), file: file.to_owned(), ticks, hangup })
    }

    async fn next(&mut self) {
        loop {
            tokio::select! {
                _ = self.hangup.recv() => {
                    self.seen = modification_time(&self.file);
                    return;
                }
                _ = self.ticks.tick() => {}
            }
            let now = modification_time(&self.file);
            // An editor may replace the file, so that it does not exist for a moment.
            if now.is_some() && now != self.seen {
                self.seen = now;
                return;
            }
        }
    }
}

fn modification_time(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).and_then(|metadata| metadata.modified()).ok()
}

fn read(file: &Path) -> Result<Config, Failure> {
    let text = fs::read_to_string(file)
        .map_err(|error| Failure::system(format!("read {}", file.display()), &error))?;
    Config::parse(&text).map_err(|problems| invalid(file, problems))
}

fn invalid(file: &Path, problems: polyrpc_gateway::ConfigErrors) -> Failure {
    Failure::new(format!("{} is invalid:\n{problems}", file.display()))
}

fn announce(gateway: &Gateway) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    let line = |name: &str, address: &Address| format!("listening {name} {address}\n");
    for address in gateway.addresses() {
        stdout.write_all(line("gateway", address).as_bytes())?;
    }
    if let Some(address) = gateway.admin_address() {
        stdout.write_all(line("admin", address).as_bytes())?;
    }
    stdout.write_all(b"ready\n")?;
    stdout.flush()
}

/// Interval at which the file is checked.
const WATCH: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  polyrpc gateway gateway.toml --check
  polyrpc gateway gateway.toml --check --online
  polyrpc gateway gateway.toml

A minimal configuration:
  [[listen]]
  address = \"127.0.0.1:8000\"
  [[upstream]]
  name = \"users\"
  url = \"rpcx://127.0.0.1:8972\"
  [[route]]
  to = \"users\"

The file is read again on SIGHUP and when it changes; if it is invalid, the old configuration stays in use.
Prints `listening NAME ADDRESS` for each listener, then `ready`.";
