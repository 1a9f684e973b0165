use std::sync::{Arc, OnceLock};
use std::time::Duration;

use polyrpc_core::Status;
use polyrpc_wire::Protocol;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::identity::Identity;
use super::named::NamedAuthorities;
use super::pem::{Pem, Stamp};
use super::provider;
use super::report::Report;

/// TLS settings of a client: verification of the server, and the client's identity.
///
/// By default, the server's certificate must be valid for the host in the URL and issued by an authority that the
/// system trusts.
///
/// ```no_run
/// # fn main() -> polyrpc::Result<()> {
/// use polyrpc::Client;
/// use polyrpc::tls::{self, Identity};
///
/// let tls = tls::Client::new().ca("ca.pem").identity(Identity::new("client.pem", "client.key"));
/// let client = Client::builder("grpcs://10.0.0.1:8443").tls(tls.server_name("echo.example")).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Client {
    authorities: Vec<Pem>,
    identity: Option<Identity>,
    server_name: Option<String>,
    accepts_any: bool,
    reload_interval: Option<Duration>,
    report: Report,
}

impl Client {
    /// Creates settings that trust the system's authorities.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts these authorities instead of those of the system.
    #[must_use]
    pub fn ca(mut self, authorities: impl Into<Pem>) -> Self {
        self.authorities.push(authorities.into());
        self
    }

    /// Sends this certificate to a server that requests one.
    #[must_use]
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Requests this server name, and requires a certificate for it, regardless of the host in the URL.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Accepts any certificate: a man in the middle can read and change everything.
    #[must_use]
    pub fn dangerously_accept_any_certificate(mut self) -> Self {
        self.accepts_any = true;
        self
    }

    /// Checks for changed files when connecting, once per interval at most, and reloads all of them if one
    /// has changed: certificate, key and authorities. New connections use the new ones; existing connections
    /// are not affected. An error in new files is a `tracing` event of level WARN, or passed to
    /// [`on_reload`](Self::on_reload); the old files remain in use until it is fixed.
    #[must_use]
    pub fn reload_interval(mut self, interval: Duration) -> Self {
        self.reload_interval = Some(interval.max(Duration::from_millis(10)));
        self
    }

    /// Sets the function that is called when changed files were [reloaded](Self::reload_interval), and when
    /// that failed. It must not block.
    #[must_use]
    pub fn on_reload(
        mut self,
        report: impl Fn(&crate::error::ClientResult<()>) + Send + Sync + 'static,
    ) -> Self {
        self.report = Report::new(report);
        self
    }

    /// Returns the interval of checking its files.
    pub(super) fn watch_interval(&self) -> Option<Duration> {
        self.reload_interval
    }

    pub(super) fn report(&self) -> &Report {
        &self.report
    }

    pub(super) fn stamps(&self) -> Vec<Option<Stamp>> {
        let identity = self.identity.iter().flat_map(Identity::stamps);
        identity.chain(self.authorities.iter().map(Pem::stamp)).collect()
    }

    /// Returns rustls's configuration for an HTTP/1.1 connection to this host: for the project's own crates with
    /// another transport. Not part of the public API.
    ///
    /// # Errors
    ///
    /// If a certificate or a key cannot be read, or the host is not a valid name.
    #[doc(hidden)]
    pub fn prepare(&self, host: &str) -> Result<(Arc<ClientConfig>, ServerName<'static>), Status> {
        Ok((Arc::new(self.config(Protocol::Http)?), name(self.name(host))?))
    }

    /// Returns the name that a server's certificate must be valid for.
    pub(crate) fn name<'a>(&'a self, host: &'a str) -> &'a str {
        self.server_name.as_deref().unwrap_or(host)
    }

    pub(crate) fn config(&self, protocol: Protocol) -> Result<ClientConfig, Status> {
        let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let config = config.map_err(|error| config_error(&error))?;
        let config = match self.accepts_any {
            true => config.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider()))),
            false if self.authorities.is_empty() => config.with_root_certificates(system_roots()?),
            false => config.dangerous().with_custom_certificate_verifier(Arc::new(self.named_authorities()?)),
        };
        let mut config = match &self.identity {
            None => config.with_no_client_auth(),
            Some(identity) => {
                config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity.load()?)))
            }
        };
        // Sent only to servers known to require ALPN.
        if let Some(name) = protocol.descriptor().alpn {
            config.alpn_protocols = vec![name.into()];
        }
        Ok(config)
    }

    /// Returns a verifier that trusts the configured authorities.
    fn named_authorities(&self) -> Result<NamedAuthorities, Status> {
        let mut certificates = Vec::new();
        let mut roots = RootCertStore::empty();
        for pem in &self.authorities {
            for certificate in pem.certificates()? {
                roots.add(certificate.clone()).map_err(|error| {
                    Status::invalid_argument(format!(
                        "a certificate in {pem} is not a certificate authority: {error}"
                    ))
                })?;
                certificates.push(certificate);
            }
        }
        NamedAuthorities::new(roots, certificates).map_err(|error| config_error(&error))
    }
}

fn system_roots() -> Result<Arc<RootCertStore>, Status> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    if let Some(roots) = ROOTS.get() {
        return Ok(roots.clone());
    }
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // A system's collection may contain invalid certificates; the others remain usable.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        return Err(Status::failed_precondition(format!(
            "the system trusts no certificate authority{why}: name one"
        )));
    }
    Ok(ROOTS.get_or_init(|| Arc::new(roots)).clone())
}

pub(super) fn name(host: &str) -> Result<ServerName<'static>, Status> {
    ServerName::try_from(host.to_owned())
        .map_err(|_| Status::invalid_argument(format!("`{host}` is not a name that a certificate can have")))
}

fn config_error(error: &Error) -> Status {
    Status::internal(format!("TLS cannot be used: {error}"))
}

/// Accepts any certificate. That the server has the private key of its certificate is still verified.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
