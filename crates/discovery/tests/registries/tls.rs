//! Registries over TLS.

use std::sync::Arc;

use crate::fake::{Fake, Reply, next, next_set};
use futures_util::FutureExt;
use polyrpc::discovery::Discover;
use polyrpc::tls::{self, Pem};
use polyrpc_discovery::consul::Consul;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{ServerConfig, crypto::ring, pki_types::PrivatePkcs8KeyDer};

/// A TLS proxy in front of a plaintext server; returns its port, and the certificate.
async fn secured(server: String) -> (u16, Pem) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key.into())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("localhost:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, server) = (acceptor.clone(), server.clone());
            tokio::spawn(async move {
                let Ok(mut outer) = acceptor.accept(stream).await else { return };
                let mut inner = TcpStream::connect(server).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut outer, &mut inner).await;
            });
        }
    });
    (port, Pem::bytes(cert.pem()))
}

#[tokio::test]
async fn registry_is_reached_over_tls_if_its_certificate_is_trusted() {
    let fake = Fake::start(|asked| {
        // Later responses are not awaited.
        let later = asked.query.value("index").is_some();
        let reply = Reply::Whole(200, vec![("X-Consul-Index", "1".to_owned())], "[]".to_owned());
        if later { std::future::pending().left_future() } else { std::future::ready(reply).right_future() }
    })
    .await;
    let (port, authority) = secured(fake.address.clone()).await;
    let consul = Consul::new(&format!("https://localhost:{port}")).unwrap();

    let trusting = consul.clone().tls(tls::Client::new().ca(authority.clone()));
    assert!(next_set(&mut trusting.services().service("S").watch()).await.is_empty());

    let elsewhere = Consul::new(&format!("https://127.0.0.1:{port}")).unwrap();
    let elsewhere = elsewhere.tls(tls::Client::new().ca(authority));
    let error = next(&mut elsewhere.services().service("S").watch()).await.unwrap_err();
    assert!(error.message().contains("certificate"), "{error:?}");

    let other = generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem();
    let wary = consul.tls(tls::Client::new().ca(Pem::bytes(other)));
    let error = next(&mut wary.services().service("S").watch()).await.unwrap_err();
    assert!(error.message().contains("certificate"), "{error:?}");
}
