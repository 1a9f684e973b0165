use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use polyrpc_core::Status;
use polyrpc_wire::Protocol;
use rustls::crypto::ring::Ticketer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};

use super::identity::Identity;
use super::pem::{Pem, Stamp};
use super::provider;
use super::report::Report;
use crate::error::ClientResult as Result;

/// TLS configuration of a server: its certificates, and whether clients need one. Set on listeners by
/// [`Listen::tls`](crate::server::Listen::tls).
///
/// Clones share their certificates: [`reload`](Self::reload) on any of them takes effect for all.
///
/// ```no_run
/// # fn main() -> polyrpc::Result<()> {
/// use std::time::Duration;
/// use polyrpc::tls::{self, Identity};
///
/// let tls = tls::Server::builder(Identity::new("server.pem", "server.key"))
///     .client_ca("clients.pem")
///     .reload_interval(Duration::from_secs(10))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Server(Arc<Inner>);

struct Inner {
    settings: Builder,
    loaded: RwLock<Arc<LoadedConfig>>,
}

/// The contents of the files.
struct LoadedConfig {
    config: ServerConfig,
    /// Stamps of the files, taken just before they were read.
    stamps: Vec<Option<Stamp>>,
}

impl Server {
    /// Creates a configuration with this certificate, without client certificates.
    ///
    /// # Errors
    ///
    /// If certificate and key cannot be read or do not match.
    pub fn new(identity: Identity) -> Result<Self> {
        Self::builder(identity).build()
    }

    /// Creates a builder with this certificate.
    pub fn builder(identity: Identity) -> Builder {
        Builder {
            identities: vec![identity],
            clients: Clients::Unasked,
            reject_plaintext: false,
            reload_interval: None,
            report: Report::default(),
        }
    }

    /// Reloads certificates and keys. New connections use the new ones; existing connections are not affected. Earlier
    /// sessions cannot be resumed, since a client may no longer be trusted.
    ///
    /// # Errors
    ///
    /// If the new files are invalid. The old ones stay in use then.
    pub fn reload(&self) -> Result<()> {
        let loaded = Arc::new(self.0.settings.load()?);
        *self.0.loaded.write().unwrap_or_else(PoisonError::into_inner) = loaded;
        Ok(())
    }

    /// Returns the TLS configuration of a listener for these protocols.
    pub(crate) fn config(&self, protocols: &[Protocol]) -> ServerConfig {
        let mut config = self.loaded().config.clone();
        config.alpn_protocols =
            protocols.iter().map(|protocol| protocol.descriptor().alpn().into()).collect();
        config
    }

    /// Returns a secret that outlives the process: the private key of the first certificate, as it is now.
    #[cfg(feature = "quic")]
    pub(crate) fn secret(&self) -> std::io::Result<rustls::pki_types::PrivateKeyDer<'static>> {
        self.0.settings.identities[0].key().map_err(std::io::Error::other)
    }

    /// Returns whether a file has changed since it was read.
    pub(super) fn is_stale(&self) -> bool {
        self.0.settings.stamps() != self.loaded().stamps
    }

    /// Returns whether plaintext is rejected.
    pub(super) fn is_required(&self) -> bool {
        self.0.settings.reject_plaintext
    }

    /// Returns the interval at which its files are checked.
    pub(super) fn watch_interval(&self) -> Option<Duration> {
        self.0.settings.reload_interval
    }

    pub(super) fn report(&self) -> &Report {
        &self.0.settings.report
    }

    fn loaded(&self) -> Arc<LoadedConfig> {
        self.0.loaded.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.settings, f)
    }
}

/// Builder for a [`Server`].
#[derive(Debug)]
pub struct Builder {
    identities: Vec<Identity>,
    clients: Clients,
    reject_plaintext: bool,
    reload_interval: Option<Duration>,
    report: Report,
}

/// Requirement for client certificates.
#[derive(Debug)]
enum Clients {
    Unasked,
    Asked { authorities: Pem, required: bool },
}

impl Builder {
    /// Adds a certificate. A client receives the first one that is valid for the requested name, or the very first one
    /// if there is none.
    #[must_use]
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identities.push(identity);
        self
    }

    /// Requires clients to have a certificate of one of these authorities. [`Context::peer`](crate::Context::peer)
    /// returns whose it is.
    #[must_use]
    pub fn client_ca(mut self, authorities: impl Into<Pem>) -> Self {
        self.clients = Clients::Asked { authorities: authorities.into(), required: true };
        self
    }

    /// Also accepts clients without a certificate; one that is presented must be of one of these authorities.
    #[must_use]
    pub fn optional_client_ca(mut self, authorities: impl Into<Pem>) -> Self {
        self.clients = Clients::Asked { authorities: authorities.into(), required: false };
        self
    }

    /// Rejects plaintext connections; by default they are accepted too.
    #[must_use]
    pub fn reject_plaintext(mut self) -> Self {
        self.reject_plaintext = true;
        self
    }

    /// Checks at this interval whether a file has changed, and [reloads](Server::reload) all if one has. An error in
    /// new files is a `tracing` event of level WARN, or passed to [`on_reload`](Self::on_reload); the old ones stay in
    /// use until it is fixed.
    #[must_use]
    pub fn reload_interval(mut self, interval: Duration) -> Self {
        self.reload_interval = Some(interval.max(Duration::from_millis(10)));
        self
    }

    /// Sets a callback for each reload of [changed](Self::reload_interval) files, successful or not. It must
    /// not block.
    #[must_use]
    pub fn on_reload(mut self, report: impl Fn(&Result<()>) + Send + Sync + 'static) -> Self {
        self.report = Report::new(report);
        self
    }

    /// Loads the files.
    ///
    /// # Errors
    ///
    /// If certificates and keys cannot be read or do not match.
    pub fn build(self) -> Result<Server> {
        let loaded = self.load()?;
        Ok(Server(Arc::new(Inner { settings: self, loaded: RwLock::new(Arc::new(loaded)) })))
    }

    fn load(&self) -> Result<LoadedConfig, Status> {
        let stamps = self.stamps();
        let identities = self.identities.iter().map(Identity::load).collect::<Result<_, _>>()?;
        let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let mut config = config
            .map_err(|error| config_error(&error))?
            .with_client_cert_verifier(self.clients.verifier()?)
            .with_cert_resolver(Arc::new(Certificates::new(identities)));
        config.ticketer = Ticketer::new().map_err(|error| config_error(&error))?;
        Ok(LoadedConfig { config, stamps })
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        let identities = self.identities.iter().flat_map(Identity::stamps);
        let authorities = match &self.clients {
            Clients::Unasked => None,
            Clients::Asked { authorities, .. } => Some(authorities.stamp()),
        };
        identities.chain(authorities).collect()
    }
}

impl Clients {
    fn verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, Status> {
        let Self::Asked { authorities, required } = self else {
            return Ok(WebPkiClientVerifier::no_client_auth());
        };
        let mut roots = RootCertStore::empty();
        for certificate in authorities.certificates()? {
            roots.add(certificate).map_err(|error| {
                Status::invalid_argument(format!(
                    "a certificate in {authorities} is not a certificate authority: {error}"
                ))
            })?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
        let verifier = if *required { verifier } else { verifier.allow_unauthenticated() };
        verifier.build().map_err(|error| Status::invalid_argument(format!("{authorities}: {error}")))
    }
}

fn config_error(error: &rustls::Error) -> Status {
    Status::internal(format!("TLS cannot be used: {error}"))
}

/// The certificates of a server and the names they are valid for.
#[derive(Debug)]
struct Certificates(Vec<Certificate>);

#[derive(Debug)]
struct Certificate {
    key: Arc<CertifiedKey>,
    names: Vec<String>,
}

impl Certificates {
    fn new(keys: Vec<Arc<CertifiedKey>>) -> Self {
        let with_names = |key: Arc<CertifiedKey>| Certificate { names: names(&key), key };
        Self(keys.into_iter().map(with_names).collect())
    }
}

impl ResolvesServerCert for Certificates {
    /// Returns a certificate that is valid for the name and that the client can verify; otherwise the first one that it
    /// can verify.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let requested_name = hello.server_name();
        let named = self.0.iter().filter(|each| requested_name.is_some_and(|name| covers(&each.names, name)));
        let mut candidates = named.chain(&self.0).map(|each| &each.key);
        candidates.find(|key| key.key.choose_scheme(hello.signature_schemes()).is_some()).cloned()
    }
}

/// Returns whether one of a certificate's names matches this one.
fn covers(names: &[String], name: &str) -> bool {
    names.iter().any(|own| match own.strip_prefix("*.") {
        None => own.eq_ignore_ascii_case(name),
        // A wildcard stands for one label (RFC 6125, section 6.4.3).
        Some(own) => name.split_once('.').is_some_and(|(_, rest)| own.eq_ignore_ascii_case(rest)),
    })
}

/// Returns the names of the certificate; none if they cannot be parsed, so that it is only used as a fallback.
fn names(key: &CertifiedKey) -> Vec<String> {
    let certificate = key.end_entity_cert().ok().and_then(|der| webpki::EndEntityCert::try_from(der).ok());
    certificate.iter().flat_map(|certificate| certificate.valid_dns_names()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcard_matches_one_label() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let is_for = |own: &[&str], name: &str| covers(&names(own), name);
        assert!(is_for(&["a.example"], "A.example"));
        assert!(is_for(&["b.example", "*.a.example"], "x.a.example"));
        assert!(!is_for(&["*.a.example"], "a.example"));
        assert!(!is_for(&["*.a.example"], "y.x.a.example"));
        assert!(!is_for(&[], "a.example"));
    }
}
