use std::future::poll_fn;
use std::io::IoSlice;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::BytesMut;
use futures_util::future::poll_immediate;
use polyrpc_kcp::Settings;
use tokio::net::UdpSocket;

use super::{Algorithm, Cipher, Config, Listener, Tuning, connect};
use crate::runtime::AbortOnDrop;
use crate::transport::{DatagramStream, Evictable, EvictionClass, Stream};

fn settings(config: Config) -> Arc<Settings> {
    Arc::new(Settings::new(config).unwrap())
}

fn protected_config() -> Config {
    Config::rpcx(Cipher::new(Algorithm::Aes, &[7; 32]).unwrap())
}

async fn listener(config: Config) -> (Listener, String) {
    let listener = Listener::bind("127.0.0.1:0", settings(config)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

fn into_carried(stream: Stream) -> Box<dyn DatagramStream> {
    match stream {
        Stream::Carried(carried) => carried,
        other => panic!("{other:?}"),
    }
}

async fn write(stream: &mut Box<dyn DatagramStream>, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let written = poll_fn(|cx| stream.poll_write(cx, &[IoSlice::new(bytes)])).await.unwrap();
        bytes = &bytes[written..];
    }
}

async fn read(stream: &mut Box<dyn DatagramStream>, length: usize) -> BytesMut {
    let mut read = BytesMut::with_capacity(length);
    while read.len() < length {
        let count = poll_fn(|cx| stream.poll_read(cx, &mut read)).await.unwrap();
        assert!(count > 0, "the stream ended");
    }
    read
}

#[tokio::test]
async fn written_bytes_are_read_on_both_sides() {
    for config in [Config::default(), protected_config()] {
        let (listener, address) = listener(config.clone()).await;
        let mut client = into_carried(connect(&address, settings(config)).await.unwrap());
        let request: Vec<u8> = (0..500_000_u32).map(|index| (index * 7) as u8).collect();
        let serve = async {
            let (server, _) = listener.accept().await.unwrap();
            let mut server = into_carried(server);
            let heard = read(&mut server, request.len()).await;
            write(&mut server, &heard).await;
            server
        };
        let ask = async {
            write(&mut client, &request).await;
            read(&mut client, request.len()).await
        };
        let (_server, answer) = tokio::join!(serve, ask);
        assert!(answer == request);
    }
}

#[tokio::test]
async fn written_bytes_are_delivered_after_the_stream_is_dropped() {
    let (listener, address) = listener(protected_config()).await;
    let mut client = into_carried(connect(&address, settings(protected_config())).await.unwrap());
    write(&mut client, b"hello").await;
    let (server, _) = listener.accept().await.unwrap();
    let mut server = into_carried(server);
    read(&mut server, 5).await;
    write(&mut server, &[9; 50_000]).await;
    drop((server, listener));
    assert_eq!(read(&mut client, 50_000).await.len(), 50_000);
}

#[tokio::test]
async fn missing_server_is_noticed_while_connecting() {
    let (listener, address) = listener(Config::default()).await;
    drop(listener);
    // The socket is closed once the address can be bound again.
    while UdpSocket::bind(&address).await.is_err() {
        tokio::task::yield_now().await;
    }
    let error = connect(&address, settings(Config::default())).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn connect_waits_for_an_answer_of_the_server() {
    // A socket that says nothing: no error arrives from its host.
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let connecting = connect(&address, settings(protected_config()));
    assert!(tokio::time::timeout(Duration::from_millis(300), connecting).await.is_err());
    let mut probe = [0; 2000];
    assert!(silent.try_recv(&mut probe).is_ok());
}

#[tokio::test]
async fn peer_sees_the_end_of_a_dropped_stream() {
    for config in [Config::default(), protected_config()] {
        let (listener, address) = listener(config.clone()).await;
        let client = into_carried(connect(&address, settings(config.clone())).await.unwrap());
        let server = into_carried(listener.accept().await.unwrap().0);
        for (gone, mut left) in [(client, server)] {
            drop(gone);
            assert_eq!(end(&mut left).await.unwrap(), 0);
        }
        let mut client = into_carried(connect(&address, settings(config)).await.unwrap());
        let mut server = into_carried(listener.accept().await.unwrap().0);
        write(&mut server, &[9; 50_000]).await;
        drop((server, listener));
        assert_eq!(read(&mut client, 50_000).await.len(), 50_000);
        assert_eq!(end(&mut client).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn client_of_a_restarted_server_learns_that_its_conversation_is_unknown() {
    for config in [Config::default(), protected_config()] {
        let (first, address) = listener(config.clone()).await;
        let (_second, restarted) = listener(config.clone()).await;
        let relay = Relay::start(&address).await;
        let mut client = into_carried(connect(&relay.address, settings(config)).await.unwrap());
        write(&mut client, b"hello").await;
        let mut server = into_carried(first.accept().await.unwrap().0);
        read(&mut server, 5).await;
        write(&mut server, b"world").await;
        read(&mut client, 5).await;
        // As if the server was killed and started again: its successor knows nothing.
        relay.redirect(&restarted);
        write(&mut client, b"again").await;
        let error = end(&mut client).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}

#[tokio::test]
async fn client_of_a_restarted_server_learns_of_it_if_nothing_was_answered_yet() {
    for config in [Config::default(), protected_config()] {
        let (first, address) = listener(config.clone()).await;
        let (_second, restarted) = listener(config.clone()).await;
        let relay = Relay::start(&address).await;
        let mut client = into_carried(connect(&relay.address, settings(config)).await.unwrap());
        write(&mut client, b"hello").await;
        let mut server = into_carried(first.accept().await.unwrap().0);
        read(&mut server, 5).await;
        wait_acknowledged(&*client).await;
        relay.redirect(&restarted);
        // To the second server this looks like the second datagram of a client whose first one is late.
        write(&mut client, b"again").await;
        let error = end(&mut client).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}

/// Waits until everything that was written is acknowledged.
async fn wait_acknowledged(stream: &dyn DatagramStream) {
    let waiting = async {
        while stream.buffered_bytes() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("an acknowledgement");
}

/// Connects a client, and exchanges data until the server has validated its address. Returns both ends.
async fn connect_validated(
    listener: &Listener,
    address: &str,
    config: Config,
) -> (Box<dyn DatagramStream>, Box<dyn DatagramStream>) {
    let mut client = into_carried(connect(address, settings(config)).await.unwrap());
    write(&mut client, b"hello").await;
    let mut server = into_carried(listener.accept().await.unwrap().0);
    assert_eq!(read(&mut server, 5).await, "hello");
    write(&mut server, b"world").await;
    assert_eq!(read(&mut client, 5).await, "world");
    // The acknowledgement of what was read comes with it.
    write(&mut client, b"more!").await;
    assert_eq!(read(&mut server, 5).await, "more!");
    (client, server)
}

#[tokio::test]
async fn forged_start_does_not_end_a_conversation_with_a_validated_address() {
    let (listener, address) = listener(Config::default()).await;
    let relay = Relay::start(&address).await;
    let (mut client, mut server) = connect_validated(&listener, &relay.address, Config::default()).await;
    let conv = relay.conv();
    // From the client's address, with other numbers and with that of its conversation.
    for forged in [segment(conv ^ 1, b"forged"), probe(conv ^ 2), probe(conv ^ 3), probe(conv)] {
        relay.forge(&forged).await;
    }
    // From another address, with the number of its conversation.
    let other = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for forged in [probe(conv), segment(conv, b"forged")] {
        other.send_to(&forged, &address).await.unwrap();
    }
    for _ in 0..10 {
        write(&mut client, b"still").await;
        assert_eq!(read(&mut server, 5).await, "still");
        write(&mut server, b"alive").await;
        assert_eq!(read(&mut client, 5).await, "alive");
    }
}

#[tokio::test]
async fn client_restarted_at_its_address_replaces_its_conversation() {
    for config in [Config::default(), protected_config()] {
        let (listener, address) = listener(config.clone()).await;
        let relay = Relay::start(&address).await;
        let (first_client, mut first) = connect_validated(&listener, &relay.address, config.clone()).await;
        wait_acknowledged(&*first_client).await;
        let (mut client, mut second) = connect_validated(&listener, &relay.address, config).await;
        assert_eq!(end(&mut first).await.unwrap(), 0, "the first one has ended");
        write(&mut second, b"alive").await;
        assert_eq!(read(&mut client, 5).await, "alive");
    }
}

#[tokio::test]
async fn exiting_server_does_not_wait_for_a_client_that_knows_no_ends() {
    let mut waited = Vec::new();
    // One that is quick is enough: this machine may be busy.
    for conv in 0..10 {
        let (listener, address) = listener(Config::default()).await;
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.send_to(&segment(conv, b"hello"), &address).await.unwrap();
        let mut server = into_carried(listener.accept().await.unwrap().0);
        read(&mut server, 5).await;
        write(&mut server, b"world").await;
        let delivered = listener.delivery();
        drop((server, listener));
        client.send_to(&acknowledgement_of_data(&client).await, &address).await.unwrap();
        let begin = std::time::Instant::now();
        delivered.await;
        waited.push(begin.elapsed());
        if begin.elapsed() < Duration::from_millis(500) {
            return;
        }
    }
    panic!("{waited:?}");
}

/// Receives datagrams until one has data, and returns its acknowledgement, as kcp-go sends it.
async fn acknowledgement_of_data(client: &UdpSocket) -> Vec<u8> {
    let mut datagram = [0; 2000];
    loop {
        let length = client.recv(&mut datagram).await.unwrap();
        let mut rest = &datagram[..length];
        while let Some((header, data)) = rest.split_first_chunk::<24>() {
            let length = u32::from_le_bytes(header[20..].try_into().unwrap()) as usize;
            if header[4] == 81 {
                let mut bytes = header[..4].to_vec();
                bytes.extend_from_slice(&[82, 0, 255, 255]);
                bytes.extend_from_slice(&header[8..16]);
                bytes.extend_from_slice(&1_u32.to_le_bytes());
                bytes.extend_from_slice(&0_u32.to_le_bytes());
                return bytes;
            }
            rest = &data[length..];
        }
    }
}

/// Passes datagrams of one client to a server that can be changed.
struct Relay {
    address: String,
    server: Arc<Mutex<String>>,
    /// Its address is the client's, for the server.
    far: Arc<UdpSocket>,
    /// The last datagram of the client.
    last: Arc<Mutex<Vec<u8>>>,
    _running: AbortOnDrop<()>,
}

impl Relay {
    async fn start(server: &str) -> Self {
        let (near, far) =
            (UdpSocket::bind("127.0.0.1:0").await.unwrap(), UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let address = near.local_addr().unwrap().to_string();
        let (server, last) = (Arc::new(Mutex::new(server.to_owned())), Arc::default());
        let far = Arc::new(far);
        let relay = (server.clone(), far.clone(), Arc::clone(&last));
        let running = tokio::spawn(async move {
            let (current, far, last): (_, Arc<UdpSocket>, Arc<Mutex<Vec<u8>>>) = relay;
            let (mut client, mut there, mut back) = (None, [0; 2000], [0; 2000]);
            loop {
                tokio::select! {
                    Ok((length, from)) = near.recv_from(&mut there) => {
                        client = Some(from);
                        *last.lock().unwrap() = there[..length].to_vec();
                        let server = current.lock().unwrap().clone();
                        far.send_to(&there[..length], server).await.unwrap();
                    }
                    Ok(length) = far.recv(&mut back) => {
                        near.send_to(&back[..length], client.unwrap()).await.unwrap();
                    }
                }
            }
        });
        Self { address, server, far, last, _running: AbortOnDrop::from(running) }
    }

    /// Sends a datagram to the server from the client's address.
    async fn forge(&self, datagram: &[u8]) {
        let server = self.server.lock().unwrap().clone();
        self.far.send_to(datagram, server).await.unwrap();
    }

    /// Returns the number of the client's conversation, unless its datagrams are encrypted.
    fn conv(&self) -> u32 {
        let last = self.last.lock().unwrap();
        u32::from_le_bytes(*last.first_chunk().expect("a datagram"))
    }

    fn redirect(&self, server: &str) {
        server.clone_into(&mut self.server.lock().unwrap());
    }
}

#[tokio::test]
async fn number_of_conversations_is_limited() {
    let (listener, address) = listener(Config { conversations: 3, ..Config::default() }).await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(into_carried(connect(&address, settings(Config::default())).await.unwrap()));
    }
    // All at once: the last of them evict the others.
    for client in &mut clients {
        stuff(client, b"hello");
    }
    let mut servers = Vec::new();
    for _ in 0..3 {
        let mut server = accept_written(&listener).await;
        write(&mut server, b"world").await;
        servers.push(server);
    }
    let mut fourth = pin!(accept_written(&listener));
    assert!(poll_immediate(fourth.as_mut()).await.is_none());
    // A slot that is released is taken by a later client, at the latest.
    servers.pop();
    let later = async {
        let mut later = Vec::new();
        loop {
            if let Ok(client) = connect(&address, settings(Config::default())).await {
                let mut client = into_carried(client);
                stuff(&mut client, b"hello");
                later.push(client);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let taken = tokio::time::timeout(Duration::from_secs(20), async {
        tokio::select! {
            _ = fourth => {}
            () = later => {}
        }
    });
    taken.await.expect("the slot is taken");
}

/// Accepts the next conversation that was not evicted before something was written to it.
async fn accept_written(listener: &Listener) -> Box<dyn DatagramStream> {
    loop {
        let mut server = into_carried(listener.accept().await.unwrap().0);
        let mut written = BytesMut::with_capacity(5);
        if matches!(poll_fn(|cx| server.poll_read(cx, &mut written)).await, Ok(5)) {
            return server;
        }
    }
}

#[tokio::test]
async fn long_silent_conversation_is_evicted() {
    let idle = Duration::from_secs(3);
    let (listener, address) =
        listener(Config { conversations: 1, idle_timeout: idle, ..Config::default() }).await;
    let relay = Relay::start(&address).await;
    let mut gone = into_carried(connect(&relay.address, settings(Config::default())).await.unwrap());
    write(&mut gone, b"hello").await;
    let mut first = into_carried(listener.accept().await.unwrap().0);
    read(&mut first, 5).await;
    write(&mut first, b"world").await;
    read(&mut gone, 5).await;
    // Its acknowledgement validates its address.
    write(&mut gone, b"more!").await;
    read(&mut first, 5).await;
    // As if its machine was switched off: the server is not notified.
    let nowhere = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    relay.redirect(&nowhere.local_addr().unwrap().to_string());
    drop(gone);
    let mut client = into_carried(connect(&address, settings(Config::default())).await.unwrap());
    write(&mut client, b"again").await;
    let accepted = tokio::time::timeout(5 * idle, listener.accept()).await.expect("there is room");
    assert_eq!(read(&mut into_carried(accepted.unwrap().0), 5).await, "again");
    let mut room = BytesMut::with_capacity(10);
    let error = poll_fn(|cx| first.poll_read(cx, &mut room)).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn datagrams_from_other_addresses_are_ignored() {
    let (listener, address) = listener(protected_config()).await;
    let other = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for length in 0..1600 {
        other.send_to(&vec![length as u8; length], &address).await.unwrap();
    }
    let mut client = into_carried(connect(&address, settings(protected_config())).await.unwrap());
    write(&mut client, b"hello").await;
    let (server, peer) = listener.accept().await.unwrap();
    assert_eq!(read(&mut into_carried(server), 5).await, "hello");
    assert_ne!(peer, other.local_addr().unwrap());
}

/// Writes what the stream accepts without waiting.
fn stuff(stream: &mut Box<dyn DatagramStream>, bytes: &[u8]) {
    let mut cx = Context::from_waker(Waker::noop());
    let _ = stream.poll_write(&mut cx, &[IoSlice::new(bytes)]);
}

/// Reads until the stream ends; returns how it ended.
async fn end(stream: &mut Box<dyn DatagramStream>) -> std::io::Result<usize> {
    let mut rest = BytesMut::with_capacity(100);
    loop {
        match poll_fn(|cx| stream.poll_read(cx, &mut rest)).await {
            Ok(1..) => rest.clear(),
            end => return end,
        }
    }
}

/// Returns a data segment of this conversation, without encryption or error correction around it.
fn segment(conv: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = conv.to_le_bytes().to_vec();
    bytes.extend_from_slice(&[81, 0, 255, 255]);
    bytes.extend_from_slice(&[0; 12]);
    bytes.extend_from_slice(&(data.len() as u32).to_le_bytes());
    bytes.extend_from_slice(data);
    bytes
}

/// Returns the probe by which a client starts this conversation, without encryption or error correction around it.
fn probe(conv: u32) -> Vec<u8> {
    let mut bytes = conv.to_le_bytes().to_vec();
    bytes.extend_from_slice(&[83, 1, 255, 255]);
    bytes.extend_from_slice(&[0; 16]);
    bytes
}

#[tokio::test]
async fn forged_address_is_sent_at_most_three_times_what_came_from_it() {
    let (idle, tuning) = (Duration::from_secs(6), Tuning::fast());
    let (listener, address) = listener(Config { idle_timeout: idle, tuning, ..Config::default() }).await;
    let victim = UdpSocket::bind("127.0.0.9:0").await.unwrap();
    let request = segment(7, &[0; 18]);
    victim.send_to(&request, &address).await.unwrap();
    let mut server = into_carried(listener.accept().await.unwrap().0);
    read(&mut server, 18).await;
    stuff(&mut server, &[1; 100_000]);
    // Until it is given up.
    let error = end(&mut server).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    let (mut sent, mut datagram) = (0, [0; 2000]);
    while let Ok(length) = victim.try_recv(&mut datagram) {
        sent += length;
    }
    assert!((1..=3 * request.len()).contains(&sent), "{sent} bytes for {}", request.len());
}

#[tokio::test]
async fn oldest_conversation_without_a_validated_address_makes_room() {
    let (listener, address) = listener(Config { unvalidated: 2, ..Config::default() }).await;
    let mut proven = into_carried(connect(&address, settings(Config::default())).await.unwrap());
    write(&mut proven, b"hello").await;
    let mut kept = into_carried(listener.accept().await.unwrap().0);
    read(&mut kept, 5).await;
    write(&mut kept, b"world").await;
    read(&mut proven, 5).await;
    // Its acknowledgement is in flight: what follows is read after it.
    write(&mut proven, b"again").await;
    read(&mut kept, 5).await;

    let mut forged = Vec::new();
    for network in 1..=3 {
        let socket = UdpSocket::bind(format!("127.0.{network}.1:0")).await.unwrap();
        socket.send_to(&segment(network, b"forged"), &address).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        assert_eq!(peer, socket.local_addr().unwrap());
        forged.push(into_carried(stream));
    }
    assert_eq!(end(&mut forged[0]).await.unwrap(), 0, "the oldest has ended");
    for other in &mut forged[1..] {
        assert!(poll_immediate(pin!(end(other))).await.is_none());
    }
    write(&mut kept, b"still").await;
    assert_eq!(read(&mut proven, 5).await, "still");
}

#[tokio::test]
async fn one_network_gets_half_of_the_unvalidated_slots() {
    let (listener, address) = listener(Config { unvalidated: 200, ..Config::default() }).await;
    // Sockets are kept open: a port that is reused would be the same peer.
    let (mut streams, mut sockets) = (Vec::new(), Vec::new());
    for conv in 0..=101 {
        let network = if conv == 0 { 1 } else { 2 };
        let socket = UdpSocket::bind(format!("127.0.{network}.1:0")).await.unwrap();
        socket.send_to(&segment(conv, b"forged"), &address).await.unwrap();
        streams.push(into_carried(listener.accept().await.unwrap().0));
        sockets.push(socket);
    }
    assert_eq!(end(&mut streams[1]).await.unwrap(), 0, "the oldest of the crowded network has ended");
    for other in [0, 2, 3, 101] {
        assert!(poll_immediate(pin!(end(&mut streams[other]))).await.is_none());
    }
}

/// A connection that does the same for ever.
#[derive(Debug)]
struct Doing(EvictionClass, u32, Arc<AtomicUsize>);

impl Evictable for Doing {
    fn eviction(&self) -> (EvictionClass, u32) {
        (self.0, self.1)
    }

    fn evict(&self) {
        self.2.fetch_add(1, Ordering::Relaxed);
    }
}

/// Of 16 conversations, one is for newcomers.
fn small_config() -> Config {
    Config { conversations: 16, ..Config::default() }
}

#[tokio::test]
async fn conversation_that_waits_longest_makes_room_for_one_with_a_validated_address() {
    let (listener, address) = listener(small_config()).await;
    let evicted = Arc::<AtomicUsize>::default();
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    for since in 0..15 {
        let (client, server) = connect_validated(&listener, &address, Config::default()).await;
        let class = if since < 8 { EvictionClass::Active } else { EvictionClass::Still };
        server.set_connection(Arc::new(Doing(class, 100 - since, evicted.clone())));
        clients.push(client);
        servers.push(server);
    }
    // Unvalidated ones end none of them.
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for conv in 0..100 {
        socket.send_to(&segment(conv, b"forged"), &address).await.unwrap();
        drop(listener.accept().await.unwrap());
    }
    assert_eq!(evicted.load(Ordering::Relaxed), 0);

    let (_client, mut newcomer) = connect_validated(&listener, &address, Config::default()).await;
    assert_eq!(end(&mut servers[14]).await.unwrap(), 0, "it has ended");
    assert_eq!(evicted.load(Ordering::Relaxed), 1);
    let error = end(&mut clients[14]).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "its client is notified");
    for other in servers[..14].iter_mut().chain([&mut newcomer]) {
        assert!(poll_immediate(pin!(end(other))).await.is_none());
    }
}

#[tokio::test]
async fn network_with_more_than_half_of_the_conversations_makes_room_only_for_others() {
    let (listener, address) = listener(small_config()).await;
    let evicted = Arc::<AtomicUsize>::default();
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    for since in 0..15 {
        let (client, server) = connect_validated(&listener, &address, Config::default()).await;
        server.set_connection(Arc::new(Doing(EvictionClass::Calling, 100 - since, evicted.clone())));
        clients.push(client);
        servers.push(server);
    }
    // Of the same network: it is answered, and then ended itself.
    let mut client = into_carried(connect(&address, settings(Config::default())).await.unwrap());
    write(&mut client, b"hello").await;
    let mut refused = into_carried(listener.accept().await.unwrap().0);
    read(&mut refused, 5).await;
    write(&mut refused, b"world").await;
    read(&mut client, 5).await;
    assert_eq!(end(&mut refused).await.unwrap(), 0, "it has ended");
    for other in &mut servers {
        assert!(poll_immediate(pin!(end(other))).await.is_none());
    }
    // Of another one.
    let socket = UdpSocket::bind("127.0.1.1:0").await.unwrap();
    socket.send_to(&segment(7, b"hello"), &address).await.unwrap();
    let mut newcomer = into_carried(listener.accept().await.unwrap().0);
    read(&mut newcomer, 5).await;
    write(&mut newcomer, b"world").await;
    socket.send_to(&acknowledgement_of_data(&socket).await, &address).await.unwrap();
    assert_eq!(end(&mut servers[14]).await.unwrap(), 0, "it has ended");
    assert_eq!(evicted.load(Ordering::Relaxed), 1);
    for other in servers[..14].iter_mut().chain([&mut newcomer]) {
        assert!(poll_immediate(pin!(end(other))).await.is_none());
    }
}

#[tokio::test]
async fn timers_of_ended_conversations_are_dropped() {
    let (listener, address) = listener(Config { unvalidated: 4, ..Config::default() }).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for conv in 0..1000 {
        socket.send_to(&segment(conv, b"forged"), &address).await.unwrap();
        drop(listener.accept().await.unwrap());
    }
    assert!(listener.timers() < 100, "{} timers", listener.timers());
}
