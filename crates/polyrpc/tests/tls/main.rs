//! TLS: every protocol with and without it on one port, certificates, and failures.

#![cfg(feature = "tls")]

#[path = "../common/mod.rs"]
mod common;

#[path = "../../src/transport/tls/tests/authority.rs"]
mod authority;

mod raw;
mod v1;

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use authority::{Authority, IssuedCertificate};
use common::{PROTOCOLS, ProbeClient, Prober, Socket, rpcx_frame, serve_apart, soon, until, url_of};
use polyrpc::blocking;
use polyrpc::discovery::List;
use polyrpc::server::{Limits, Listen, ServerHandle};
use polyrpc::service::Peer;
use polyrpc::tls::{self, Identity, Pem};
use polyrpc::{Client, Code, Context, Protocol, Result, Server, Status};

const HTTP: &[u8] = b"POST /Probe/Echo HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\n\"http\"";

fn identity(issued: &IssuedCertificate) -> Identity {
    Identity::new(Pem::bytes(issued.certificate.clone()), Pem::bytes(issued.key.clone()))
}

/// A server with a certificate of an authority that clients trust.
struct SecureServer {
    authority: Authority,
    server: ServerHandle,
}

impl SecureServer {
    async fn new() -> Self {
        Self::start(Prober::default().server(), |tls| tls).await
    }

    async fn start(server: Server, adorn: impl FnOnce(tls::Builder) -> tls::Builder) -> Self {
        let authority = Authority::new("authority");
        let tls = tls::Server::builder(identity(&authority.issue(&["127.0.0.1", "localhost"])));
        let tls = adorn(tls).build().unwrap();
        let server = server.bind(Listen::on("127.0.0.1:0").tls(tls)).await.unwrap().start();
        Self { authority, server }
    }

    fn url(&self, protocol: Protocol) -> String {
        url(protocol, &self.server)
    }

    fn trust(&self) -> tls::Client {
        tls::Client::new().ca(Pem::bytes(self.authority.pem()))
    }

    fn client(&self, protocol: Protocol) -> Client {
        Client::builder(&self.url(protocol)).tls(self.trust()).build().unwrap()
    }

    fn probe(&self, protocol: Protocol) -> ProbeClient {
        ProbeClient::new(self.client(protocol))
    }
}

fn url(protocol: Protocol, server: &ServerHandle) -> String {
    format!("{}+tls://{}", protocol.as_str(), server.address())
}

/// A client's failure to reach a server.
async fn failure(url: &str, tls: tls::Client) -> String {
    let client = Client::builder(url).tls(tls).build().unwrap();
    let error = soon(client.call::<String>("Probe/Echo", "a")).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
    error.message().to_owned()
}

#[tokio::test]
async fn one_port_answers_every_protocol_with_and_without_tls() {
    let secure = SecureServer::new().await;
    let large = "x".repeat(1 << 20);
    for protocol in PROTOCOLS {
        let clear = ProbeClient::new(common::client(protocol, &secure.server));
        for probe in [secure.probe(protocol), clear] {
            assert_eq!(soon(probe.echo("a".into())).await.unwrap(), "a", "{protocol:?}");
            assert_eq!(soon(probe.echo(large.clone())).await.unwrap(), large, "{protocol:?}");
        }
    }
}

/// A registry may list servers with different transports.
#[tokio::test]
async fn socket_and_websocket_of_a_registry_have_their_own_alpn_names() {
    let secure = SecureServer::new().await;
    let address = secure.server.address();
    let list: List = format!("tcp@{address},wss@{address}").parse().unwrap();
    let client = Client::builder("grpc+tls://probe").discover(list).tls(secure.trust()).build().unwrap();
    let replies = client.inform(|server| async move { server.call::<String>("Probe/Echo", &"a").await });
    let replies = soon(replies).await.unwrap();
    assert_eq!(replies.len(), 2);
    for (instance, reply) in replies {
        assert_eq!(reply.unwrap(), "a", "{instance:?}");
    }
}

#[tokio::test]
async fn many_calls_share_a_tls_connection() {
    let secure = SecureServer::new().await;
    for protocol in PROTOCOLS {
        let probe = Arc::new(secure.probe(protocol));
        let calls = (0..64).map(|n| {
            let probe = probe.clone();
            tokio::spawn(async move {
                for round in 0..20 {
                    let text = format!("{n} {round} {}", "y".repeat(n * 300));
                    assert_eq!(probe.echo(text.clone()).await.unwrap(), text);
                }
            })
        });
        for call in calls.collect::<Vec<_>>() {
            soon(call).await.unwrap();
        }
    }
}

#[test]
fn blocking_client_calls_over_tls() {
    let authority = Authority::new("authority");
    let issued = authority.issue(&["127.0.0.1"]);
    let tls = tls::Server::new(identity(&issued)).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let listen = Listen::on("127.0.0.1:0").tls(tls);
    let server = runtime.block_on(Prober::default().server().bind(listen)).unwrap();
    let server = runtime.block_on(async { server.start() });
    for protocol in PROTOCOLS {
        let trust = tls::Client::new().ca(Pem::bytes(authority.pem()));
        let client: blocking::Client =
            Client::builder(&url(protocol, &server)).tls(trust).build_blocking().unwrap();
        for length in [1, 100, 20_000, 1 << 20] {
            let text = "z".repeat(length);
            assert_eq!(client.call::<String>("Probe/Echo", &text).unwrap(), text, "{protocol:?}");
        }
        let strange = Client::builder(&url(protocol, &server));
        let strange = strange.tls(tls::Client::new().ca(Pem::bytes(Authority::new("other").pem())));
        let error = strange.build_blocking().unwrap().call::<String>("Probe/Echo", "a").unwrap_err();
        assert!(error.message().contains("an authority that is not trusted"), "{error}");
    }
}

#[tokio::test]
async fn listener_can_reject_plaintext() {
    let secure = SecureServer::start(Prober::default().server(), tls::Builder::reject_plaintext).await;
    for protocol in PROTOCOLS {
        assert_eq!(soon(secure.probe(protocol).echo("a".into())).await.unwrap(), "a", "{protocol:?}");
        let clear = ProbeClient::new(common::client(protocol, &secure.server));
        assert!(soon(clear.echo("a".into())).await.is_err());
    }
}

#[tokio::test]
async fn plaintext_to_a_tls_port_is_reported_as_such() {
    let secure = SecureServer::start(Prober::default().server(), tls::Builder::reject_plaintext).await;
    let address = secure.server.address().to_string();
    for scheme in
        ["baidu-std", "rpcx", "fb-rpc", "grpc", "http", "http?dialect=json-rpc", "rest-rpc", "net-rpc"]
    {
        let client = Client::new(&url_of(scheme, &address)).unwrap();
        let error = match scheme {
            "fb-rpc" => {
                let body = polyrpc::codec::Body::new(polyrpc::Format::Raw, "12345678");
                soon(client.call_raw("Probe/Echo#1", body, Default::default())).await.unwrap_err()
            }
            _ => soon(client.call::<String>("Probe/Echo", &"a")).await.unwrap_err(),
        };
        assert!(error.message().contains("the server expects TLS"), "{scheme}: {error}");
        assert_eq!(error.code(), Code::Unavailable, "{scheme}: {error}");
    }
    // The view of curl and browsers.
    let asked = tokio::task::spawn_blocking(move || {
        let mut socket = std::net::TcpStream::connect(&address).unwrap();
        socket.write_all(HTTP).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    });
    let answer = soon(asked).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{answer}");
    assert!(body.contains("https://"), "{answer}");
}

#[tokio::test]
async fn self_signed_certificate_is_trusted_if_configured() {
    let authority = |hosts: &[&str]| {
        let key = rcgen::KeyPair::generate().unwrap();
        let hosts = hosts.iter().map(|&host| host.to_owned()).collect::<Vec<_>>();
        let mut params = rcgen::CertificateParams::new(hosts).unwrap();
        // As `openssl req -x509` creates them.
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        IssuedCertificate { certificate: certificate.pem(), key: key.serialize_pem() }
    };
    let serve = async |issued: &IssuedCertificate| {
        let listen = Listen::on("127.0.0.1:0").tls(tls::Server::new(identity(issued)).unwrap());
        Prober::default().server().bind(listen).await.unwrap().start()
    };
    let own = authority(&["127.0.0.1"]);
    let named = tls::Client::new().ca(Pem::bytes(own.certificate.clone()));
    let server = serve(&own).await;
    for protocol in PROTOCOLS {
        let client = Client::builder(&url(protocol, &server)).tls(named.clone()).build().unwrap();
        assert_eq!(soon(ProbeClient::new(client).echo("a".into())).await.unwrap(), "a");
    }
    // It is valid only for the names in it, and no other is accepted in its place.
    let why = failure(&url(Protocol::Rpcx, &server), named.clone().server_name("b.example")).await;
    assert!(why.contains("is for 127.0.0.1, not for b.example"), "{why}");
    let why = failure(&url(Protocol::Rpcx, &serve(&authority(&["127.0.0.1"])).await), named).await;
    assert!(why.contains("that of an authority (CA:TRUE)") && why.contains("--cacert"), "{why}");
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
        Ok(format!("{} {} {}", secured.version(), secured.certificates().len(), secured.names().join(" ")))
    }
}

fn teller() -> Server {
    Server::new().service(TellerServer::new(Reported))
}

#[tokio::test]
async fn client_certificates_can_be_required() {
    let people = Authority::new("people");
    let secure = SecureServer::start(teller(), |tls| tls.client_ca(Pem::bytes(people.pem()))).await;
    for protocol in PROTOCOLS {
        let known = secure.trust().identity(identity(&people.issue(&["ann.example", "spiffe://a/b"])));
        let known = Client::builder(&secure.url(protocol)).tls(known).build().unwrap();
        let reported = soon(TellerClient::new(known).who()).await.unwrap();
        assert_eq!(reported, "TLS 1.3 1 ann.example spiffe://a/b", "{protocol:?}");

        let why = failure(&secure.url(protocol), secure.trust()).await;
        assert!(why.contains("the server requires a client certificate"), "{protocol:?}: {why}");

        let untrusted = secure.trust().identity(identity(&Authority::new("others").issue(&["eve.example"])));
        let why = failure(&secure.url(protocol), untrusted).await;
        assert!(why.contains("authority"), "{protocol:?}: {why}");
    }
}

#[tokio::test]
async fn client_certificates_can_be_optional() {
    let people = Authority::new("people");
    let secure = SecureServer::start(teller(), |tls| tls.optional_client_ca(Pem::bytes(people.pem()))).await;
    let url = secure.url(Protocol::Rpcx);
    let without_certificate = Client::builder(&url).tls(secure.trust()).build().unwrap();
    assert_eq!(soon(TellerClient::new(without_certificate).who()).await.unwrap(), "TLS 1.3 0 ");
    let ann = secure.trust().identity(identity(&people.issue(&["ann.example"])));
    let ann = Client::builder(&url).tls(ann).build().unwrap();
    assert_eq!(soon(TellerClient::new(ann).who()).await.unwrap(), "TLS 1.3 1 ann.example");
    let clear = Client::new(&format!("rpcx://{}", secure.server.address())).unwrap();
    assert!(soon(TellerClient::new(clear).who()).await.unwrap().starts_with("Tcp"));
}

#[tokio::test]
async fn authenticator_can_use_the_client_certificate() {
    let (authority, people) = (Authority::new("authority"), Authority::new("people"));
    let tls = tls::Server::builder(identity(&authority.issue(&["127.0.0.1"])));
    let tls = tls.optional_client_ca(Pem::bytes(people.pem())).build().unwrap();
    let listen = Listen::on("127.0.0.1:0").tls(tls).authenticate(|_, peer| {
        let names = peer.tls().map_or(&[][..], |secured| secured.names());
        match names.iter().any(|name| name == "ann.example") {
            true => Ok(()),
            false => Err(Status::unauthenticated("only Ann may call")),
        }
    });
    let server = Prober::default().server().bind(listen).await.unwrap().start();
    for protocol in PROTOCOLS {
        let trust = tls::Client::new().ca(Pem::bytes(authority.pem()));
        for (name, welcome) in [("ann.example", true), ("bob.example", false)] {
            let tls = trust.clone().identity(identity(&people.issue(&[name])));
            let client = Client::builder(&url(protocol, &server)).tls(tls).build().unwrap();
            let reply = soon(client.call::<String>("Probe/Echo", "a")).await;
            assert_eq!(reply.is_ok(), welcome, "{protocol:?}: {reply:?}");
        }
    }
}

#[tokio::test]
async fn certificate_is_selected_by_sni() {
    let authority = Authority::new("authority");
    let tls = tls::Server::builder(identity(&authority.issue(&["first.example"])))
        .identity(identity(&authority.issue(&["second.example", "*.wild.example"])))
        .build()
        .unwrap();
    let listen = Listen::on("127.0.0.1:0").tls(tls);
    let server = Prober::default().server().bind(listen).await.unwrap().start();
    let trust = |name: &str| tls::Client::new().ca(Pem::bytes(authority.pem())).server_name(name);
    for name in ["first.example", "second.example", "a.wild.example"] {
        let client = Client::builder(&url(Protocol::Grpc, &server)).tls(trust(name)).build().unwrap();
        assert_eq!(soon(client.call::<String>("Probe/Echo", "a")).await.unwrap(), "a", "{name}");
    }
    let why = failure(&url(Protocol::Grpc, &server), trust("third.example")).await;
    assert!(why.contains("is for first.example, not for third.example"), "{why}");
}

#[tokio::test]
async fn client_error_names_the_certificate_problem() {
    let authority = Authority::new("authority");
    let trust = tls::Client::new().ca(Pem::bytes(authority.pem()));
    let other = tls::Client::new().ca(Pem::bytes(Authority::new("other").pem()));
    for (issued, tls, why) in [
        (authority.issue_expired(&["127.0.0.1"]), &trust, "the server's certificate has expired"),
        (authority.issue(&["127.0.0.1"]), &other, "an authority that is not trusted"),
        (authority.issue(&["a.example"]), &trust, "is for a.example, not for 127.0.0.1"),
    ] {
        let server = tls::Server::new(identity(&issued)).unwrap();
        let listen = Listen::on("127.0.0.1:0").tls(server);
        let server = Prober::default().server().bind(listen).await.unwrap().start();
        let reported = failure(&url(Protocol::BaiduStd, &server), tls.clone()).await;
        assert!(reported.contains(why), "{reported}");
        let blind = tls.clone().dangerously_accept_any_certificate();
        let blind = Client::builder(&url(Protocol::BaiduStd, &server)).tls(blind).build().unwrap();
        assert_eq!(soon(blind.call::<String>("Probe/Echo", "a")).await.unwrap(), "a");
    }
}

#[tokio::test]
async fn server_without_tls_is_reported() {
    let server = common::serve(Prober::default().server()).await;
    for protocol in PROTOCOLS {
        let why =
            failure(&url(protocol, &server), tls::Client::new().dangerously_accept_any_certificate()).await;
        assert!(why.contains("may not speak TLS"), "{why}");
    }
}

#[test]
fn unusable_certificates_are_rejected_when_loaded() {
    let authority = Authority::new("authority");
    let (one, other) = (authority.issue(&["a.example"]), authority.issue(&["a.example"]));
    let pem = |text: &str| Pem::bytes(text.to_owned());
    let why = |identity: Identity| tls::Server::new(identity).unwrap_err().message().to_owned();
    let swapped = Identity::new(pem(&one.certificate), pem(&other.key));
    assert!(why(swapped).contains("is not that of the certificate"));
    assert!(why(Identity::new(pem(&one.key), pem(&one.key))).contains("there is no certificate in"));
    assert!(why(Identity::new(pem(&one.certificate), pem(&one.certificate))).contains("no private key in"));
    assert!(why(Identity::new("/no/such.pem", pem(&one.key))).contains("cannot read /no/such.pem"));
    let client = |tls: tls::Client, url: &str| Client::builder(url).tls(tls).build().unwrap_err();
    let error = client(tls::Client::new(), "rpcx://h:1");
    assert!(error.message().contains("write +tls"), "{error}");
    let error = client(tls::Client::new().ca(pem("nothing")), "rpcx+tls://h:1");
    assert!(error.message().contains("there is no certificate"), "{error}");
}

/// Files of a certificate and its key, removed when dropped.
struct Files {
    folder: PathBuf,
}

impl Files {
    fn new(name: &str, issued: &IssuedCertificate) -> Self {
        let folder = std::env::temp_dir().join(format!("polyrpc-tls-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let files = Self { folder };
        files.write(issued);
        files
    }

    fn write(&self, issued: &IssuedCertificate) {
        fs::write(self.certificate(), &issued.certificate).unwrap();
        fs::write(self.key(), &issued.key).unwrap();
    }

    fn certificate(&self) -> PathBuf {
        self.folder.join("server.pem")
    }

    fn key(&self) -> PathBuf {
        self.folder.join("server.key")
    }

    fn identity(&self) -> Identity {
        Identity::new(self.certificate(), self.key())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[tokio::test]
async fn certificates_are_reloaded_during_calls() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let files = Files::new("reload", &old.issue(&["127.0.0.1"]));
    let tls = tls::Server::new(files.identity()).unwrap();
    let prober = Prober::default();
    let listen = Listen::on("127.0.0.1:0").tls(tls.clone());
    let server = prober.server().bind(listen).await.unwrap().start();
    let trusting = |authority: &Authority| {
        let tls = tls::Client::new().ca(Pem::bytes(authority.pem()));
        ProbeClient::new(Client::builder(&url(Protocol::Rpcx, &server)).tls(tls).build().unwrap())
    };
    let before = trusting(&old);
    let waiting = before.clone();
    let waiting = tokio::spawn(async move { waiting.wait("began before".into()).await });
    prober.gate.came(1).await;

    // A broken file changes nothing.
    fs::write(files.certificate(), "broken").unwrap();
    assert!(tls.reload().unwrap_err().message().contains("there is no certificate"));
    assert_eq!(soon(trusting(&old).echo("a".into())).await.unwrap(), "a");

    files.write(&new.issue(&["127.0.0.1"]));
    tls.reload().unwrap();
    assert_eq!(soon(trusting(&new).echo("a".into())).await.unwrap(), "a");
    assert!(soon(trusting(&old).echo("a".into())).await.is_err());
    // Earlier connections continue.
    assert_eq!(soon(before.echo("b".into())).await.unwrap(), "b");
    prober.gate.open();
    assert_eq!(soon(waiting).await.unwrap().unwrap(), "began before");
}

#[tokio::test]
async fn changed_files_are_reloaded_and_broken_ones_reported() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let files = Files::new("watch", &old.issue(&["127.0.0.1"]));
    let reported = Arc::new(Mutex::new(Vec::new()));
    let tell = reported.clone();
    let tls = tls::Server::builder(files.identity())
        .reload_interval(Duration::from_millis(10))
        .on_reload(move |result: &polyrpc::client::Result<()>| tell.lock().unwrap().push(result.clone()))
        .build()
        .unwrap();
    let listen = Listen::on("127.0.0.1:0").tls(tls);
    let server = Prober::default().server().bind(listen).await.unwrap().start();
    let trusting = |authority: &Authority| {
        let tls = tls::Client::new().ca(Pem::bytes(authority.pem()));
        Client::builder(&url(Protocol::Rpcx, &server)).tls(tls).build().unwrap()
    };
    fs::write(files.certificate(), "broken").unwrap();
    until(|| !reported.lock().unwrap().is_empty()).await;
    assert!(reported.lock().unwrap()[0].is_err());
    assert_eq!(soon(trusting(&old).call::<String>("Probe/Echo", "a")).await.unwrap(), "a");
    files.write(&new.issue(&["127.0.0.1"]));
    until(|| reported.lock().unwrap().iter().any(std::result::Result::is_ok)).await;
    assert_eq!(soon(trusting(&new).call::<String>("Probe/Echo", "a")).await.unwrap(), "a");
}

#[tokio::test]
async fn client_reloads_its_files_like_a_server() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let files = Files::new("client-watch", &old.issue(&["caller.example"]));
    let trusted = files.folder.join("ca.pem");
    fs::write(&trusted, old.pem()).unwrap();
    let server = async |authority: &Authority| {
        let tls = tls::Server::builder(identity(&authority.issue(&["127.0.0.1"])));
        let tls = tls.client_ca(Pem::bytes(authority.pem())).build().unwrap();
        teller().bind(Listen::on("127.0.0.1:0").tls(tls)).await.unwrap().start()
    };
    let reported = Arc::new(Mutex::new(Vec::new()));
    let tell = reported.clone();
    let tls = tls::Client::new()
        .ca(trusted.clone())
        .identity(files.identity())
        .reload_interval(Duration::from_millis(10))
        .on_reload(move |result: &polyrpc::client::Result<()>| tell.lock().unwrap().push(result.clone()));
    let (before, after) = (server(&old).await, server(&new).await);
    let caller = |server: &ServerHandle| {
        TellerClient::new(Client::builder(&url(Protocol::Rpcx, server)).tls(tls.clone()).build().unwrap())
    };
    let (first, second) = (caller(&before), caller(&after));
    let seen = soon(first.who()).await.unwrap();
    assert!(soon(second.who()).await.is_err(), "its authority is not known yet");
    fs::write(files.certificate(), "broken").unwrap();
    fs::write(&trusted, new.pem()).unwrap();
    soon(async {
        while reported.lock().unwrap().is_empty() {
            assert!(second.who().await.is_err(), "the old ones stay");
        }
    })
    .await;
    assert!(reported.lock().unwrap()[0].is_err());
    files.write(&new.issue(&["caller.example"]));
    let again = common::again(|| second.who()).await;
    assert_eq!(again, seen);
    assert!(reported.lock().unwrap().iter().any(Result::is_ok));
}

#[tokio::test]
async fn garbage_after_the_client_hello_is_answered_with_an_alert() {
    let secure = SecureServer::new().await;
    for garbage in
        [&b"garbage that is no record at all"[..], &[0x16, 3, 3, 0, 4, 0xff, 0, 0, 0], &[0; 70_000]]
    {
        let mut socket = Socket::connect(&secure.server).await;
        socket.send(&raw::client_hello()).await;
        socket.offer(garbage).await;
        socket.hang_up().await;
        let answer = socket.rest().await;
        assert!(raw::alerts(&answer), "{}", answer.escape_ascii());
    }
    let mut socket = Socket::connect(&secure.server).await;
    socket.send(&[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0]).await;
    assert!(raw::alerts(&socket.rest().await));
    assert_eq!(soon(secure.probe(Protocol::Http).echo("a".into())).await.unwrap(), "a");
}

#[tokio::test]
async fn stalled_or_endless_handshake_times_out() {
    let limits = Limits { header_timeout: Duration::from_millis(300), ..Limits::default() };
    let secure = SecureServer::start(Prober::default().server().limits(limits), |tls| tls).await;
    let hello = raw::client_hello();
    for part in [1, 2, 5, hello.len() / 2, hello.len()] {
        let mut socket = Socket::connect(&secure.server).await;
        socket.send(&hello[..part]).await;
        socket.rest().await;
    }
    // A handshake message that announces 16 MiB.
    let mut socket = Socket::connect(&secure.server).await;
    let mut record = vec![0x16, 3, 1, 0x40, 0];
    record.extend([1, 0xff, 0xff, 0xff]);
    record.resize(5 + (16 << 10), 0);
    for _ in 0..64 {
        socket.offer(&record).await;
    }
    socket.rest().await;
    until(|| secure.server.connection_count() == 0).await;
}

#[tokio::test]
async fn header_timeout_does_not_apply_after_the_handshake() {
    let limits = Limits { header_timeout: Duration::from_millis(300), ..Limits::default() };
    let secure = SecureServer::start(Prober::default().server().limits(limits), |tls| tls).await;
    let (address, ca) = (secure.server.address().to_string(), secure.authority.pem());
    let mut stream = soon(async {
        loop {
            let (address, ca) = (address.clone(), ca.clone());
            let shaken = tokio::task::spawn_blocking(move || {
                let mut stream = raw::connect(&address, &ca, &[]);
                raw::shake(&mut stream);
                stream
            });
            // It fails if the machine stalls for as long as the timeout.
            if let Ok(stream) = shaken.await {
                return stream;
            }
        }
    })
    .await;
    // Later connections that stall in their handshake are closed for it, one after the other.
    for _ in 0..2 {
        let mut stalled = Socket::connect(&secure.server).await;
        stalled.send(&[0x16]).await;
        stalled.rest().await;
    }
    let answer = tokio::task::spawn_blocking(move || {
        stream.write_all(HTTP).unwrap();
        stream.conn.send_close_notify();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map(|_| answer)
    });
    assert!(soon(answer).await.unwrap().unwrap().ends_with("\"http\""));
}

#[tokio::test]
async fn request_before_close_notify_is_answered() {
    let secure = SecureServer::new().await;
    let (address, ca) = (secure.server.address().to_string(), secure.authority.pem());
    let answer = tokio::task::spawn_blocking(move || {
        let mut stream = raw::connect(&address, &ca, &[]);
        stream.write_all(HTTP).unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        let mut answer = String::new();
        // A truncated stream would be an error.
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    assert!(soon(answer).await.unwrap().ends_with("\"http\""));
}

#[tokio::test]
async fn request_before_a_truncated_close_is_answered() {
    let secure = SecureServer::new().await;
    let (address, ca) = (secure.server.address().to_string(), secure.authority.pem());
    let answer = tokio::task::spawn_blocking(move || {
        let mut stream = raw::connect(&address, &ca, &[]);
        stream.write_all(HTTP).unwrap();
        stream.flush().unwrap();
        stream.sock.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    assert!(soon(answer).await.unwrap().ends_with("\"http\""));
}

#[tokio::test]
async fn negotiated_alpn_protocol_is_enforced() {
    let secure = SecureServer::new().await;
    let (address, ca) = (secure.server.address().to_string(), secure.authority.pem());
    let ask = move |alpn: &'static [u8], say: Vec<u8>| {
        let (address, ca) = (address.clone(), ca.clone());
        soon(tokio::task::spawn_blocking(move || {
            let mut stream = raw::connect(&address, &ca, &[alpn]);
            // The server may have disconnected already.
            let _ = stream.write_all(&say);
            stream.conn.send_close_notify();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).map(|_| answer).map_err(|error| error.to_string())
        }))
    };
    let rpcx = rpcx_frame("Probe", "Echo", 1, false, b"\"a\"");
    assert!(ask(b"http/1.1", HTTP.to_vec()).await.unwrap().unwrap().ends_with(b"\"http\""));
    assert_eq!(ask(b"rpcx", rpcx.clone()).await.unwrap().unwrap().first(), Some(&8));
    // CONNECT is a request of HTTP.
    let behind = [&b"CONNECT /_rpcx_ HTTP/1.0\n\n"[..], &rpcx].concat();
    let answer = ask(b"http/1.1", behind).await.unwrap().unwrap();
    assert_eq!(answer.strip_prefix(b"HTTP/1.0 200 Connected to rpcx\n\n").and_then(<[u8]>::first), Some(&8));
    // Settings that name rpcx are used for its CONNECT too.
    let behind = [&b"CONNECT /_rpcx_ HTTP/1.0\n\n"[..], &rpcx].concat();
    let answer = ask(b"rpcx", behind).await.unwrap().unwrap();
    assert_eq!(answer.strip_prefix(b"HTTP/1.0 200 Connected to rpcx\n\n").and_then(<[u8]>::first), Some(&8));
    // HTTP rejects other protocols.
    let answer = ask(b"http/1.1", rpcx).await.unwrap().unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 400 "), "{}", answer.escape_ascii());
    let answer = ask(b"h2", HTTP.to_vec()).await.unwrap().unwrap_or_default();
    assert!(!answer.starts_with(b"HTTP"), "{}", answer.escape_ascii());
    let error = ask(b"spdy/3.1", HTTP.to_vec()).await.unwrap().unwrap_err();
    assert!(error.contains("NoApplicationProtocol"), "{error}");
}

#[tokio::test]
async fn x509_v1_client_certificate_is_accepted() {
    let issued = v1::issue();
    let tls = tls::Server::new(identity(&issued)).unwrap();
    let listen = Listen::on("127.0.0.1:0").tls(tls);
    let server = Prober::default().server().bind(listen).await.unwrap().start();
    let address = server.address().to_string();
    let answer = tokio::task::spawn_blocking(move || {
        let mut stream = raw::connect_with(&address, raw::without_verification());
        stream.write_all(HTTP).unwrap();
        stream.conn.send_close_notify();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map(|_| answer)
    });
    assert!(soon(answer).await.unwrap().unwrap().ends_with("\"http\""));
    let mixed = IssuedCertificate { key: v1::issue().key, ..issued };
    let error = tls::Server::new(identity(&mixed)).unwrap_err();
    assert!(error.message().contains("is not that of the certificate"), "{error}");
}

#[tokio::test]
async fn plaintext_data_streams_are_not_granted_on_a_tls_only_port() {
    let streams = || polyrpc::transfer::Streams::new(|_, _| async { Ok(()) });
    let secure = SecureServer::start(Server::new().streams(streams()), tls::Builder::reject_plaintext).await;
    let client = secure.client(Protocol::Rpcx);
    let error = soon(client.byte_stream(&Default::default())).await.unwrap_err();
    assert!(error.message().contains("no listener for data connections"), "{error}");
    let tls = tls::Server::builder(identity(&secure.authority.issue(&["127.0.0.1"])))
        .reject_plaintext()
        .build()
        .unwrap();
    let server = Server::new().streams(streams()).bind(Listen::on("127.0.0.1:0").tls(tls)).await.unwrap();
    let server = server.and("127.0.0.1:0").await.unwrap().start();
    let client = Client::builder(&url(Protocol::Rpcx, &server)).tls(secure.trust()).build().unwrap();
    let mut stream = soon(client.byte_stream(&Default::default())).await.unwrap();
    let mut end = Vec::new();
    soon(tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut end)).await.unwrap();
}

#[tokio::test]
async fn tls_session_is_resumed() {
    let secure = SecureServer::new().await;
    let (address, ca) = (secure.server.address().to_string(), secure.authority.pem());
    let kinds = tokio::task::spawn_blocking(move || {
        let config = raw::config(&ca, &[]);
        let call = || {
            let mut stream = raw::connect_with(&address, config.clone());
            stream.write_all(HTTP).unwrap();
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).unwrap();
            stream.conn.handshake_kind().unwrap()
        };
        [call(), call()]
    });
    assert_eq!(soon(kinds).await.unwrap(), [rustls::HandshakeKind::Full, rustls::HandshakeKind::Resumed]);
}

#[tokio::test]
async fn truncated_reply_is_not_accepted() {
    for (says_good_bye, want) in [(true, Ok("\"whole\"")), (false, Err("close_notify"))] {
        let authority = Authority::new("authority");
        let issued = authority.issue(&["127.0.0.1"]);
        let (address, served) = raw::serve_once(&issued, move |stream| {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n\"whole\"").unwrap();
            if says_good_bye {
                stream.conn.send_close_notify();
            }
            stream.flush().unwrap();
        });
        let tls = tls::Client::new().ca(Pem::bytes(authority.pem()));
        let client = Client::builder(&format!("https://{address}")).tls(tls).build().unwrap();
        let body = polyrpc::codec::Body::new(polyrpc::Format::Raw, &b""[..]);
        let reply = soon(client.call_raw("S/M", body, Default::default())).await;
        match want {
            Ok(text) => assert_eq!(&reply.unwrap().message.bytes[..], text.as_bytes()),
            Err(why) => assert!(reply.unwrap_err().message().contains(why)),
        }
        served.join().unwrap();
    }
}

#[tokio::test]
async fn shutdown_finishes_pending_replies_over_tls() {
    let prober = Prober::default();
    let secure = SecureServer::start(prober.server(), |tls| tls).await;
    let probe = secure.probe(Protocol::Grpc);
    let waiting = tokio::spawn(async move { probe.wait("owed".into()).await });
    prober.gate.came(1).await;
    let shutdown = tokio::spawn(secure.server.shutdown(common::PATIENCE));
    prober.gate.open();
    assert_eq!(soon(waiting).await.unwrap().unwrap(), "owed");
    soon(shutdown).await.unwrap();
}

#[test]
fn tls_connections_are_distributed_to_cores() {
    let authority = Authority::new("authority");
    let tls = tls::Server::new(identity(&authority.issue(&["127.0.0.1"]))).unwrap();
    let (runtime, _idle) = serve_apart(Server::new());
    let cores = polyrpc::Cores::start(2).unwrap();
    let listen = Listen::on("127.0.0.1:0").tls(tls);
    let server = runtime.block_on(Prober::default().server().executor(cores.clone()).bind(listen)).unwrap();
    let server = runtime.block_on(async { server.start() });
    let trust = tls::Client::new().ca(Pem::bytes(authority.pem()));
    let client = Client::builder(&url(Protocol::Grpc, &server)).tls(trust).executor(cores).build().unwrap();
    let reply = runtime.block_on(soon(client.call::<String>("Probe/Echo", "a")));
    assert_eq!(reply.unwrap(), "a");
}

#[tokio::test]
async fn failed_tls_handshakes_are_counted_by_cause() {
    let clients = Authority::new("clients");
    let secure = SecureServer::start(Prober::default().server(), |tls| {
        tls.client_ca(Pem::bytes(clients.pem())).reject_plaintext()
    })
    .await;
    let refused = |cause: &str| {
        let refusals = secure.server.info().rejections;
        refusals.iter().find(|(name, _)| *name == cause).expect("the cause exists").1
    };
    for _ in 0..3 {
        let clear = ProbeClient::new(common::client(Protocol::Rpcx, &secure.server));
        assert!(soon(clear.echo("a".into())).await.is_err());
        let without_certificate = secure.probe(Protocol::Rpcx);
        assert!(soon(without_certificate.echo("a".into())).await.is_err(), "the client has no certificate");
    }
    until(|| refused("clear_text") >= 3 && refused("tls_handshake") >= 3).await;
}
