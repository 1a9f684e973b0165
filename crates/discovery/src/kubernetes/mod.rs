//! Kubernetes: the pods of a service, from the control plane's endpoint slices. Read only, since Kubernetes registers
//! pods itself.
//!
//! URL syntax, after `kubernetes://`: `namespace/service:port`, the port by its name or number, optional if the service
//! has only one. Parameters: `api` (URL of the API, for example `kubectl proxy`'s; within a cluster it is found
//! automatically), `token` or `token-file`, `network` (`tcp`; for a UDP port `kcp` or `quic`).
//!
//! A pod may be called while it is ready. If none is, the pods that still serve while terminating are used, as in
//! kube-proxy. The zone and the node of each are the attributes `zone` and `node`.

mod resolver;
mod slices;

use std::path::PathBuf;
use std::sync::Arc;
use std::{env, fmt};

use ::http::Request;
use ::http::header::{ACCEPT, AUTHORIZATION, HeaderValue};
use bytes::Bytes;
use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{Discover, Network};

use crate::http::Http;
use crate::url_parts::UrlParts;

/// API of a cluster.
///
/// ```no_run
/// # fn main() -> polyrpc::Result<()> {
/// use polyrpc_discovery::kubernetes::Kubernetes;
///
/// let found = Kubernetes::in_cluster()?.service("default", "echo").port("grpc");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Kubernetes {
    http: Arc<Http>,
    token: Option<Token>,
}

/// Credential of the client.
#[derive(Clone)]
enum Token {
    Text(String),
    /// Read again regularly, since a service account's token is rotated about every hour.
    File(PathBuf),
}

impl Kubernetes {
    /// Uses the API at `http://host:port` or `https://host:port` (feature `tls`).
    ///
    /// # Errors
    ///
    /// If the URL is invalid. No connection is made yet.
    pub fn new(url: &str) -> Result<Self> {
        Ok(Self { http: Arc::new(Http::new(url, PORT)?), token: None })
    }

    /// Uses the API of the cluster in which this process runs, with the service account of its pod (feature `tls`). The
    /// account needs permission to `list` and `watch` the `endpointslices` of `discovery.k8s.io`.
    ///
    /// # Errors
    ///
    /// If the process does not run in a cluster.
    pub fn in_cluster() -> Result<Self> {
        let variable = |name| {
            env::var(name).map_err(|_| {
                Status::failed_precondition(format!("not in a Kubernetes pod: {name} is not set"))
            })
        };
        let host = variable("KUBERNETES_SERVICE_HOST")?;
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let url = format!("https://{host}:{}", variable("KUBERNETES_SERVICE_PORT")?);
        let api = Self::new(&url)?.token_file(format!("{ACCOUNT}/token"));
        #[cfg(feature = "tls")]
        let api =
            api.tls(polyrpc::tls::Client::new().ca(polyrpc::tls::Pem::file(format!("{ACCOUNT}/ca.crt"))));
        Ok(api)
    }

    /// Sets the token.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(Token::Text(token.into()));
        self
    }

    /// Reads the token from this file for each request.
    #[must_use]
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.token = Some(Token::File(path.into()));
        self
    }

    /// Sets the TLS configuration.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: polyrpc::tls::Client) -> Self {
        self.http = Arc::new(self.http.with_tls(tls));
        self
    }

    /// Discovers the pods of one service.
    pub fn service(&self, namespace: impl Into<String>, name: impl Into<String>) -> PodDiscovery {
        PodDiscovery {
            kubernetes: self.clone(),
            namespace: namespace.into(),
            service: name.into(),
            port: None,
            network: Network::Tcp,
        }
    }

    async fn request(&self, path_and_query: String) -> Result<Request<Bytes>, Status> {
        let wrong =
            |error: ::http::Error| Status::invalid_argument(format!("cannot query Kubernetes: {error}"));
        let mut request = Request::get(path_and_query).header(ACCEPT, "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.header().await?);
        }
        request.body(Bytes::new()).map_err(wrong)
    }
}

impl Token {
    async fn header(&self) -> Result<HeaderValue, Status> {
        let text = match self {
            Self::Text(text) => text.clone(),
            Self::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(&path)).await;
                let read = read.unwrap_or_else(|error| Err(std::io::Error::other(error)));
                read.map_err(|error| {
                    Status::unavailable(format!("cannot read the Kubernetes token: {error}"))
                })?
            }
        };
        let mut header = HeaderValue::try_from(format!("Bearer {}", text.trim()))
            .map_err(|_| Status::invalid_argument("the Kubernetes token is invalid"))?;
        header.set_sensitive(true);
        Ok(header)
    }
}

impl fmt::Debug for Kubernetes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubernetes").field("http", &self.http).finish_non_exhaustive()
    }
}

/// Pods of one service.
#[derive(Debug, Clone)]
pub struct PodDiscovery {
    kubernetes: Kubernetes,
    namespace: String,
    service: String,
    port: Option<String>,
    network: Network,
}

impl PodDiscovery {
    /// Sets the port, by its name or its number at the pods. Optional if there is only one.
    #[must_use]
    pub fn port(mut self, name_or_number: impl Into<String>) -> Self {
        self.port = Some(name_or_number.into());
        self
    }

    /// Sets the network of the instances. Default: TCP.
    #[must_use]
    pub fn network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }
}

impl fmt::Display for PodDiscovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.service)
    }
}

/// Opens the discovery of a service for the rest of a `kubernetes://` URL.
pub(crate) fn discover(rest: &str) -> Result<Box<dyn Discover>, Status> {
    let url = UrlParts::parse(rest)?;
    url.check_parameters(&PARAMETERS)?;
    let [service] = url.path.as_slice() else {
        return Err(Status::invalid_argument(
            "which service of Kubernetes? expected kubernetes://namespace/service:port",
        ));
    };
    let setting = |name| url.settings.value(name);
    let api = match setting("api") {
        Some(url) => Kubernetes::new(url),
        None => Kubernetes::in_cluster(),
    };
    let mut api = api.map_err(polyrpc::Error::into_status)?;
    match (setting("token"), setting("token-file")) {
        (Some(_), Some(_)) => {
            return Err(Status::invalid_argument(
                "Kubernetes needs either `token` or `token-file`, not both",
            ));
        }
        (Some(token), None) => api = api.token(token),
        (None, Some(path)) => api = api.token_file(path),
        (None, None) => {}
    }
    let (service, port) =
        service.split_once(':').map_or((&**service, None), |(name, port)| (name, Some(port)));
    let mut pods = api.service(&url.hosts, service);
    if let Some(port) = port {
        pods = pods.port(port);
    }
    if let Some(network) = setting("network") {
        pods = pods.network(network.parse()?);
    }
    Ok(Box::new(pods))
}

pub(crate) const PARAMETERS: [&str; 4] = ["api", "network", "token", "token-file"];
const PORT: u16 = 443;
/// Directory of a pod's service account credentials.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
