//! Several protocols on one port: detection by the first bytes, and switching between messages if allowed.

use std::sync::atomic::Ordering;

use polyrpc::server::{Listen, ServerHandle};
use polyrpc::{Address, Client, Protocol};

use crate::common::{
    PROTOCOLS, ProbeClient, Prober, Socket, Wire, baidu_frame, client, json_call, rpcx_frame, serve, soon,
};

const HTTP: &str = "POST /Probe/Echo HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n\"http\"";

#[tokio::test]
async fn connection_switches_between_brpc_protocols_if_allowed() {
    let server = switching(&Prober::default()).await;
    // All in one packet, several of each.
    let mut all = Vec::new();
    all.extend(HTTP.as_bytes());
    all.extend(HTTP.as_bytes());
    all.extend(baidu_frame("Probe", "Echo", 1, 0, b"\"baidu\""));
    all.extend(baidu_frame("Probe", "Echo", 2, 0, b"\"baidu\""));
    all.extend(HTTP.as_bytes());
    all.extend(baidu_frame("Probe", "Echo", 4, 0, b"\"baidu\""));
    // rpcx is not one of brpc's protocols.
    all.extend(rpcx_frame("Probe", "Echo", 3, false, b"\"rpcx\""));
    let whole = answers(&server, &[&all]).await;
    assert_eq!(count(&whole, b"HTTP/1.1 200"), 3);
    assert_eq!(count(&whole, b"PRPC"), 3);
    assert_eq!(count(&whole, b"Probe"), 0, "rpcx would echo its names");
    // For any split of the bytes.
    let single: Vec<&[u8]> = all.chunks(1).collect();
    assert_eq!(answers(&server, &single).await, whole);
    for at in (1..all.len()).step_by(7) {
        assert_eq!(answers(&server, &[&all[..at], &all[at..]]).await, whole, "cut at {at}");
    }
}

/// A server whose connections may switch between brpc's protocols.
async fn switching(prober: &Prober) -> ServerHandle {
    let listen = Listen::on("127.0.0.1:0").allow_protocol_switch();
    prober.server().bind(listen).await.unwrap().start()
}

#[tokio::test]
async fn message_of_another_protocol_closes_its_connection_after_pending_replies() {
    let prober = Prober::default();
    let server = serve(prober.server()).await;
    let messages = [
        HTTP.as_bytes().to_vec(),
        baidu_frame("Probe", "Echo", 1, 0, b"\"baidu\""),
        rpcx_frame("Probe", "Echo", 3, false, b"\"rpcx\""),
        br#"{"method":"Probe.Echo","params":["json"],"id":1}"#.to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec(),
    ];
    for (at, first) in messages[..3].iter().enumerate() {
        let alone = answers(&server, &[first]).await;
        assert_eq!(prober.ran.swap(0, Ordering::SeqCst), 1);
        for (other, second) in messages.iter().enumerate().filter(|(other, _)| *other != at) {
            for packets in [&[&[&first[..], second].concat()[..]][..], &[first, second]] {
                let answer = answers(&server, packets).await;
                let behind = answer.strip_prefix(&alone[..]).unwrap_or_else(|| panic!("{at} {other}"));
                let refused = if at == 0 { b"HTTP/1.1 400 ".as_slice() } else { b"" };
                assert!(behind.starts_with(refused), "{}", behind.escape_ascii());
                assert_eq!(behind.is_empty(), at != 0, "{}", behind.escape_ascii());
                assert_eq!(prober.ran.swap(0, Ordering::SeqCst), 1, "{at} {other}");
            }
        }
    }
}

/// The responses to these packets until the connection ends.
async fn answers(server: &ServerHandle, packets: &[&[u8]]) -> Vec<u8> {
    let mut socket = Socket::connect(server).await;
    socket.stream.set_nodelay(true).unwrap();
    for packet in packets {
        // The server closes after the last message that it accepts.
        socket.offer(packet).await;
        // The server runs on this thread too: it sees each packet separately.
        tokio::task::yield_now().await;
    }
    socket.hang_up().await;
    socket.rest().await
}

fn count(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).filter(|window| *window == part).count()
}

#[tokio::test]
async fn pending_replies_precede_the_next_protocol() {
    let prober = Prober::default();
    let server = switching(&prober).await;
    let mut socket = Socket::connect(&server).await;
    socket.send(&baidu_frame("Probe", "Wait", 1, 0, b"\"owed\"")).await;
    socket.send(HTTP.as_bytes()).await;
    prober.gate.came(1).await;
    // Enough time to read it, if it were read.
    let probe = ProbeClient::new(client(Protocol::Http, &server));
    for _ in 0..20 {
        probe.echo("other".into()).await.unwrap();
    }
    assert_eq!(prober.ran(), 21);
    prober.gate.open();
    socket.hang_up().await;
    let answers = socket.rest().await;
    assert!(answers.starts_with(b"PRPC"), "{}", answers.escape_ascii());
    assert!(answers.ends_with(b"\"http\""), "{}", answers.escape_ascii());
}

#[tokio::test]
async fn rpcx_is_reachable_by_http_connect() {
    let server = serve(Prober::default().server()).await;
    let mut socket = Socket::connect(&server).await;
    socket.send(b"CONNECT /_rpcx_ HTTP/1.0\n\n").await;
    assert_eq!(socket.up_to("\n\n").await, "HTTP/1.0 200 Connected to rpcx\n\n");
    let mut wire = Wire::new(socket, Protocol::Rpcx);
    wire.send(7, &json_call("Probe", "Echo", "\"a\"")).await;
    let (id, reply) = wire.reply().await.unwrap();
    assert_eq!((id, &reply.result.unwrap()[..]), (7, &b"\"a\""[..]));
}

#[tokio::test]
async fn protocol_is_detected_from_single_bytes() {
    let server = serve(Prober::default().server()).await;
    for protocol in PROTOCOLS {
        let mut wire = Wire::connect(protocol, &server).await;
        wire.socket.stream.set_nodelay(true).unwrap();
        for byte in wire.encode(1, &json_call("Probe", "Echo", "\"a\"")) {
            wire.socket.send(&[byte]).await;
            tokio::task::yield_now().await;
        }
        assert!(wire.reply().await.expect("an answer").1.result.is_ok(), "{protocol:?}");
    }
}

#[tokio::test]
async fn listener_speaks_only_its_configured_protocols() {
    let listen = |allowed: Protocol| Listen::on("127.0.0.1:0").protocols([allowed]);
    let server = Prober::default().server().bind(listen(Protocol::BaiduStd)).await.unwrap();
    let server = server.and(listen(Protocol::Rpcx)).await.unwrap().and(listen(Protocol::Grpc)).await.unwrap();
    let server = server.and(listen(Protocol::Http)).await.unwrap();
    let server = server.and(listen(Protocol::NetRpc)).await.unwrap().start();
    for (address, allowed) in server.addresses().iter().zip(PROTOCOLS) {
        for protocol in PROTOCOLS {
            let client = Client::new(&format!("{}://{address}", protocol.as_str())).unwrap();
            let reply = soon(client.call::<String>("Probe/Echo", "a")).await;
            assert_eq!(reply.is_ok(), protocol == allowed, "{protocol:?} at one for {allowed:?}: {reply:?}");
        }
    }
    // Not by switching between messages either.
    let http = &server.addresses()[3];
    let mut socket = Socket { stream: tokio::net::TcpStream::connect(http.to_string()).await.unwrap() };
    assert_eq!(socket.http(HTTP).await, (200, "\"http\"".to_owned()));
    socket.send(&baidu_frame("Probe", "Echo", 1, 0, b"\"baidu\"")).await;
    assert!(socket.rest().await.starts_with(b"HTTP/1.1 400 "));
}

#[tokio::test]
async fn several_listeners_share_one_server() {
    let prober = Prober::default();
    let path = std::env::temp_dir().join(format!("polyrpc-listeners-{}.sock", std::process::id()));
    let unix = format!("unix:{}", path.display());
    let bound = prober.server().bind("127.0.0.1:0").await.unwrap().and("127.0.0.1:0").await.unwrap();
    let server = bound.and(unix.as_str()).await.unwrap().start();
    let [first, second, third] = server.addresses() else { panic!("three addresses") };
    assert_ne!(first, second);
    assert_eq!(third, &Address::Unix(path.clone()));
    let urls = [format!("rpcx://{first}"), format!("rpcx://{second}"), format!("rpcx://{}", path.display())];
    let clients = urls.map(|url| Client::new(&url).unwrap());
    for client in &clients {
        assert_eq!(client.call::<String>("Probe/Echo", "a").await.unwrap(), "a");
    }
    assert_eq!(prober.ran(), 3);
    assert_eq!(server.connection_count(), 3);
    server.shutdown(crate::common::PATIENCE).await;
    assert!(!path.exists(), "the socket's file is gone with its listener");
}
