//! The built command with TLS, as users run it.

use std::fs;

use crate::authority::Authority;
use crate::running::{Ran, Server, TempDir, polyrpc};

/// Files of a certificate authority and its certificates.
struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Self {
        let (folder, authority) = (TempDir::new(), Authority::new("authority"));
        let files = Self { folder };
        fs::write(files.path("ca.pem"), authority.pem()).unwrap();
        for (name, issued) in [
            ("server", authority.issue(&["127.0.0.1", "echo.example"])),
            ("client", authority.issue(&["ann.example"])),
        ] {
            fs::write(files.path(&format!("{name}.pem")), &issued.certificate).unwrap();
            fs::write(files.path(&format!("{name}.key")), &issued.key).unwrap();
        }
        let both = authority.issue(&["ann.example"]);
        fs::write(files.path("both.pem"), both.certificate + &both.key).unwrap();
        files
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

fn echo(url: &str, more: &[&str]) -> Ran {
    let call = ["call", url, "example.EchoService/Echo", r#"{"message":"hi"}"#];
    polyrpc(call.iter().chain(more))
}

const SCHEMES: [&str; 5] = ["baidu-std+tls", "rpcx+tls", "grpcs", "https", "https?dialect=json-rpc"];

#[test]
fn server_with_a_certificate_accepts_tls_and_plaintext() {
    let files = Files::new();
    let (certificate, key, ca) = (files.path("server.pem"), files.path("server.key"), files.path("ca.pem"));
    let server = Server::serve(["--tls-cert", &certificate, "--tls-key", &key]);
    for scheme in SCHEMES {
        let url = server.url(scheme);
        for trust in
            [&["--cacert", &ca][..], &["--insecure"], &["--cacert", &ca, "--servername", "echo.example"]]
        {
            assert_eq!(echo(&url, trust).json()["message"], "hi", "{scheme} {trust:?}");
        }
        let untrusted = echo(&url, &["--cacert", &files.path("both.pem")]);
        assert!(untrusted.stderr.contains("not trusted"), "{untrusted:?}");
        let elsewhere = echo(&url, &["--cacert", &ca, "--servername", "other.example"]);
        assert!(elsewhere.stderr.contains("not for other.example"), "{elsewhere:?}");
    }
    assert_eq!(echo(&server.url("rpcx"), &[]).json()["message"], "hi");
    let plain = echo(&server.url("rpcx"), &["--cacert", &ca]);
    assert!(plain.stderr.contains("write +tls"), "{plain:?}");

    let listed = polyrpc(["list", &server.url("grpcs"), "--cacert", &ca]);
    assert!(listed.stdout.contains("example.EchoService"), "{listed:?}");
    let url = server.url("rpcx+tls");
    let bench = ["bench", &url, "example.EchoService/Echo", "--size", "10", "-n", "20", "--warmup", "0s"];
    let bench = polyrpc(bench.iter().chain(&["--cacert", ca.as_str()]));
    assert_eq!(bench.code, 0, "{bench:?}");
    assert!(server.stop().success());
}

#[test]
fn server_can_require_client_certificates() {
    let files = Files::new();
    let (certificate, key, ca) = (files.path("server.pem"), files.path("server.key"), files.path("ca.pem"));
    let server = ["--tls-cert", &certificate, "--tls-key", &key, "--tls-client-ca", &ca, "--tls-required"];
    let server = Server::serve(server);
    let (client, client_key, both) =
        (files.path("client.pem"), files.path("client.key"), files.path("both.pem"));
    for scheme in SCHEMES {
        let url = server.url(scheme);
        for shown in [&["--cert", client.as_str(), "--key", &client_key][..], &["--cert", &both]] {
            let ran = polyrpc(
                ["call", &url, "example.EchoService/Echo", r#"{"message":"hi"}"#, "--cacert", &ca]
                    .iter()
                    .chain(shown),
            );
            assert_eq!(ran.json()["message"], "hi", "{scheme} {shown:?}");
        }
        let nobody = echo(&url, &["--cacert", &ca]);
        assert!(nobody.stderr.contains("requires a client certificate"), "{nobody:?}");
    }
    assert_eq!(echo(&server.url("rpcx"), &[]).code, 78);
}

#[test]
fn unusable_certificate_is_reported_at_startup() {
    let files = Files::new();
    let (certificate, key) = (files.path("server.pem"), files.path("client.key"));
    let ran = polyrpc(["serve", "--listen", "127.0.0.1:0", "--tls-cert", &certificate, "--tls-key", &key]);
    assert!(ran.stderr.contains("is not that of the certificate"), "{ran:?}");
    let ran = polyrpc(["serve", "--listen", "127.0.0.1:0", "--tls-cert", "/no/such.pem"]);
    assert!(ran.stderr.contains("cannot read /no/such.pem"), "{ran:?}");
}
