//! Options of a load that workers make.

use std::path::PathBuf;

use clap::Args;
use polyrpc::{Client, client, tls};

use super::worker::{is_loopback, read_token};
use crate::failure::Failure;

/// The workers that make the calls.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Several machines")]
pub(in crate::bench) struct WorkersOptions {
    /// Share the calls among these `polyrpc bench worker`; --threads applies to each worker. The connection to a worker
    /// on another machine uses TLS
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', requires = "worker_token_file")]
    workers: Vec<String>,
    /// The token of the workers
    #[arg(long, value_name = "FILE", requires = "workers")]
    worker_token_file: Option<PathBuf>,
    /// Trust workers with certificates of the authorities in this PEM file instead of the system's
    #[arg(long, value_name = "FILE", requires = "workers")]
    worker_cacert: Option<PathBuf>,
}

/// A worker to be connected to.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) name: String,
    pub(super) client: client::Builder,
}

impl WorkersOptions {
    /// Number of workers; 0 if this process makes the calls.
    pub(in crate::bench) fn count(&self) -> usize {
        self.workers.len()
    }

    /// The workers with their credentials.
    pub(super) fn endpoints(&self) -> Result<Vec<Endpoint>, Failure> {
        let Some(path) = &self.worker_token_file else {
            return Err(Failure::new("--workers needs --worker-token-file"));
        };
        let token = read_token(path)?;
        for (at, name) in self.workers.iter().enumerate() {
            if self.workers.iter().take(at).any(|other| other == name) {
                return Err(Failure::new(format!(
                    "{name} is named twice; a worker makes one load at a time"
                )));
            }
        }
        Ok(self.workers.iter().map(|name| self.endpoint(name, &token)).collect())
    }

    fn endpoint(&self, name: &str, token: &str) -> Endpoint {
        let uses_tls = self.worker_cacert.is_some() || !is_loopback(name);
        let scheme = if uses_tls { "grpcs" } else { "grpc" };
        let mut client = Client::builder(&format!("{scheme}://{name}")).credential(format!("Bearer {token}"));
        if let Some(path) = &self.worker_cacert {
            client = client.tls(tls::Client::new().ca(path.clone()));
        }
        Endpoint { name: name.to_owned(), client }
    }
}
