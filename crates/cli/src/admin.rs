//! The admin listener of `serve`, and its pages on the port of the services.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use polyrpc::layers::Metrics;
use polyrpc::{Address, Server, tls};
use polyrpc_console::{Admin, AdminHandle, Console, Role};
use tracing_subscriber::filter::Targets;

use crate::failure::Failure;
use crate::log::LogFilter;

/// Options of the admin listener.
#[derive(Debug, Args)]
#[command(next_help_heading = "To look at the server")]
pub(crate) struct AdminOptions {
    /// Serve pages that describe the server on this address, host:port or unix:/path; a non-local address requires
    /// --admin-tokens
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// Accept only tokens from this file; each line is a role (read, call, profile or write) and a token
    #[arg(long, value_name = "FILE", requires = "admin")]
    admin_tokens: Option<PathBuf>,
    /// Also accept this name as the Host of requests to the admin listener; may be repeated
    #[arg(long, value_name = "NAME", requires = "admin")]
    admin_host: Vec<String>,
    /// Let callers with the role write change settings and close connections
    #[arg(long, requires = "admin_tokens")]
    admin_writable: bool,
    /// Serve the pages, read-only, to every caller of a listener that accepts HTTP, as brpc's servers do
    #[arg(long)]
    pages: bool,
    /// Changes the log filter.
    #[arg(skip)]
    pub(crate) log_filter: Option<LogFilter>,
}

impl AdminOptions {
    /// Whether the pages are served on the port of the services.
    pub(crate) fn has_pages(&self) -> bool {
        self.pages
    }

    /// Returns a console, if any option needs one.
    pub(crate) fn console(&self) -> Option<Console> {
        let console = (self.pages || self.admin.is_some()).then(Console::new)?;
        if let Some(filter) = &self.log_filter {
            let (current, filter) = (filter.with_current(Targets::to_string), filter.clone());
            console.log_filter(current.unwrap_or_default(), move |text| {
                text.parse().is_ok_and(|wanted: Targets| filter.reload(wanted).is_ok())
            });
        }
        Some(console)
    }

    /// Makes a server count its calls, and adds the pages to its port if requested.
    pub(crate) fn add_to(
        &self,
        server: Server,
        console: &Console,
        metrics: &Metrics,
        exports: bool,
    ) -> Server {
        let server = if exports { server.metrics(metrics) } else { server.count_calls(metrics) };
        if self.pages { console.serve_pages(server) } else { server }
    }

    /// Starts the admin listener, if one is requested.
    pub(crate) fn start(
        &self,
        console: &Console,
        tls: Option<tls::Server>,
    ) -> Result<Option<AdminHandle>, Failure> {
        let Some(address) = &self.admin else { return Ok(None) };
        let mut admin = Admin::on(address).hosts(self.admin_host.iter().cloned());
        for (role, token) in self.admin_tokens.as_deref().map_or_else(|| Ok(Vec::new()), read_tokens)? {
            admin = admin.token(role, token);
        }
        if self.admin_writable {
            admin = admin.writable();
        }
        if let Some(tls) = tls {
            admin = admin.tls(tls);
        }
        start(admin, console, address).map(Some)
    }
}

/// Starts an admin listener on this address.
pub(crate) fn start(admin: Admin, console: &Console, address: &str) -> Result<AdminHandle, Failure> {
    admin.start(console).map_err(|error| Failure::system(format!("listen on {address}"), &error))
}

/// Returns the URL for a browser.
pub(crate) fn url(address: &Address) -> String {
    match address {
        Address::Tcp(address) => format!("http://{address}/"),
        other => other.to_string(),
    }
}

/// Reads a file of roles and tokens.
pub(crate) fn read_tokens(path: &Path) -> Result<Vec<(Role, String)>, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::system(format!("read {}", path.display()), &error))?;
    let tokens = parse_tokens(&text).map_err(|line| {
        let failure = Failure::new(format!("line {line} of {} is not a role and a token", path.display()));
        failure.with_hint(
            "a line is, for example, `read 2d5b1f0c9e8a7766`; the roles are read, call, profile and write",
        )
    })?;
    match tokens.is_empty() {
        true => Err(Failure::new(format!("there is no token in {}", path.display()))),
        false => Ok(tokens),
    }
}

/// Parses lines of a role and a token; empty ones and those that start with `#` are skipped. The error is a line's
/// number.
fn parse_tokens(text: &str) -> Result<Vec<(Role, String)>, usize> {
    let lines = text.lines().map(str::trim).enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let token = |(at, line): (usize, &str)| {
        let (role, token) = line.split_once(char::is_whitespace).ok_or(at + 1)?;
        let role = [Role::Read, Role::Call, Role::Profile, Role::Write]
            .into_iter()
            .find(|known| known.to_string() == role)
            .ok_or(at + 1)?;
        match token.trim() {
            token if token.contains(char::is_whitespace) => Err(at + 1),
            token => Ok((role, token.to_owned())),
        }
    };
    lines.map(token).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_roles_and_tokens() {
        let text = "# for Prometheus\nread  0123456789abcdef\r\n\n write fedcba9876543210 \n";
        let want = vec![(Role::Read, "0123456789abcdef".into()), (Role::Write, "fedcba9876543210".into())];
        assert_eq!(parse_tokens(text), Ok(want));
        for (wrong, line) in [("read", 1), ("\nroot 0123456789abcdef", 2), ("read 0123456789abcdef x", 1)] {
            assert_eq!(parse_tokens(wrong), Err(line), "{wrong}");
        }
    }
}
