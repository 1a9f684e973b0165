//! TLS options, named as in curl and grpcurl.

use std::path::PathBuf;

use clap::Args;
use polyrpc::tls::{self, Identity};

use crate::failure::Failure;
use crate::terminal;

/// Client options of TLS.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "With TLS (grpcs://, https://, rpcx+tls://…)")]
pub(crate) struct ClientTlsOptions {
    /// Trust the certificate authorities in this PEM file instead of the system's
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Send the client certificate in this PEM file
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// The key of --cert [default: in the same file]
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Request this server name (SNI) and require a certificate for it, instead of the URL's host
    #[arg(long, value_name = "NAME")]
    servername: Option<String>,
    /// Accept any certificate (insecure)
    #[arg(short = 'k', long)]
    insecure: bool,
}

impl ClientTlsOptions {
    /// The first option that is given.
    pub(crate) fn given_option(&self) -> Option<&'static str> {
        let Self { cacert, cert, key, servername, insecure } = self;
        let options = [
            (cacert.is_some(), "--cacert"),
            (cert.is_some() || key.is_some(), "--cert"),
            (servername.is_some(), "--servername"),
            (*insecure, "--insecure"),
        ];
        options.into_iter().find(|(is_given, _)| *is_given).map(|(_, option)| option)
    }

    /// The TLS configuration, if any option was given.
    pub(crate) fn client(&self) -> Option<tls::Client> {
        let has_options =
            self.cacert.is_some() || self.cert.is_some() || self.servername.is_some() || self.insecure;
        if !has_options {
            return None;
        }
        let mut tls = tls::Client::new();
        if let Some(path) = &self.cacert {
            tls = tls.ca(path.clone());
        }
        if let Some(certificate) = &self.cert {
            tls = tls.identity(identity(certificate, self.key.as_ref()));
        }
        if let Some(name) = &self.servername {
            tls = tls.server_name(name);
        }
        if self.insecure {
            tls = tls.dangerously_accept_any_certificate();
        }
        Some(tls)
    }
}

/// Server options of TLS.
#[derive(Debug, Args)]
pub(crate) struct ServerTlsOptions {
    /// Accept TLS as well, with the certificate in this PEM file, which is reloaded when it changes
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The key of --tls-cert [default: in the same file]
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Require client certificates issued by an authority in this PEM file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Reject plaintext connections
    #[arg(long, requires = "tls_cert")]
    tls_required: bool,
}

impl ServerTlsOptions {
    pub(crate) fn server(&self) -> Result<Option<tls::Server>, Failure> {
        self.build(false)
    }

    /// As `server`, but plaintext is always rejected.
    pub(crate) fn required_server(&self) -> Result<Option<tls::Server>, Failure> {
        self.build(true)
    }

    fn build(&self, reject_plaintext: bool) -> Result<Option<tls::Server>, Failure> {
        let Some(certificate) = &self.tls_cert else { return Ok(None) };
        let mut tls = tls::Server::builder(identity(certificate, self.tls_key.as_ref()))
            .reload_interval(RELOAD_INTERVAL)
            .on_reload(|result| match result {
                Ok(()) => terminal::print_error("the TLS certificates were reloaded"),
                Err(error) => {
                    terminal::print_error(format_args!(
                        "the TLS certificates were not reloaded: {}",
                        error.message()
                    ));
                }
            });
        if let Some(authorities) = &self.tls_client_ca {
            tls = tls.client_ca(authorities.clone());
        }
        if reject_plaintext || self.tls_required {
            tls = tls.reject_plaintext();
        }
        Ok(Some(tls.build()?))
    }
}

fn identity(certificate: &PathBuf, key: Option<&PathBuf>) -> Identity {
    Identity::new(certificate.clone(), key.unwrap_or(certificate).clone())
}

/// Interval at which the files are checked.
const RELOAD_INTERVAL: std::time::Duration = std::time::Duration::from_secs(5);
