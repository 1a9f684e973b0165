//! Listeners as the configuration describes them: everything about them but the socket.

use std::time::Duration;

use polyrpc::layers::auth;
use polyrpc::tls::{self, Identity};
use polyrpc::{Address, Status, server};
use polyrpc_console::{Admin as AdminListener, Role};

use crate::config::{Admin, Config, Lined, Listen, ServerTls};
use crate::config_error::ConfigError;
use crate::origin::Proxies;

/// Reads what the listeners and the admin listener need, as starting does. Nothing listens. Returns everything that is wrong.
pub(crate) fn check(config: &Config) -> Vec<ConfigError> {
    let listeners = config.listen.iter().filter_map(|spec| prepare(spec).err());
    let admin = config.admin.iter().filter_map(|spec| {
        let wrong =
            |error: std::io::Error| ConfigError::new(spec.line_of("listen"), format!("[admin]: {error}"));
        admin(spec).and_then(|admin| admin.check().map_err(wrong)).err()
    });
    listeners.chain(admin).collect()
}

/// Returns what a listener is bound with, and its proxies.
///
/// # Errors
///
/// If the address is invalid, or if a certificate, a secret or a network cannot be used.
pub(crate) fn prepare(spec: &Lined<Listen>) -> Result<(server::Listen, Proxies), ConfigError> {
    let wrong = |key: &'static str| {
        move |text: String| ConfigError::new(spec.line_of(key), format!("`{key}`: {text}"))
    };
    let parsed: Result<Address, Status> = spec.address.parse();
    parsed.map_err(|status| wrong("address")(status.message().to_owned()))?;
    let proxies = Proxies::new(&spec.trusted).map_err(wrong("trusted"))?;
    let mut listen = server::Listen::on(&spec.address);
    if !spec.protocols.is_empty() {
        listen = listen.protocols(spec.protocols());
    }
    if let Some(tls) = &spec.tls {
        listen = listen.tls(server_tls(tls).map_err(wrong("tls"))?);
    }
    if spec.proxy_protocol {
        let proxied = listen.proxy_protocol(&spec.trusted);
        listen = proxied.map_err(|error| wrong("trusted")(error.message().to_owned()))?;
    }
    if !spec.tokens.is_empty() {
        let tokens = spec.tokens.iter().map(|token| token.read()).collect::<Result<Vec<_>, _>>();
        listen = with_tokens(listen, tokens.map_err(wrong("tokens"))?);
    }
    Ok((listen, proxies))
}

/// Returns the admin listener.
///
/// # Errors
///
/// If its token cannot be read.
pub(crate) fn admin(spec: &Lined<Admin>) -> Result<AdminListener, ConfigError> {
    let mut admin = AdminListener::on(&spec.listen);
    if let Some(token) = &spec.read_token {
        let wrong =
            |text| ConfigError::new(spec.line_of("read_token"), format!("[admin]: `read_token`: {text}"));
        admin = admin.token(Role::Read, token.read().map_err(wrong)?);
    }
    Ok(admin)
}

fn with_tokens(listen: server::Listen, tokens: Vec<String>) -> server::Listen {
    let check = auth::tokens(tokens);
    listen.authenticate(move |credential, peer| {
        check(credential, peer)
            .map_err(|_| Status::unauthenticated("polyrpc-gateway: the credential is invalid"))
    })
}

fn server_tls(spec: &ServerTls) -> Result<tls::Server, String> {
    let identity = Identity::new(spec.cert.clone(), spec.key.clone());
    let mut tls = tls::Server::builder(identity).reload_interval(TLS_RELOAD_INTERVAL);
    if let Some(ca) = &spec.client_ca {
        tls = tls.client_ca(ca.clone());
    }
    if spec.required {
        tls = tls.reject_plaintext();
    }
    tls.build().map_err(|error| error.to_string())
}

/// Interval at which certificates are checked for changes.
const TLS_RELOAD_INTERVAL: Duration = Duration::from_secs(5);
