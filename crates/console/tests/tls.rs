//! TLS on the admin listener, and callers with certificates.

#![cfg(feature = "tls")]

mod common;

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use common::{Answer, exchange, observe, send, services};
use polyrpc::tls::{self, Identity, Pem};
use polyrpc_console::settings::Setting;
use polyrpc_console::{Admin, AdminHandle, Console, Role};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A certificate authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Returns a certificate and its key.
    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    fn server(&self, optional: bool) -> tls::Server {
        let (certificate, key) = self.issue("localhost");
        let builder = tls::Server::builder(Identity::new(Pem::bytes(certificate), Pem::bytes(key)));
        let authorities = Pem::bytes(self.0.pem());
        match optional {
            true => builder.optional_client_ca(authorities),
            false => builder.client_ca(authorities),
        }
        .build()
        .unwrap()
    }

    /// Sends a request, with a certificate for this name.
    fn ask(&self, admin: &AdminHandle, name: Option<&str>, request: &str) -> Answer {
        let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(der(&self.0.pem())).unwrap();
        let builder = ClientConfig::builder().with_root_certificates(roots);
        let config = match name.map(|name| self.issue(name)) {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![der(&certificate)], key).unwrap()
            }
        };
        let connection = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap());
        let stream = TcpStream::connect(admin.address().to_string()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        exchange(StreamOwned::new(connection.unwrap(), stream), request)
    }
}

fn request(method: &str, target: &str, fields: &str, body: &str) -> String {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{length}{fields}\r\n{body}"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn certificate_is_a_credential_and_clear_text_none() {
    let (console, _server) = observe(services()).await;
    let authority = Authority::new();
    let setting = Setting::define("tls_test", 1_u64, "for a test").register();
    let admin =
        Admin::on("127.0.0.1:0").tls(authority.server(true)).client_certificates(Role::Write).writable();
    let admin = admin.token(Role::Read, "a-token-for-reading").start(&console).unwrap();
    let status = request("GET", "/status", "", "");
    let named = authority.ask(&admin, Some("ann.example"), &status);
    assert!(named.status == 200 && named.body.contains("[example.EchoService]"), "{named:?}");
    assert_eq!(authority.ask(&admin, None, &status).status, 401);
    let token = "Authorization: Bearer a-token-for-reading\r\n";
    assert_eq!(authority.ask(&admin, None, &request("GET", "/status", token, "")).status, 200);
    // A token would be seen on its way.
    assert_eq!(send(admin.address(), "GET", "/status", token, "").status, 403);

    // A browser presents a certificate by itself: it does not show an intention.
    let change = request("POST", "/flags/tls_test", "", "setvalue=2");
    assert_eq!(authority.ask(&admin, Some("ann.example"), &change).status, 403);
    assert_eq!(
        authority
            .ask(&admin, Some("ann.example"), &request("GET", "/flags/tls_test?setvalue=2", "", ""))
            .status,
        403
    );
    let browser = "User-Agent: Mozilla/5.0\r\n";
    let form = authority.ask(&admin, Some("ann.example"), &request("GET", "/flags", browser, "")).body;
    let form_token = form.split("name=token value=\"").nth(1).unwrap().split('"').next().unwrap();
    let change = request("POST", "/flags/tls_test", browser, &format!("setvalue=2&token={form_token}"));
    assert_eq!((authority.ask(&admin, Some("ann.example"), &change).status, setting.get()), (303, 2));
    let changes =
        authority.ask(&admin, Some("bob.example"), &request("GET", "/flags?format=json", "", "")).body;
    assert!(changes.contains("ann.example from 127.0.0.1:"), "{changes}");
}

#[test]
fn other_addresses_may_have_certificates_instead_of_tokens() {
    let authority = Authority::new();
    let console = Console::new();
    let without_tls = Admin::on("0.0.0.0:0").client_certificates(Role::Read).start(&console).unwrap_err();
    assert!(without_tls.to_string().contains("client certificates need TLS"), "{without_tls}");
    // A certificate of the server alone says nothing about its callers.
    let unproven = Admin::on("0.0.0.0:0").tls(authority.server(true)).start(&console).unwrap_err();
    assert!(unproven.to_string().contains("can be reached from elsewhere"), "{unproven}");
    let admin = Admin::on("0.0.0.0:0").tls(authority.server(false)).client_certificates(Role::Read);
    admin.start(&console).unwrap();
}
