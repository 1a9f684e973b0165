//! Byte streams and file transfers.

use std::collections::HashMap;
use std::io::Cursor;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polyrpc::server::{Limits, Listen, ServerHandle};
use polyrpc::transfer::{ByteStream, Files, Request, Streams, Upload};
use polyrpc::{Client, Code, Cores, Error, Protocol, Server, Status};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::{Gate, client, serve, soon, until, url, url_of};

/// Echoes bytes, and fails at a `!`.
fn parrot() -> Streams {
    Streams::new(|mut stream: ByteStream, _| async move {
        let mut bytes = [0; 1024];
        loop {
            match stream.read(&mut bytes).await? {
                0 => return Ok(()),
                n if bytes[..n].contains(&b'!') => return Err(Status::internal("no shouting").into()),
                n => stream.write_all(&bytes[..n]).await?,
            }
        }
    })
}

/// Stores uploaded files and serves them.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<HashMap<String, Vec<u8>>>>);

impl Shelf {
    fn files(&self) -> Files {
        let (ours, theirs) = (self.clone(), self.clone());
        Files::new()
            .on_upload(move |request: Request, mut upload: Upload| {
                let shelf = ours.clone();
                async move {
                    let mut content = Vec::new();
                    upload.read_to_end(&mut content).await?;
                    shelf.0.lock().unwrap().insert(request.name, content);
                    Ok(())
                }
            })
            .on_download(move |request: Request| {
                let found = theirs.0.lock().unwrap().get(&request.name).cloned();
                async move { found.map(Cursor::new).ok_or_else(|| Status::not_found("no such file").into()) }
            })
            .max_size(1 << 20)
    }

    fn get(&self, name: &str) -> Option<Vec<u8>> {
        self.0.lock().unwrap().get(name).cloned()
    }
}

fn none() -> HashMap<String, String> {
    HashMap::new()
}

fn one(key: &str, value: &str) -> HashMap<String, String> {
    HashMap::from([(key.to_owned(), value.to_owned())])
}

async fn send(
    client: &Client,
    name: &str,
    size: u64,
    content: impl AsyncRead,
) -> polyrpc::client::Result<()> {
    soon(client.send_file(name, size, &none(), content)).await
}

async fn fetch(client: &Client, name: &str) -> polyrpc::client::Result<Vec<u8>> {
    let mut content = Vec::new();
    let fetched = soon(client.download_file(name, &none(), &mut content)).await?;
    assert_eq!(fetched, content.len() as u64);
    Ok(content)
}

/// A token and an address, requested as by a foreign client.
#[derive(Deserialize)]
struct Grant {
    #[serde(rename = "Token")]
    token: Vec<u8>,
    #[serde(rename = "Addr")]
    addr: String,
}

async fn grant(server: &ServerHandle) -> Grant {
    let client = Client::new(&url(Protocol::Rpcx, server)).unwrap();
    soon(client.call("_streamservice/Stream", &HashMap::from([("Meta", none())]))).await.unwrap()
}

#[tokio::test]
async fn byte_stream_is_bidirectional_over_every_protocol() {
    let server = serve(Server::new().streams(parrot())).await;
    for protocol in ["baidu-std", "rpcx", "http", "grpc", "http?dialect=json-rpc", "rpcx?transport=ws"] {
        let client = Client::new(&url_of(protocol, server.address())).unwrap();
        let mut stream =
            soon(client.byte_stream(&none())).await.unwrap_or_else(|error| panic!("{protocol}: {error}"));
        for word in [&b"hello"[..], b"again"] {
            soon(stream.write_all(word)).await.unwrap();
            let mut answer = vec![0; word.len()];
            soon(stream.read_exact(&mut answer)).await.unwrap();
            assert_eq!(answer, word, "{protocol}");
        }
        soon(stream.shutdown()).await.unwrap();
        assert_eq!(soon(stream.read(&mut [0; 8])).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn handler_sees_the_request_metadata_and_can_reject() {
    let streams = Streams::new(|mut stream: ByteStream, request: Request| async move {
        let reported = request.metadata.get("room").cloned().unwrap_or_default();
        stream.write_all(reported.as_bytes()).await?;
        Ok(())
    })
    .accept(|_, request| match request.metadata.contains_key("room") {
        true => Ok(()),
        false => Err(Status::invalid_argument("which room?").into()),
    });
    let server = serve(Server::new().streams(streams)).await;
    let client = client(Protocol::Rpcx, &server);
    let mut reported = String::new();
    let mut stream = soon(client.byte_stream(&one("room", "7"))).await.unwrap();
    soon(stream.read_to_string(&mut reported)).await.unwrap();
    assert_eq!(reported, "7");
    let refused = soon(client.byte_stream(&none())).await.unwrap_err();
    assert_eq!(refused.message(), "which room?");
}

#[tokio::test]
async fn failing_handler_resets_the_stream_connection() {
    let server = serve(Server::new().streams(parrot())).await;
    let client = client(Protocol::Rpcx, &server);
    let mut stream = soon(client.byte_stream(&none())).await.unwrap();
    soon(stream.write_all(b"hello!")).await.unwrap();
    let error = soon(stream.read(&mut [0; 8])).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn panicking_handler_ends_its_stream_only() {
    let panics = Streams::new(|mut stream: ByteStream, _| async move {
        let mut byte = [0];
        stream.read_exact(&mut byte).await?;
        assert_ne!(byte, *b"p", "as asked");
        stream.write_all(&byte).await?;
        Ok(())
    });
    let server = serve(Server::new().streams(panics)).await;
    let client = client(Protocol::Rpcx, &server);
    let mut fine = soon(client.byte_stream(&none())).await.unwrap();
    let mut bad = soon(client.byte_stream(&none())).await.unwrap();
    soon(bad.write_all(b"p")).await.unwrap();
    soon(bad.read(&mut [0; 8])).await.unwrap_err();
    soon(fine.write_all(b"f")).await.unwrap();
    let mut answer = Vec::new();
    soon(fine.read_to_end(&mut answer)).await.unwrap();
    assert_eq!(answer, b"f");
}

#[tokio::test]
async fn token_is_valid_for_one_connection_at_any_split() {
    let server = serve(Server::new().streams(parrot())).await;
    let Grant { token, addr } = grant(&server).await;
    assert_eq!((token.len(), addr.as_str()), (32, server.address().to_string().as_str()));
    let mut socket = TcpStream::connect(&addr).await.unwrap();
    socket.set_nodelay(true).unwrap();
    for byte in [&token[..], b"hi"].concat() {
        socket.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut answer = [0; 2];
    soon(socket.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"hi");

    let mut again = TcpStream::connect(&addr).await.unwrap();
    again.write_all(&token).await.unwrap();
    assert_eq!(soon(again.read(&mut [0; 8])).await.unwrap_or(0), 0, "closed without a reason");
}

#[tokio::test]
async fn slow_token_times_out_without_blocking_others() {
    let limits = Limits { header_timeout: Duration::from_millis(250), ..Limits::default() };
    let server = serve(Server::new().streams(parrot()).limits(limits)).await;
    let Grant { token, addr } = grant(&server).await;
    let mut slow = TcpStream::connect(&addr).await.unwrap();
    slow.write_all(&token[..31]).await.unwrap();
    let client = client(Protocol::Rpcx, &server);
    let mut quick = soon(client.byte_stream(&none())).await.unwrap();
    soon(quick.write_all(b"hi")).await.unwrap();
    soon(quick.read_exact(&mut [0; 2])).await.unwrap();
    assert_eq!(soon(slow.read(&mut [0; 8])).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn token_requires_authentication() {
    let listen = Listen::on("127.0.0.1:0").authenticate(|credential, _| match credential {
        Some(b"secret") => Ok(()),
        _ => Err(Status::unauthenticated("who are you?")),
    });
    let server = Server::new().streams(parrot()).bind(listen).await.unwrap().start();
    let url = url(Protocol::Rpcx, &server);
    let anonymous = Client::new(&url).unwrap();
    assert_eq!(soon(anonymous.byte_stream(&none())).await.unwrap_err().message(), "who are you?");
    let friend = Client::builder(&url).credential("secret").build().unwrap();
    let mut stream = soon(friend.byte_stream(&none())).await.unwrap();
    soon(stream.write_all(b"hi")).await.unwrap();
    soon(stream.read_exact(&mut [0; 2])).await.unwrap();
}

#[tokio::test]
async fn server_without_streams_rejects_tokens() {
    let server = serve(Server::new()).await;
    let error = soon(client(Protocol::Rpcx, &server).byte_stream(&none())).await.unwrap_err();
    assert_eq!(error.message(), "rpcx: can't find service _streamservice");
    let mut socket = TcpStream::connect(server.address().to_string()).await.unwrap();
    socket.write_all(b"\xc1polyrpc").await.unwrap();
    assert_eq!(soon(socket.read(&mut [0; 8])).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn clients_can_be_directed_to_another_port() {
    let (server, spare) = loop {
        let spare = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let streams = parrot().advertise(spare.to_string());
        let bound = Server::new().streams(streams).bind("127.0.0.1:0").await.unwrap();
        // The other tests of this program use ports too: this one may be taken again.
        match bound.and(spare.to_string()).await {
            Ok(bound) => break (bound.start(), spare),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse, "{error}"),
        }
    };
    assert_eq!(grant(&server).await.addr, spare.to_string());
    let mut stream = soon(client(Protocol::Rpcx, &server).byte_stream(&none())).await.unwrap();
    soon(stream.write_all(b"hi")).await.unwrap();
    soon(stream.read_exact(&mut [0; 2])).await.unwrap();
}

#[tokio::test]
async fn unix_socket_carries_byte_streams() {
    let folder = std::env::temp_dir().join(format!("polyrpc-transfer-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("server.sock");
    let server =
        Server::new().streams(parrot()).bind(format!("unix:{}", path.display())).await.unwrap().start();
    let client = Client::new(&format!("rpcx://{}", path.display())).unwrap();
    let mut stream = soon(client.byte_stream(&none())).await.unwrap();
    soon(stream.write_all(b"hi")).await.unwrap();
    soon(stream.read_exact(&mut [0; 2])).await.unwrap();
    drop(server);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn token_is_granted_only_for_a_listener_that_accepts_it() {
    let path = std::env::temp_dir().join(format!("polyrpc-tokens-{}.sock", std::process::id()));
    let version = polyrpc::rest_rpc::Version::default();
    let deaf = Listen::on("127.0.0.1:0").rest_rpc(version);
    let bound = Server::new().streams(parrot()).bind(deaf).await.unwrap();
    let _server = bound.and(format!("unix:{}", path.display())).await.unwrap().start();
    let client = Client::new(&format!("rpcx://{}", path.display())).unwrap();
    let mut stream = soon(client.byte_stream(&none())).await.unwrap();
    soon(stream.write_all(b"hi")).await.unwrap();
    soon(stream.read_exact(&mut [0; 2])).await.unwrap();
}

#[tokio::test]
async fn in_process_callers_can_use_byte_streams() {
    let server = serve(Server::new().streams(parrot())).await;
    let client = server.client(Protocol::Rpcx).unwrap();
    let mut stream = soon(client.byte_stream(&none())).await.unwrap();
    soon(stream.write_all(b"hi")).await.unwrap();
    soon(stream.read_exact(&mut [0; 2])).await.unwrap();
}

#[tokio::test]
async fn files_of_any_length_round_trip() {
    let shelf = Shelf::default();
    let server = serve(Server::new().files(shelf.files()).executor(Cores::start(1).unwrap())).await;
    let client = client(Protocol::Rpcx, &server);
    for length in [0, 1, 31, 4096, 1 << 20] {
        let content: Vec<u8> = (0..length).map(|n: u32| (n % 251) as u8).collect();
        send(&client, "file", content.len() as u64, &content[..]).await.unwrap();
        assert_eq!(shelf.get("file").as_ref(), Some(&content));
        assert_eq!(fetch(&client, "file").await.unwrap(), content);
    }
}

#[tokio::test]
async fn rejected_file_is_reported_before_transfer() {
    let server = serve(Server::new().files(Shelf::default().files())).await;
    let rpcx = client(Protocol::Rpcx, &server);
    let reported = |error: Error| error.message().to_owned();
    assert_eq!(reported(fetch(&rpcx, "missing").await.unwrap_err()), "no such file");
    let too_long = send(&rpcx, "f", (1 << 20) + 1, tokio::io::repeat(0)).await.unwrap_err();
    assert_eq!(reported(too_long), "a file may have at most 1048576 bytes");

    let server = serve(Server::new().files(Files::new())).await;
    let rpcx = client(Protocol::Rpcx, &server);
    assert_eq!(reported(fetch(&rpcx, "f").await.unwrap_err()), "this server gives out no files");
    assert_eq!(reported(send(&rpcx, "f", 1, &b"x"[..]).await.unwrap_err()), "this server takes no files");
}

#[tokio::test]
async fn file_shorter_than_announced_is_an_error() {
    let shelf = Shelf::default();
    let server = serve(Server::new().files(shelf.files())).await;
    let client = client(Protocol::Rpcx, &server);
    let error = send(&client, "short", 10, &b"hello"[..]).await.unwrap_err();
    assert_eq!(error.message(), "the file was to have 10 bytes and has 5");
    until(|| server.connection_count() <= 1).await;
    assert_eq!(shelf.get("short"), None);
}

#[tokio::test]
async fn failing_upload_handler_is_reported_to_the_client() {
    let picky = Files::new().on_upload(|_, mut upload: Upload| async move {
        let mut byte = [0];
        upload.read_exact(&mut byte).await?;
        Err(Status::internal("not that one").into())
    });
    let server = serve(Server::new().files(picky)).await;
    let error = send(&client(Protocol::Rpcx, &server), "f", 5, &b"hello"[..]).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
}

#[tokio::test]
async fn file_name_is_returned_only_without_a_path() {
    let files = Files::new().on_download(|request: Request| async move {
        match request.file_name() {
            Some(name) => Ok(Cursor::new(name.to_owned())),
            None => Err(Status::invalid_argument("no file's name").into()),
        }
    });
    let server = serve(Server::new().files(files)).await;
    let client = client(Protocol::Rpcx, &server);
    assert_eq!(fetch(&client, "a b.txt").await.unwrap(), b"a b.txt");
    for name in ["", ".", "..", "../f", "/etc/passwd", "a/b", "f/", "./f", "a\\b", "a\0b"] {
        assert_eq!(fetch(&client, name).await.unwrap_err().message(), "no file's name", "{name:?}");
    }
}

#[tokio::test]
async fn shutdown_waits_for_transfers() {
    let gate = Gate::default();
    let waiting = gate.clone();
    let streams = Streams::new(move |mut stream: ByteStream, _| {
        let gate = waiting.clone();
        async move {
            gate.pass().await;
            stream.write_all(b"done").await?;
            Ok(())
        }
    });
    let server = serve(Server::new().streams(streams)).await;
    let mut stream = soon(client(Protocol::Rpcx, &server).byte_stream(&none())).await.unwrap();
    gate.came(1).await;
    let shutdown = tokio::spawn(server.shutdown(crate::common::PATIENCE));
    tokio::task::yield_now().await;
    gate.open();
    let mut reported = String::new();
    soon(stream.read_to_string(&mut reported)).await.unwrap();
    assert_eq!(reported, "done");
    drop(stream);
    soon(shutdown).await.unwrap();
}

#[tokio::test]
async fn shutdown_aborts_transfers_after_the_grace() {
    let gate = Gate::default();
    let waiting = gate.clone();
    let streams = Streams::new(move |_stream: ByteStream, _| {
        let gate = waiting.clone();
        async move {
            gate.pass().await;
            Ok(())
        }
    });
    let server = serve(Server::new().streams(streams)).await;
    let mut stream = soon(client(Protocol::Rpcx, &server).byte_stream(&none())).await.unwrap();
    gate.came(1).await;
    soon(server.shutdown(Duration::ZERO)).await;
    soon(stream.read(&mut [0; 8])).await.unwrap_err();
}

#[tokio::test]
async fn bytes_of_streams_and_files_are_in_the_metrics() {
    let (metrics, shelf) = (polyrpc::layers::Metrics::new(), Shelf::default());
    let server = serve(Server::new().streams(parrot()).files(shelf.files()).metrics(&metrics)).await;
    let client = client(Protocol::Rpcx, &server);
    let counted = |name: &str| {
        let text = metrics.text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        line.unwrap_or_else(|| panic!("no {name} in\n{text}"))
    };
    let received = || -> u64 { counted("polyrpc_received_bytes_total") };
    let sent = || -> u64 { counted("polyrpc_sent_bytes_total") };

    // While the stream is open, and each direction by itself.
    let mut stream = soon(client.byte_stream(&none())).await.unwrap();
    let (mut reported, mut answer) = (0, vec![0; 10_000]);
    for _ in 0..10 {
        soon(stream.write_all(&[b'x'; 10_000])).await.unwrap();
        reported += soon(stream.read_exact(&mut answer)).await.unwrap();
    }
    assert_eq!(reported, 100_000);
    until(|| received() > 100_000 && sent() > 100_000).await;
    assert!(received() < 102_000 && sent() < 102_000, "{} {}", received(), sent());

    // And once it is closed.
    let file = vec![b'y'; 500_000];
    soon(client.send_file("f", 500_000, &none(), &file[..])).await.unwrap();
    until(|| received() > 600_000).await;
    assert!(received() < 604_000 && sent() < 104_000, "{} {}", received(), sent());
    let mut fetched = Vec::new();
    soon(client.download_file("f", &none(), &mut fetched)).await.unwrap();
    assert_eq!(fetched.len(), 500_000);
    until(|| sent() > 600_000).await;
    assert!(received() < 606_000 && sent() < 606_000, "{} {}", received(), sent());
}
