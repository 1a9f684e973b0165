//! A process that is attacked instead of the server, to measure the cost of an attack for this machine: it only accepts
//! connections and reads.

use std::io::{self, Write};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, UdpSocket};

use crate::target_server::Target;

/// Size of a read, as the server's.
const CHUNK: usize = 64 << 10;

/// Reads all input until standard input closes.
#[tokio::main]
pub(crate) async fn read_everything() -> io::Result<()> {
    let tcp = || TcpListener::bind("127.0.0.1:0");
    let udp = || UdpSocket::bind("127.0.0.1:0");
    let (open, guarded, tls) = (tcp().await?, tcp().await?, tcp().await?);
    let (kcp, quic) = (udp().await?, udp().await?);
    let target = Target {
        open: open.local_addr()?.to_string(),
        guarded: guarded.local_addr()?.to_string(),
        tls: tls.local_addr()?.to_string(),
        kcp: kcp.local_addr()?.to_string(),
        quic: quic.local_addr()?.to_string(),
        ..Target::none()
    };
    println!("{}", serde_json::to_string(&target)?);
    io::stdout().flush()?;
    for listener in [open, guarded, tls] {
        tokio::spawn(accept(listener));
    }
    for socket in [kcp, quic] {
        tokio::spawn(receive(socket));
    }
    let _ = tokio::task::spawn_blocking(|| io::stdin().lines().next()).await;
    Ok(())
}

async fn accept(listener: TcpListener) {
    loop {
        // Without descriptors, as the server, it waits for some.
        let Ok((mut socket, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        tokio::spawn(async move {
            let mut chunk = Vec::with_capacity(CHUNK);
            while matches!(socket.read_buf(&mut chunk).await, Ok(1..)) {
                chunk.clear();
            }
        });
    }
}

async fn receive(socket: UdpSocket) {
    let mut packet = [0; 2_048];
    while socket.recv(&mut packet).await.is_ok() {}
}
