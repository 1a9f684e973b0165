//! Every protocol over KCP and QUIC, peer addresses, and failures.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polyrpc::kcp::{self, Algorithm, Cipher, Shards, Tuning, derive_key};
use polyrpc::server::{Limits, Listen, ServerHandle};
use polyrpc::service::Peer;
use polyrpc::tls::{self, Identity, Pem};
use polyrpc::transfer::Streams;
use polyrpc::{Address, Client, Code, Context, Cores, Protocol, Result, Server, quic};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinHandle;

use crate::authority::{Authority, IssuedCertificate};
use crate::common::{PROTOCOLS, Prober, Socket, again, soon, until};

fn protected() -> kcp::Config {
    let key = derive_key(b"rpcx-key", b"rpcx-salt", 4096);
    kcp::Config::rpcx(Cipher::new(Algorithm::Aes, &key).unwrap())
}

async fn serve_kcp(server: Server, config: kcp::Config) -> ServerHandle {
    server.bind(Listen::on("127.0.0.1:0").kcp(config)).await.unwrap().start()
}

fn scheme(protocol: Protocol) -> String {
    protocol.as_str().replace('_', "-")
}

/// `rpcx://127.0.0.1:1234?transport=kcp`.
fn url(protocol: Protocol, server: &ServerHandle) -> String {
    let (carrier, address) = match &server.addresses()[0] {
        Address::Kcp(address) => ("kcp", address),
        Address::Quic(address) => ("quic", address),
        other => panic!("{other}"),
    };
    format!("{}://{address}?transport={carrier}", scheme(protocol))
}

fn kcp_client(protocol: Protocol, server: &ServerHandle, config: kcp::Config) -> Client {
    Client::builder(&url(protocol, server)).kcp(config).build().unwrap()
}

async fn echo(client: &Client, text: &str) -> polyrpc::client::Result<String> {
    soon(client.call("Probe/Echo", text)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_protocol_works_over_kcp() {
    for config in [kcp::Config::default(), protected(), kcp::Config { tuning: Tuning::fast(), ..protected() }]
    {
        let server = serve_kcp(Prober::default().server(), config.clone()).await;
        let long = "long ".repeat(50_000);
        for protocol in PROTOCOLS {
            let client = kcp_client(protocol, &server, config.clone());
            assert_eq!(echo(&client, "hi").await.unwrap(), "hi", "{protocol:?}");
            assert!(echo(&client, &long).await.unwrap() == long, "{protocol:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_share_a_kcp_conversation() {
    let server = serve_kcp(Prober::default().server(), protected()).await;
    let client = kcp_client(Protocol::Rpcx, &server, protected());
    let calls = (0..200).map(|number| {
        let client = client.clone();
        tokio::spawn(async move { echo(&client, &format!("call {number}")).await.unwrap() })
    });
    for (number, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
        assert_eq!(call.await.unwrap(), format!("call {number}"));
    }
    assert_eq!(server.info().connections.len(), 1);
}

#[tokio::test]
async fn other_kcp_key_is_rejected() {
    let server = serve_kcp(Prober::default().server(), protected()).await;
    let cipher = Cipher::new(Algorithm::Aes, &[1; 32]).unwrap();
    let client = Client::builder(&url(Protocol::Rpcx, &server)).kcp(kcp::Config::rpcx(cipher));
    let client = client.timeout(Duration::from_millis(300)).build().unwrap();
    assert_eq!(echo(&client, "hi").await.unwrap_err().code(), Code::DeadlineExceeded);
    assert!(server.info().connections.is_empty());
}

#[tokio::test]
async fn impossible_configurations_are_errors() {
    let shards = Some(Shards { data: 0, parity: 3 });
    let listen = Listen::on("127.0.0.1:0").kcp(kcp::Config { shards, ..protected() });
    let error = Server::new().bind(listen).await.unwrap_err().to_string();
    assert!(error.contains("one data shard and one parity shard"), "{error}");
    let error = Server::new().bind(Listen::on("quic://127.0.0.1:0")).await.unwrap_err().to_string();
    assert!(error.contains("QUIC needs TLS"), "{error}");
    let error =
        Client::builder("rpcx://h:1?transport=kcp").build_blocking().map(drop).unwrap_err().to_string();
    assert!(error.contains("`transport=kcp` of rpcx needs a runtime"), "{error}");
    assert!(error.contains("or tcp, unix or ws"), "{error}");
}

/// The configuration was ignored: a listener that was meant to be encrypted used clear text.
#[tokio::test]
async fn configuration_of_another_transport_than_the_address_is_an_error() {
    let listen = |address: &str| Listen::on(address);
    for (listen, why) in [
        (listen("unix:/nowhere/x").kcp(protected()), "Listen::kcp needs host:port or kcp://host:port"),
        (listen("quic://127.0.0.1:0").kcp(protected()), "not quic://127.0.0.1:0"),
        (Listen::in_process().kcp(protected()), "Listen::kcp needs"),
        (listen("unix:/nowhere/x").quic(quic::Config::default()), "not unix:/nowhere/x"),
        (
            listen("kcp://127.0.0.1:0").quic(quic::Config::default()),
            "Listen::quic needs host:port or quic://host:port",
        ),
        (listen("127.0.0.1:0").kcp(protected()).quic(quic::Config::default()), "uses KCP or QUIC"),
    ] {
        let error = Server::new().bind(listen).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_reach_a_restarted_kcp_server() {
    let server = serve_kcp(Prober::default().server(), protected()).await;
    let client = kcp_client(Protocol::Rpcx, &server, protected());
    echo(&client, "hi").await.unwrap();
    let address = server.addresses()[0].to_string();
    soon(server.shutdown(Duration::from_secs(5))).await;
    let server = soon(async {
        loop {
            // The socket stays open until the last conversation has sent everything.
            match Prober::default().server().bind(Listen::on(address.clone()).kcp(protected())).await {
                Ok(bound) => return bound.start(),
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    // Its shutdown has ended the conversation of the first client, which starts another.
    assert_eq!(again(|| client.call::<String>("Probe/Echo", "again")).await, "again");
    let new_client = kcp_client(Protocol::Rpcx, &server, protected());
    assert_eq!(again(|| new_client.call::<String>("Probe/Echo", "again")).await, "again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_conversations_are_served_thread_per_core() {
    let server = Prober::default().server().executor(Cores::start(2).unwrap());
    let server = serve_kcp(server, protected()).await;
    let builder = Client::builder(&url(Protocol::BaiduStd, &server)).kcp(protected());
    let client = builder.executor(Cores::start(1).unwrap()).build().unwrap();
    assert_eq!(echo(&client, "hi").await.unwrap(), "hi");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_kcp_conversation_is_kept_since_its_client_cannot_detect_a_close() {
    let limits = Limits {
        first_byte_timeout: Duration::from_millis(250),
        idle_timeout: Some(Duration::from_millis(250)),
        ..Limits::default()
    };
    let listen = Listen::on("127.0.0.1:0").kcp(protected());
    let bound = Prober::default().server().limits(limits).bind(listen).await.unwrap();
    let server = bound.and("127.0.0.1:0").await.unwrap().start();
    let client = kcp_client(Protocol::Rpcx, &server, protected());
    let peer = soon(client.call::<String>("Probe/Peer", &())).await.unwrap();
    // An equally idle TCP connection has been closed meanwhile, twice.
    for _ in 0..2 {
        let stream = TcpStream::connect(server.addresses()[1].to_string()).await.unwrap();
        Socket { stream }.rest().await;
    }
    // Its end may be seen before the server has removed it, on another thread.
    until(|| server.connection_count() == 1).await;
    assert_eq!(soon(client.call::<String>("Probe/Peer", &())).await.unwrap(), peer);
}

/// Starts 20,000 conversations from as many forged addresses, none of which receives a response.
fn flood(address: &str) {
    for number in 0..20_000_u32 {
        let [_, a, b, c] = (number + (1 << 16) + 1).to_be_bytes();
        let socket = std::net::UdpSocket::bind((Ipv4Addr::new(127, a, b, c), 0)).unwrap();
        let mut datagram = number.to_le_bytes().to_vec();
        datagram.extend_from_slice(&[81, 0, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 18, 0, 0, 0]);
        datagram.extend_from_slice(b"GET / HTTP/1.1\r\n\r\n");
        // Datagrams that the system drops do not matter.
        let _ = socket.send_to(&datagram, address);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_conversations_do_not_keep_a_new_client_out() {
    let server = serve_kcp(Prober::default().server(), kcp::Config::default()).await;
    let before = kcp_client(Protocol::Rpcx, &server, kcp::Config::default());
    // The second call acknowledges the first response, which validates the address.
    for _ in 0..2 {
        assert_eq!(echo(&before, "before").await.unwrap(), "before");
    }
    let Address::Kcp(address) = server.addresses()[0].clone() else { panic!("it is KCP") };
    tokio::task::spawn_blocking(move || flood(&address)).await.unwrap();
    let client = kcp_client(Protocol::Rpcx, &server, kcp::Config::default());
    let call = tokio::time::timeout(Duration::from_secs(5), echo(&client, "hi"));
    assert_eq!(call.await.expect("it is answered in time").unwrap(), "hi");
    assert_eq!(echo(&client, &"long ".repeat(50_000)).await.unwrap().len(), 250_000);
    assert_eq!(echo(&before, "after").await.unwrap(), "after");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversation_that_finds_no_room_is_counted_and_its_client_starts_another() {
    // One of 16 is for newcomers.
    let config = kcp::Config { conversations: 16, ..kcp::Config::default() };
    let server = serve_kcp(Prober::default().server(), config).await;
    let mut clients = Vec::new();
    for _ in 0..16 {
        let client = kcp_client(Protocol::Rpcx, &server, kcp::Config::default());
        assert_eq!(echo(&client, "hi").await.unwrap(), "hi");
        clients.push(client);
    }
    let made_room = || server.info().closed_connections.contains(&("made_room", 1));
    until(made_room).await;
    for client in &clients {
        assert_eq!(again(|| client.call::<String>("Probe/Echo", "again")).await, "again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn byte_stream_is_rejected_if_the_server_listens_on_kcp_only() {
    let streams = Streams::new(|_, _| async { Ok(()) });
    let server = serve_kcp(Server::new().streams(streams), protected()).await;
    let client = kcp_client(Protocol::Rpcx, &server, protected());
    let error = soon(client.byte_stream(&Default::default())).await.unwrap_err();
    assert!(error.message().contains("no listener for data connections"), "{error}");
}

/// A server with a certificate of an authority that clients trust.
struct Secure {
    authority: Authority,
    server: ServerHandle,
}

impl Secure {
    async fn new(server: Server, adorn: impl FnOnce(&Authority, tls::Builder) -> tls::Builder) -> Self {
        let authority = Authority::new("authority");
        let tls = tls::Server::builder(identity(&authority.issue(&["127.0.0.1", "localhost"])));
        let tls = adorn(&authority, tls).build().unwrap();
        let listen = Listen::on("127.0.0.1:0").quic(quic::Config::default()).tls(tls);
        Self { server: server.bind(listen).await.unwrap().start(), authority }
    }

    fn trust(&self) -> tls::Client {
        tls::Client::new().ca(Pem::bytes(self.authority.pem()))
    }

    fn client(&self, protocol: Protocol) -> Client {
        Client::builder(&url(protocol, &self.server)).tls(self.trust()).build().unwrap()
    }
}

fn identity(issued: &IssuedCertificate) -> Identity {
    Identity::new(Pem::bytes(issued.certificate.clone()), Pem::bytes(issued.key.clone()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_protocol_works_over_quic() {
    let secure = Secure::new(Prober::default().server(), |_, tls| tls).await;
    let long = "long ".repeat(500_000);
    for protocol in PROTOCOLS {
        let client = secure.client(protocol);
        assert_eq!(echo(&client, "hi").await.unwrap(), "hi", "{protocol:?}");
        assert!(echo(&client, &long).await.unwrap() == long, "{protocol:?}");
    }
}

/// Returns what TLS knows of its caller.
#[polyrpc::service]
trait Teller {
    async fn who(&self, cx: &mut Context) -> Result<String>;
}

struct Reported;

impl Teller for Reported {
    async fn who(&self, cx: &mut Context) -> Result<String> {
        let Peer::Tls(secured) = cx.peer() else { return Ok(format!("{:?}", cx.peer())) };
        let below = matches!(secured.underlying(), Peer::Udp(address) if address.ip().is_loopback());
        Ok(format!("{below} {} {:?} {:?}", secured.version(), secured.alpn(), secured.names()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_sees_the_quic_peer() {
    let server = Server::new().service(TellerServer::new(Reported));
    let secure = Secure::new(server, |authority, tls| tls.client_ca(Pem::bytes(authority.pem()))).await;
    let shown = identity(&secure.authority.issue(&["client.example"]));
    let client = Client::builder(&url(Protocol::Rpcx, &secure.server)).tls(secure.trust().identity(shown));
    let who = soon(TellerClient::new(client.build().unwrap()).who()).await.unwrap();
    assert_eq!(who, r#"true TLS 1.3 Some("rpcx") ["client.example"]"#);
    let without = soon(TellerClient::new(secure.client(Protocol::Rpcx)).who()).await.unwrap_err();
    assert_eq!(without.code(), Code::Unavailable);
}

#[tokio::test]
async fn untrusted_quic_server_is_not_called() {
    let secure = Secure::new(Prober::default().server(), |_, tls| tls).await;
    let other = tls::Client::new().ca(Pem::bytes(Authority::new("other").pem()));
    let client = Client::builder(&url(Protocol::Rpcx, &secure.server)).tls(other).build().unwrap();
    assert_eq!(echo(&client, "hi").await.unwrap_err().code(), Code::Unavailable);
    let named = secure.trust().server_name("elsewhere.example");
    let client = Client::builder(&url(Protocol::Rpcx, &secure.server)).tls(named).build().unwrap();
    assert_eq!(echo(&client, "hi").await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn failed_quic_handshakes_are_counted_like_tls_ones() {
    let clients = Authority::new("clients");
    let required =
        |_: &Authority, tls: tls::Builder| tls.client_ca(Pem::bytes(clients.pem())).reject_plaintext();
    let secure = Secure::new(Prober::default().server(), required).await;
    let failed = || {
        let refusals = secure.server.info().rejections;
        refusals.iter().find(|(name, _)| *name == "tls_handshake").expect("the cause exists").1
    };
    assert!(echo(&secure.client(Protocol::Rpcx), "hi").await.is_err(), "the client has no certificate");
    until(|| failed() == 1).await;
    let other = tls::Client::new().ca(Pem::bytes(Authority::new("other").pem()));
    let wary = Client::builder(&url(Protocol::Rpcx, &secure.server)).tls(other).build().unwrap();
    assert!(echo(&wary, "hi").await.is_err(), "it does not trust the server");
    until(|| failed() == 2).await;
    let config = quic::Config { alpn: vec!["other".to_owned()], ..quic::Config::default() };
    let client = Client::builder(&url(Protocol::Rpcx, &secure.server)).tls(secure.trust()).quic(config);
    assert!(echo(&client.build().unwrap(), "hi").await.is_err(), "they have no protocol in common");
    until(|| failed() == 3).await;
    let shown = identity(&clients.issue(&["client.example"]));
    let client = Client::builder(&url(Protocol::Rpcx, &secure.server)).tls(secure.trust().identity(shown));
    assert_eq!(echo(&client.build().unwrap(), "hi").await.unwrap(), "hi");
    assert_eq!(failed(), 3, "one that succeeds is not counted");
}

#[tokio::test]
async fn alpn_must_match_on_both_sides() {
    let secure = Secure::new(Prober::default().server(), |_, tls| tls).await;
    let config = quic::Config { alpn: vec!["other".to_owned()], ..quic::Config::default() };
    let client = Client::builder(&url(Protocol::Rpcx, &secure.server)).tls(secure.trust()).quic(config);
    assert_eq!(echo(&client.build().unwrap(), "hi").await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_answers_calls_accepted_over_quic() {
    let secure = Secure::new(Prober::default().server(), |_, tls| tls).await;
    let client = secure.client(Protocol::Rpcx);
    echo(&client, "hi").await.unwrap();
    soon(secure.server.shutdown(Duration::from_secs(5))).await;
    assert!(echo(&client, "late").await.is_err());
}

/// A transport over UDP: how to listen, and a client of an address.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Carrier {
    Kcp,
    Quic,
}

/// How long a server may leave a client unanswered: longer than this machine stalls, as a rule.
const UNANSWERED: Duration = Duration::from_secs(3);

/// Servers with one certificate, and clients that trust it.
struct CarrierServers {
    carrier: Carrier,
    authority: Authority,
    issued: IssuedCertificate,
}

impl CarrierServers {
    fn new(carrier: Carrier) -> Self {
        let authority = Authority::new("authority");
        let issued = authority.issue(&["127.0.0.1"]);
        Self { carrier, authority, issued }
    }

    fn listen(&self) -> Listen {
        match self.carrier {
            Carrier::Kcp => Listen::on("127.0.0.1:0").kcp(protected()),
            Carrier::Quic => {
                Listen::on("quic://127.0.0.1:0").tls(tls::Server::new(identity(&self.issued)).unwrap())
            }
        }
    }

    async fn serve(&self) -> ServerHandle {
        Prober::default().server().bind(self.listen()).await.unwrap().start()
    }

    /// A client that waits this long for an answer to what it has sent, and never gives up a silent server otherwise.
    fn client(&self, address: &str, ack_timeout: Duration) -> Client {
        let hour = Duration::from_secs(3600);
        let carrier = if self.carrier == Carrier::Kcp { "kcp" } else { "quic" };
        let builder = Client::builder(&format!("rpcx://{address}?transport={carrier}")).timeout(hour);
        let builder = match self.carrier {
            Carrier::Kcp => builder.kcp(kcp::Config { idle_timeout: hour, ack_timeout, ..protected() }),
            Carrier::Quic => {
                let config = quic::Config {
                    idle_timeout: hour,
                    keepalive: None,
                    ack_timeout,
                    ..quic::Config::default()
                };
                builder.quic(config).tls(tls::Client::new().ca(Pem::bytes(self.authority.pem())))
            }
        };
        builder.build().unwrap()
    }
}

fn address(server: &ServerHandle) -> String {
    match &server.addresses()[0] {
        Address::Kcp(address) | Address::Quic(address) => address.clone(),
        other => panic!("{other}"),
    }
}

/// Passes datagrams of one client to a server that can be changed.
struct Relay {
    address: String,
    server: Arc<Mutex<String>>,
    running: JoinHandle<()>,
}

impl Relay {
    async fn start(server: &str) -> Self {
        let bind = || UdpSocket::bind("127.0.0.1:0");
        let (near, far) = (bind().await.unwrap(), bind().await.unwrap());
        let address = near.local_addr().unwrap().to_string();
        let server = Arc::new(Mutex::new(server.to_owned()));
        let current = server.clone();
        let running = tokio::spawn(async move {
            let (mut client, mut there, mut back) = (None, [0; 2000], [0; 2000]);
            loop {
                tokio::select! {
                    Ok((length, from)) = near.recv_from(&mut there) => {
                        client = Some(from);
                        let server = current.lock().unwrap().clone();
                        far.send_to(&there[..length], server).await.unwrap();
                    }
                    Ok((length, from)) = far.recv_from(&mut back) => {
                        // A server that is no longer meant is silent, too.
                        let is_current = *current.lock().unwrap() == from.to_string();
                        if is_current {
                            near.send_to(&back[..length], client.unwrap()).await.unwrap();
                        }
                    }
                }
            }
        });
        Self { address, server, running }
    }

    fn redirect(&self, server: &str) {
        server.clone_into(&mut self.server.lock().unwrap());
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.running.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_in_flight_fails_when_its_server_answers_nothing_over_udp() {
    for carrier in [Carrier::Kcp, Carrier::Quic] {
        let carried = CarrierServers::new(carrier);
        let server = carried.serve().await;
        let relay = Relay::start(&address(&server)).await;
        let client = carried.client(&relay.address, UNANSWERED);
        echo(&client, "hi").await.unwrap();
        // As if the machine of the server was switched off.
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        relay.redirect(&silent.local_addr().unwrap().to_string());
        let error = echo(&client, "lost").await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable, "{carrier:?}: {error}");
        assert!(error.message().contains("does not acknowledge"), "{carrier:?}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_waits_for_its_reply_fails_when_its_server_falls_silent_over_udp() {
    for carrier in [Carrier::Kcp, Carrier::Quic] {
        let (carried, prober) = (CarrierServers::new(carrier), Prober::default());
        let server = prober.server().bind(carried.listen()).await.unwrap().start();
        let relay = Relay::start(&address(&server)).await;
        let client = carried.client(&relay.address, UNANSWERED);
        let waiting = {
            let client = client.clone();
            tokio::spawn(async move { client.call::<String>("Probe/Wait", "lost").await })
        };
        prober.gate.came(1).await;
        // Long enough for everything to be acknowledged: the client has nothing to send.
        tokio::time::sleep(Duration::from_millis(700)).await;
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        relay.redirect(&silent.local_addr().unwrap().to_string());
        let error = soon(waiting).await.unwrap().unwrap_err();
        assert_eq!(error.code(), Code::Unavailable, "{carrier:?}: {error}");
        assert!(error.message().contains("does not acknowledge"), "{carrier:?}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_handler_does_not_look_like_a_silent_server_over_udp() {
    let carriers = [Carrier::Kcp, Carrier::Quic].map(|carrier| async move {
        let carried = CarrierServers::new(carrier);
        let slow = Server::new().function("slow", async |text: String| {
            tokio::time::sleep(UNANSWERED * 5 / 2).await;
            text
        });
        let server = slow.bind(carried.listen()).await.unwrap().start();
        let client = carried.client(&address(&server), UNANSWERED);
        assert_eq!(soon(client.call::<String>("slow", "late")).await.unwrap(), "late", "{carrier:?}");
    });
    futures_util::future::join_all(carriers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_of_a_restarted_server_is_notified_over_udp() {
    for carrier in [Carrier::Kcp, Carrier::Quic] {
        let carried = CarrierServers::new(carrier);
        let (server, successor) = (carried.serve().await, carried.serve().await);
        let relay = Relay::start(&address(&server)).await;
        let client = carried.client(&relay.address, Duration::from_secs(3600));
        echo(&client, "hi").await.unwrap();
        // The successor knows nothing of the connection.
        relay.redirect(&address(&successor));
        let error = echo(&client, "lost").await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable, "{carrier:?}: {error}");
        assert_eq!(again(|| client.call::<String>("Probe/Echo", "again")).await, "again", "{carrier:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_server_cannot_be_connected_to_over_udp() {
    for carrier in [Carrier::Kcp, Carrier::Quic] {
        // Bound, so that the system says nothing either.
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let error = echo(&CarrierServers::new(carrier).client(&address, Duration::from_secs(3600)), "hi")
            .await
            .unwrap_err();
        assert!(error.message().contains("cannot connect"), "{carrier:?}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn departed_client_leaves_the_server_at_once_over_udp() {
    for carrier in [Carrier::Kcp, Carrier::Quic] {
        let carried = CarrierServers::new(carrier);
        let server = carried.serve().await;
        let client = carried.client(&address(&server), Duration::from_secs(3600));
        echo(&client, "hi").await.unwrap();
        assert_eq!(server.connection_count(), 1);
        drop(client);
        until(|| server.connection_count() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_delivered_over_udp_although_the_process_ends_right_after_the_shutdown() {
    for carrier in [Carrier::Kcp, Carrier::Quic] {
        let carried = Arc::new(CarrierServers::new(carrier));
        let (tell, reported) = tokio::sync::oneshot::channel();
        let of_server = carried.clone();
        // Nothing of a runtime survives it, as nothing of a process does.
        let process = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let server = of_server.serve().await;
                tell.send(address(&server)).unwrap();
                while server.info().calls.started < 2 {
                    tokio::task::yield_now().await;
                }
                server.shutdown(Duration::from_secs(60)).await;
            });
        });
        let client = carried.client(&soon(reported).await.unwrap(), Duration::from_secs(3600));
        echo(&client, "hi").await.unwrap();
        // Many round trips long.
        let long = "long ".repeat(400_000);
        assert!(echo(&client, &long).await.unwrap() == long, "{carrier:?}");
        soon(tokio::task::spawn_blocking(move || process.join().unwrap())).await.unwrap();
        assert_eq!(echo(&client, "late").await.unwrap_err().code(), Code::Unavailable, "{carrier:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quic_connection_without_a_stream_is_closed() {
    let authority = Authority::new("authority");
    let tls = tls::Server::new(identity(&authority.issue(&["127.0.0.1", "localhost"]))).unwrap();
    let config = quic::Config { open_stream_timeout: Duration::from_millis(200), ..quic::Config::default() };
    let listen = Listen::on("127.0.0.1:0").quic(config).tls(tls);
    let server = Prober::default().server().bind(listen).await.unwrap().start();
    let Address::Quic(address) = server.addresses()[0].clone() else { panic!("it is QUIC") };
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    let mut crypto = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    crypto.alpn_protocols = vec![b"rpcx".to_vec()];
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(crypto).unwrap();
    let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let config = quinn::ClientConfig::new(std::sync::Arc::new(crypto));
    let connection =
        endpoint.connect_with(config, address.parse().unwrap(), "localhost").unwrap().await.unwrap();
    let ended = soon(connection.closed()).await;
    assert!(ended.to_string().contains("no stream was opened"), "{ended}");
}
