//! Slow and broken clients. Their results are ignored; the other clients must not be affected.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use polyrpc::{Client, Streaming};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::cluster::Addresses;
use crate::service::PlainClient;

/// Random numbers that a seed repeats (xorshift).
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        // Zero would stay zero.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below this one.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}

/// Interval between clients that misbehave.
const PERIOD: Duration = Duration::from_millis(40);
/// Maximum number of concurrent misbehaving clients.
const MAX_CLIENTS: usize = 64;
/// The longest time that one of them takes.
const MAX_DURATION: Duration = Duration::from_secs(8);

/// The kinds of misbehaviour.
const KINDS: [&str; 10] = [
    "garbage",
    "half a message, then a reset",
    "a byte now and then",
    "replies that are not read",
    "garbage instead of a TLS handshake",
    "datagrams of noise",
    "calls that are dropped",
    "deadlines of a millisecond",
    "streams that are dropped",
    "connections that say nothing",
];

/// Clients that misbehave in all these ways, until they are stopped.
pub(crate) struct MisbehavingClients {
    counts: Arc<[AtomicU64; KINDS.len()]>,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl MisbehavingClients {
    pub(crate) fn start(target: Addresses, seed: u64) -> Self {
        let (counts, stop) = (Arc::<[AtomicU64; KINDS.len()]>::default(), watch::Sender::new(false));
        let task = tokio::spawn(misbehave(target, Rng::new(seed), counts.clone(), stop.subscribe()));
        Self { counts, stop, task }
    }

    /// Stops them at once, and returns how many of each kind there were.
    pub(crate) async fn stop(self) -> BTreeMap<&'static str, u64> {
        self.stop.send_replace(true);
        // A panic of one of them would be lost otherwise.
        self.task.await.expect("no client panics");
        KINDS.into_iter().zip(self.counts.iter().map(|count| count.load(Ordering::Relaxed))).collect()
    }
}

async fn misbehave(
    target: Addresses,
    mut rng: Rng,
    counts: Arc<[AtomicU64; KINDS.len()]>,
    mut stop: watch::Receiver<bool>,
) {
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            () = sleep(PERIOD) => {}
            _ = stop.changed() => break,
        }
        while running.try_join_next().is_some() {}
        if running.len() >= MAX_CLIENTS {
            continue;
        }
        let kind = rng.below(KINDS.len() as u64) as usize;
        counts[kind].fetch_add(1, Ordering::Relaxed);
        let (target, rng) = (target.clone(), Rng::new(rng.next()));
        running.spawn(async move {
            // The server may close the connection, and does so often.
            let _ = timeout(MAX_DURATION, misbehave_once(kind, &target, rng)).await;
        });
    }
}

async fn misbehave_once(kind: usize, target: &Addresses, mut rng: Rng) -> io::Result<()> {
    match kind {
        0 => send_garbage(&target.tcp, &mut rng).await,
        1 => reset_within_a_message(target, &mut rng).await,
        2 => drip(target).await,
        3 => leave_replies_unread(target).await,
        4 => send_garbage(&target.tls, &mut rng).await,
        5 => send_noise(target, &mut rng).await,
        6 => drop_calls(target, &mut rng).await,
        7 => call_without_time(target).await,
        8 => drop_streams(target, &mut rng).await,
        _ => {
            let silent = TcpStream::connect(&target.tcp).await?;
            sleep(Duration::from_millis(rng.below(5000))).await;
            drop(silent);
            Ok(())
        }
    }
}

fn noise(rng: &mut Rng, max: u64) -> Vec<u8> {
    (0..=rng.below(max)).map(|_| rng.next() as u8).collect()
}

/// Half of it starts as a protocol does.
async fn send_garbage(address: &str, rng: &mut Rng) -> io::Result<()> {
    let starts: [&[u8]; 8] = [
        b"PRPC",
        b"\x08\0\0\x10",
        b"POST /",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"",
        b"",
        b"\x16\x03\x01",
        b"",
    ];
    let mut socket = TcpStream::connect(address).await?;
    let start = starts[rng.below(starts.len() as u64) as usize];
    socket.write_all(&[start, &noise(rng, 2000)].concat()).await?;
    socket.read_to_end(&mut Vec::new()).await.map(drop)
}

/// The head of a call of rpcx: its body has 1000 bytes.
const HEAD: &[u8] = b"\x08\0\0\x10\0\0\0\0\0\0\0\x01\0\0\x03\xe8";

async fn reset_within_a_message(target: &Addresses, rng: &mut Rng) -> io::Result<()> {
    let mut socket = TcpStream::connect(&target.tcp).await?;
    socket.write_all(&HEAD[..1 + rng.below(HEAD.len() as u64 - 1) as usize]).await?;
    sleep(Duration::from_millis(rng.below(100))).await;
    // Closing resets the connection.
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    Ok(())
}

async fn drip(target: &Addresses) -> io::Result<()> {
    let mut socket = TcpStream::connect(&target.tcp).await?;
    for byte in HEAD.iter().cycle() {
        socket.write_all(&[*byte]).await?;
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn leave_replies_unread(target: &Addresses) -> io::Result<()> {
    let mut socket = TcpStream::connect(&target.tcp).await?;
    let request = "POST /Bare/Blob HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n\"\"";
    // As many as the server accepts in that time.
    let _ = timeout(Duration::from_millis(500), socket.write_all(request.repeat(100).as_bytes())).await;
    sleep(Duration::from_secs(2)).await;
    Ok(())
}

async fn send_noise(target: &Addresses, rng: &mut Rng) -> io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0").await?;
    for address in [&target.kcp, &target.quic] {
        for _ in 0..4 {
            socket.send_to(&noise(rng, 1200), address).await?;
        }
    }
    Ok(())
}

/// A client of one server.
fn client(target: &Addresses, scheme: &str) -> io::Result<Client> {
    Client::new(&format!("{scheme}://{}", target.tcp)).map_err(io::Error::other)
}

async fn drop_calls(target: &Addresses, rng: &mut Rng) -> io::Result<()> {
    let scheme = ["rpcx", "grpc", "baidu-std", "http", "net-rpc"][rng.below(5) as usize];
    let client = client(target, scheme)?;
    for _ in 0..4 {
        let _ = timeout(Duration::from_millis(1 + rng.below(50)), client.call::<String>("wait", "x")).await;
    }
    Ok(())
}

async fn call_without_time(target: &Addresses) -> io::Result<()> {
    let client = Client::builder(&format!("grpc://{}", target.tcp)).timeout(Duration::from_millis(1)).build();
    let client = client.map_err(io::Error::other)?;
    for _ in 0..4 {
        // It succeeds on a fast machine.
        let _ = client.call::<String>("Plain/Echo", "x").await;
    }
    Ok(())
}

async fn drop_streams(target: &Addresses, rng: &mut Rng) -> io::Result<()> {
    let stub = PlainClient::new(client(target, "grpc")?);
    let (sender, texts) = Streaming::channel(1);
    let mut answers = stub.talk(texts).await.map_err(io::Error::other)?;
    for _ in 0..rng.below(20) {
        sender.send("x".to_owned()).await.map_err(io::Error::other)?;
        answers.message().await.map_err(io::Error::other)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_depend_only_on_the_seed() {
        let sequence = |seed| {
            let mut rng = Rng::new(seed);
            [(); 8].map(|()| rng.below(1000))
        };
        assert_eq!(sequence(1), sequence(1));
        assert_ne!(sequence(1), sequence(2));
        assert!(sequence(0).iter().any(|number| *number > 0));
    }
}
