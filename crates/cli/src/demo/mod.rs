//! `polyrpc demo`: one server, called over every supported protocol.

mod calls;
mod table;
mod try_it;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use polyrpc::layers::Metrics;
use polyrpc::server::ServerHandle;
use polyrpc_console::{Admin, AdminHandle, Console, Role};

use self::calls::{CALLS, Outcome};
use crate::failure::Failure;
use crate::serve::RegistryOptions;
use crate::terminal::Painter;
use crate::{admin, serve, services, terminal};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Keep serving, and print calls to try
    #[arg(long)]
    keep: bool,
    /// Address to listen on; port 0 selects a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: String,
    /// With --keep: local address of the admin pages
    #[arg(long, value_name = "ADDR", requires = "keep", default_value = "127.0.0.1:0")]
    admin: String,
    #[command(flatten)]
    registering: RegistryOptions,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::system("start a runtime", &error))?;
    runtime.block_on(demonstrate(options))
}

async fn demonstrate(options: &Options) -> Result<ExitCode, Failure> {
    let stop = polyrpc::signal::shutdown();
    let server = options.registering.add_to(services::server())?.count_calls(&Metrics::new());
    let bound = server.bind(options.listen.as_str()).await;
    let running =
        bound.map_err(|error| Failure::system(format!("listen on {}", options.listen), &error))?.start();
    let paint = Painter::for_stdout();
    let admin = match options.keep {
        true => Some(start_admin(options, &running)?),
        false => None,
    };
    let failed = call_all(&running, paint).await?;
    if let Some(admin) = admin {
        terminal::print(try_it::text(running.address(), admin.address(), paint).trim_end_matches('\n'))?;
        stop.await;
        serve::shut_down(vec![running], GRACE).await;
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Starts pages that describe the server.
fn start_admin(options: &Options, running: &ServerHandle) -> Result<AdminHandle, Failure> {
    let console = Console::new();
    console.observe(running);
    // The demo's methods are there to be tried.
    let admin = Admin::on(&options.admin).anonymous(Role::Call);
    admin::start(admin, &console, &options.admin)
}

/// Time that accepted calls get to complete when the server shuts down.
const GRACE: Duration = Duration::from_secs(10);

/// Makes every call and prints its row as soon as it is answered. Returns the number of failures.
async fn call_all(running: &ServerHandle, paint: Painter) -> Result<usize, Failure> {
    let address = running.address();
    let title = paint.bold(format_args!("PolyRPC on {address}: every service, every protocol, one port"));
    terminal::print(&format!("{title}\n\n{}", table::head(paint)))?;
    let mut failed = 0;
    for call in CALLS {
        let outcome = call.make(address).await;
        failed += usize::from(!matches!(outcome, Outcome::Answered { .. }));
        terminal::print(&table::row(call, &outcome, paint))?;
    }
    terminal::print(&format!("\n{}", table::verdict(CALLS.len(), failed, paint)))?;
    Ok(failed)
}
