use polyrpc::tls::{self, Identity};
use polyrpc::{Client, Format, Protocol};

use super::formats;
use crate::config::{Config, Credential, Upstream as Spec, UpstreamTls};

/// Servers that calls go to, and their connections.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) spec: Spec,
    pub(crate) client: Client,
}

impl Upstream {
    pub(super) fn new(spec: Spec) -> Result<Self, String> {
        let mut builder = Client::builder(&spec.url);
        if let Some(timeout) = spec.timeout {
            builder = builder.timeout(timeout.0);
        }
        if let Some(timeout) = spec.connect_timeout {
            builder = builder.connect_timeout(timeout.0);
        }
        if let Some(retries) = spec.retries {
            builder = builder.retries(retries);
        }
        if spec.idempotent {
            builder = builder.idempotent();
        }
        if let Credential::Replace(secret) = &spec.credential {
            builder = builder.credential(secret.read()?);
        }
        if let Some(tls) = &spec.tls {
            builder = builder.tls(client_tls(tls));
        }
        let client = builder.build().map_err(|error| error.to_string())?;
        Ok(Self { spec, client })
    }

    /// The format of messages for this upstream, if callers send `from`.
    pub(crate) fn format(&self, from: Format) -> Format {
        match self.spec.format {
            Some(wire) => wire.format(self.client.protocol()),
            None => formats::towards(&self.client, from),
        }
    }

    /// Why the caller's credential cannot be passed on, if it should and cannot.
    pub(super) fn cannot_pass_credentials(&self, config: &Config) -> Option<String> {
        if self.spec.credential != Credential::Pass {
            return None;
        }
        let is_metadata = |protocol: Protocol| protocol.descriptor().capabilities.has_fields();
        let to = self.client.protocol();
        if !is_metadata(to) {
            return Some(format!(
                "`{}` cannot pass credentials: in {} they belong to a connection, which calls share",
                self.spec.name,
                to.as_str()
            ));
        }
        let mut callers = config.listen.iter().flat_map(|listen| listen.protocols());
        callers.find(|protocol| !is_metadata(*protocol)).map(|from| {
            format!(
                "`{}` cannot pass credentials of {} callers; restrict the `protocols` of each listener to grpc and http",
                self.spec.name,
                from.as_str()
            )
        })
    }
}

fn client_tls(spec: &UpstreamTls) -> tls::Client {
    let mut tls = tls::Client::new();
    if let Some(ca) = &spec.ca {
        tls = tls.ca(ca.clone());
    }
    if let Some(cert) = &spec.cert {
        tls = tls.identity(Identity::new(cert.clone(), spec.key.as_ref().unwrap_or(cert).clone()));
    }
    if let Some(name) = &spec.server_name {
        tls = tls.server_name(name);
    }
    tls
}
