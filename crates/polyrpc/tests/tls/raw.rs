//! Raw TLS peers under the control of the test.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{JoinHandle, spawn};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme, StreamOwned,
};

use crate::authority::IssuedCertificate;

pub(crate) type ClientStream = StreamOwned<ClientConnection, TcpStream>;
pub(crate) type ServerStream = StreamOwned<ServerConnection, TcpStream>;

pub(crate) fn config(ca: &str, alpn: &[&[u8]]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Arc::new(config)
}

pub(crate) fn connect(address: &str, ca: &str, alpn: &[&[u8]]) -> ClientStream {
    connect_with(address, config(ca, alpn))
}

pub(crate) fn connect_with(address: &str, config: Arc<ClientConfig>) -> ClientStream {
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(config, name).unwrap();
    StreamOwned::new(connection, TcpStream::connect(address).unwrap())
}

/// A client that accepts every certificate.
pub(crate) fn without_verification() -> Arc<ClientConfig> {
    let config =
        ClientConfig::builder().dangerous().with_custom_certificate_verifier(Arc::new(NoVerification));
    Arc::new(config.with_no_client_auth())
}

#[derive(Debug)]
struct NoVerification;

impl ServerCertVerifier for NoVerification {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

/// Does only the handshake.
pub(crate) fn shake(stream: &mut ClientStream) {
    while stream.conn.is_handshaking() || stream.conn.wants_write() {
        stream.conn.complete_io(&mut stream.sock).unwrap();
    }
}

/// A ClientHello.
pub(crate) fn client_hello() -> Vec<u8> {
    let config = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let mut hello = Vec::new();
    ClientConnection::new(Arc::new(config), name).unwrap().write_tls(&mut hello).unwrap();
    hello
}

/// Whether these records end with an alert, plain or encrypted.
pub(crate) fn alerts(mut records: &[u8]) -> bool {
    let mut last = &records[..0];
    while let [kind, _, _, high, low, ..] = *records {
        let length = 5 + usize::from(u16::from_be_bytes([high, low]));
        last = if matches!(kind, 0x15 | 0x17) { &records[..length] } else { &records[..0] };
        records = &records[length..];
    }
    (6..40).contains(&last.len())
}

/// A server for one connection.
pub(crate) fn serve_once(
    issued: &IssuedCertificate,
    serve: impl FnOnce(&mut ServerStream) + Send + 'static,
) -> (String, JoinHandle<()>) {
    let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
    let config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let served = spawn(move || {
        let connection = ServerConnection::new(Arc::new(config)).unwrap();
        serve(&mut StreamOwned::new(connection, listener.accept().unwrap().0));
    });
    (address, served)
}
