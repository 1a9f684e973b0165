//! quinn by itself, with its own settings: a server that echoes one stream of each connection, and its client.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::pem::PemObject;
use quinn::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use quinn::{ClientConfig, Connection, Endpoint, Incoming, RecvStream, SendStream, ServerConfig};
use rcgen::{CertificateParams, KeyPair};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

/// Arguments of the server.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Address to listen on.
    #[arg(long)]
    listen: SocketAddr,
}

/// The line of JSON that the server prints once it listens.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Listening {
    address: SocketAddr,
    /// The certificate that clients trust, as PEM.
    certificate: String,
}

/// Length of an echo, in bytes.
pub(super) const LENGTH: usize = 16 << 10;

/// Echoes in flight: more bytes than a window on bad networks.
pub(super) const IN_FLIGHT: usize = 16;

/// Bytes that have arrived so far.
pub(super) type ByteCounter = Arc<AtomicU64>;

/// Name in the certificate.
const NAME: &str = "localhost";

/// Serves until standard input closes.
#[tokio::main]
pub(crate) async fn serve(options: &Options) -> io::Result<()> {
    let key = KeyPair::generate().map_err(io::Error::other)?;
    let certificate =
        CertificateParams::new(vec![NAME.to_owned()]).and_then(|params| params.self_signed(&key));
    let certificate = certificate.map_err(io::Error::other)?;
    let private = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).map_err(io::Error::other)?;
    let config = ServerConfig::with_single_cert(vec![certificate.der().clone()], private);
    let endpoint = Endpoint::server(config.map_err(io::Error::other)?, options.listen)?;
    let listening = Listening { address: endpoint.local_addr()?, certificate: certificate.pem() };
    println!("{}", serde_json::to_string(&listening)?);
    io::stdout().flush()?;
    std::thread::spawn(|| {
        // The parent has exited, or needs it no longer.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    while let Some(incoming) = endpoint.accept().await {
        // A client that goes away ends its connection with an error.
        tokio::spawn(async move { drop(answer(incoming).await) });
    }
    Ok(())
}

async fn answer(incoming: Incoming) -> io::Result<()> {
    let connection = incoming.await?;
    let (mut send, mut receive) = connection.accept_bi().await?;
    let mut buffer = vec![0; 64 << 10];
    while let Some(length) = receive.read(&mut buffer).await? {
        send.write_all(&buffer[..length]).await?;
    }
    send.finish().map_err(io::Error::other)
}

/// Handle of the server's process. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct Peer {
    child: Child,
    /// The server runs while this is open.
    _stdin: ChildStdin,
    listening: Listening,
}

impl Peer {
    /// Starts it in a network namespace, and waits until it listens there.
    pub(super) fn start_in(namespace: &str, listen: &str) -> io::Result<Self> {
        let mut child = Command::new("ip")
            .args(["netns", "exec", namespace])
            .arg(std::env::current_exe()?)
            .args(["quinn-echo", "--listen", listen])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let missing = || io::Error::other("standard input and output are pipes");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or_else(missing)?).read_line(&mut line)?;
        Ok(Self { child, _stdin: stdin, listening: serde_json::from_str(&line)? })
    }

    /// Connects a client.
    pub(super) async fn connect(&self) -> io::Result<Echo> {
        let certificate = self.listening.certificate.as_bytes();
        let certificate = CertificateDer::from_pem_slice(certificate).map_err(io::Error::other)?;
        let mut roots = RootCertStore::empty();
        roots.add(certificate).map_err(io::Error::other)?;
        let config = ClientConfig::with_root_certificates(Arc::new(roots)).map_err(io::Error::other)?;
        let mut endpoint = Endpoint::client(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
        endpoint.set_default_client_config(config);
        let connecting = endpoint.connect(self.listening.address, NAME).map_err(io::Error::other)?;
        Ok(Echo { connection: connecting.await?, _endpoint: endpoint })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client.
pub(super) struct Echo {
    connection: Connection,
    _endpoint: Endpoint,
}

impl Echo {
    /// Echoes as many messages at once as the callers of the other subjects do, on one stream, and counts them.
    ///
    /// # Errors
    ///
    /// If the connection ends.
    pub(super) async fn echo(self, arrived: ByteCounter) -> io::Result<()> {
        let (send, receive) = self.connection.open_bi().await?;
        let room = Semaphore::new(IN_FLIGHT);
        tokio::try_join!(write(send, &room), read(receive, &room, &arrived)).map(drop)
    }
}

async fn write(mut send: SendStream, room: &Semaphore) -> io::Result<()> {
    let message = vec![b'x'; LENGTH];
    while let Ok(permit) = room.acquire().await {
        permit.forget();
        send.write_all(&message).await?;
    }
    Ok(())
}

async fn read(mut receive: RecvStream, room: &Semaphore, arrived: &ByteCounter) -> io::Result<()> {
    let mut message = vec![0; LENGTH];
    loop {
        receive.read_exact(&mut message).await.map_err(io::Error::other)?;
        arrived.fetch_add(LENGTH as u64, Ordering::Relaxed);
        room.add_permits(1);
    }
}
