//! TLS: every protocol with and without TLS on one port, client certificates, and certificates that
//! are replaced while the server runs.
//!
//! The certificates are generated here; a real server has them in files.

use polyrpc::server::Listen;
use polyrpc::tls::{self, Identity, Pem};
use polyrpc::{Client, Context, Result, Server};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

#[polyrpc::service]
trait Door {
    /// Returns the name of the caller's certificate.
    async fn knock(&self, cx: &mut Context) -> Result<String>;
}

struct Porter;

impl Door for Porter {
    async fn knock(&self, cx: &mut Context) -> Result<String> {
        let names = cx.peer().tls().map(|secured| secured.names()).unwrap_or_default();
        Ok(names.first().cloned().unwrap_or_else(|| "an anonymous caller".into()))
    }
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let authority = Authority::new()?;

    let tls =
        tls::Server::builder(authority.issue("localhost")?).optional_client_ca(authority.pem()).build()?;
    let listen = Listen::on("localhost:0").tls(tls.clone());
    let server = Server::new().service(DoorServer::new(Porter)).bind(listen).await?.start();
    let port = server.address().to_string().rsplit(':').next().unwrap_or_default().to_owned();

    let ann = tls::Client::new().ca(authority.pem()).identity(authority.issue("ann.example")?);
    for protocol in ["baidu-std+tls", "rpcx+tls", "grpcs", "https", "rpcx"] {
        let mut client = Client::builder(&format!("{protocol}://localhost:{port}"));
        if protocol != "rpcx" {
            client = client.tls(ann.clone());
        }
        let name = DoorClient::new(client.build()?).knock().await?;
        println!("{protocol}: the door knows {name}");
    }

    // With files, call this after they were replaced; `Builder::reload_interval` does it automatically.
    tls.reload()?;
    Ok(())
}

/// A certificate authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    fn pem(&self) -> Pem {
        Pem::bytes(self.0.pem())
    }

    fn issue(&self, name: &str) -> Result<Identity, rcgen::Error> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new([name.to_owned()])?.signed_by(&key, &self.0)?;
        Ok(Identity::new(Pem::bytes(certificate.pem()), Pem::bytes(key.serialize_pem())))
    }
}
