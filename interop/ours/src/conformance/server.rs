use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use buffa::Message;
use polyrpc::Server;
use polyrpc::server::{Limits, Listen};
use polyrpc::tls::{self, Identity, Pem};

use crate::length_prefixed;
use crate::proto::{ConformanceServiceServer, ServerCompatRequest, ServerCompatResponse};
use crate::service::Conformance;

/// Serves as the suite asks on standard input.
pub(crate) async fn run() -> Result<(), Box<dyn Error>> {
    let asked = length_prefixed::read(&mut io::stdin().lock())?.ok_or("nothing is asked for")?;
    let asked = ServerCompatRequest::decode_from_slice(&asked)?;
    let mut server = Server::new().service(ConformanceServiceServer::new(Conformance));
    if asked.message_receive_limit > 0 {
        let limit = asked.message_receive_limit as usize;
        server = server.limits(Limits { message: limit, decompressed: limit, ..Limits::default() });
    }
    let (mut listen, mut pem_cert) = (Listen::on("127.0.0.1:0"), Default::default());
    if asked.use_tls {
        let credentials = asked.server_creds.as_option().ok_or("no certificate for TLS")?;
        pem_cert = credentials.cert.clone();
        listen = listen.tls(secure(&asked)?);
    }
    let bound = server.bind(listen).await?;
    let address: SocketAddr = bound.address().to_string().parse()?;
    let reported = ServerCompatResponse {
        host: address.ip().to_string(),
        port: address.port().into(),
        pem_cert,
        ..Default::default()
    };
    length_prefixed::write(&mut io::stdout().lock(), &reported.encode_to_vec())?;
    bound.run_until(std::future::pending(), Duration::ZERO).await;
    Ok(())
}

/// TLS and nothing else, with certificates of clients if they are to have some.
fn secure(asked: &ServerCompatRequest) -> Result<tls::Server, Box<dyn Error>> {
    let credentials = asked.server_creds.as_option().cloned().unwrap_or_default();
    let identity = Identity::new(Pem::bytes(credentials.cert), Pem::bytes(credentials.key));
    let mut tls = tls::Server::builder(identity).reject_plaintext();
    if !asked.client_tls_cert.is_empty() {
        tls = tls.client_ca(Pem::bytes(asked.client_tls_cert.clone()));
    }
    Ok(tls.build()?)
}
