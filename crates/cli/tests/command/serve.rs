//! Tests of `polyrpc serve` and its options.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::running::{InteractiveRun, Server, TempDir, polyrpc};
use bytes::Bytes;
use polyrpc::Client;
use polyrpc::client::Request;
use polyrpc::codec::Protobuf;
use polyrpc::streaming::StreamOptions;
use polyrpc_cli::proto::example::{EchoRequest, EchoResponse};

#[test]
fn help_lists_every_served_service() {
    let help = polyrpc(["serve", "--help"]).stdout;
    let server = Server::serve([]);
    let listed = polyrpc(["list", &server.url("grpc")]).stdout;
    let services = listed.lines().filter(|line| !line.is_empty() && !line.starts_with(' '));
    let mut count = 0;
    for service in services {
        let version = service.rsplit('.').nth(1).unwrap_or_default();
        let named = match service.starts_with("grpc.reflection.") {
            true => help.contains(version),
            false => help.contains(service),
        };
        assert!(named, "no {service} in\n{help}");
        count += 1;
    }
    assert!(count >= 8, "{listed}");
    assert!(help.lines().any(|line| line.starts_with("  echo, add ")), "{help}");
}

/// The client of brpc's `example/streaming_echo_c++` has no message handler, so it accepts no messages, and ignores the reply.
#[tokio::test]
async fn client_of_the_brpc_streaming_example_is_served() {
    let server = Server::serve([]);
    let client = Client::new(&server.url("baidu-std")).unwrap();
    for receives in [false, true] {
        let request = Request::new(EchoRequest {
            message: "I'm a RPC to connect stream".to_owned(),
            ..EchoRequest::default()
        });
        let options = StreamOptions { receives, ..StreamOptions::default() };
        let opened = client.open_stream::<Protobuf, EchoRequest, EchoResponse>(ECHO, request, options).await;
        let (response, mut stream) = opened.unwrap();
        assert_eq!(response.message.message, "I'm a RPC to connect stream");
        // More than the windows of both sides: unconsumed messages would block the sender.
        let message = Bytes::from(vec![b'x'; 1 << 20]);
        for _ in 0..8 {
            stream.send(message.clone()).await.unwrap();
            if receives {
                assert_eq!(stream.next().await.unwrap().unwrap().bytes, message);
            }
        }
        stream.close().await.unwrap();
    }
}

#[test]
fn metrics_are_served_on_a_separate_address() {
    let server = Server::serve(["--metrics", "127.0.0.1:0"]);
    let address = server.listener("metrics");
    let answered = polyrpc(["call", &server.url("rpcx"), "Arith/Mul", r#"{"A":7,"B":8}"#]);
    assert_eq!(answered.code, 0, "{answered:?}");
    let metrics = http(address, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(metrics.starts_with("HTTP/1.1 200 "), "{metrics}");
    let counted = metrics.lines().any(|line| {
        line.starts_with("polyrpc_calls_total{")
            && line.contains(r#"method="Mul""#)
            && line.contains(r#"protocol="rpcx""#)
            && line.ends_with(" 1")
    });
    assert!(counted, "{metrics}");
    // That address serves nothing else.
    let call = polyrpc(["call", &format!("http://{address}"), "Arith/Mul", r#"{"A":7,"B":8}"#]);
    assert_eq!(call.code, 76, "{call:?}");
}

#[test]
fn pages_are_on_the_admin_listener_and_not_on_the_port() {
    let server = Server::serve(["--admin", "127.0.0.1:0"]);
    let page = |address: &str, target: &str| {
        http(address, &format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    };
    let answered = polyrpc(["call", &server.url("rpcx"), "Arith/Mul", r#"{"A":7,"B":8}"#]);
    assert_eq!(answered.code, 0, "{answered:?}");
    let status = page(server.listener("admin"), "/status");
    assert!(status.contains("[example.EchoService]\n"), "{status}");
    assert!(status.contains("\nMul (ArithArgs) returns (ArithReply)\ncount: 1\n"), "{status}");
    for target in ["/status", "/vars", "/metrics", "/flags", "/connections"] {
        assert!(page(server.address(), target).starts_with("HTTP/1.1 404 "), "{target}");
    }
    assert!(page(server.address(), "/health").ends_with("OK"));
    assert!(page(server.listener("admin"), "/flags/max_body_size?setvalue=1").starts_with("HTTP/1.1 403 "));
}

#[test]
fn console_shows_the_servers_of_a_registry() {
    let server = Server::serve(["--admin", "127.0.0.1:0"]);
    let list = format!("list://{} admin={}", server.address(), server.listener("admin"));
    let console = Server::start(["console", &list, "--listen", "127.0.0.1:0"], "http://");
    let started = Instant::now();
    let mut page = fleet_page(&console);
    while !page.contains("\nreachable: 1\n") && started.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(100));
        page = fleet_page(&console);
    }
    assert!(page.contains("\nreachable: 1\nready: 1\n") && page.contains("|PolyRPC "), "{page}");
    let refused = polyrpc(["console", &list, "--listen", "127.0.0.1:0", "--writable"]);
    assert!(refused.code == 2 && refused.stderr.contains("--server-token"), "{refused:?}");
}

#[test]
fn console_hides_the_credentials_of_its_registry() {
    let address = crate::running::free_address();
    for (registry, shown) in [
        (format!("consul://{address}/S?token=SECRET"), format!("consul://{address}/S?token=***")),
        (format!("etcd://me:SECRET@{address}/base/S"), format!("etcd://me:***@{address}/base/S")),
    ] {
        let console = Server::start(["console", &registry, "--listen", "127.0.0.1:0"], "http://");
        let page = fleet_page(&console);
        assert!(page.contains(&format!("registry: {shown}\n")) && !page.contains("SECRET"), "{page}");
    }
}

/// The page of `polyrpc console`, as text.
fn fleet_page(console: &Server) -> String {
    let url = console.output().trim();
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    http(address, &format!("GET /{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
}

#[test]
fn pages_are_on_the_port_if_asked() {
    let server = Server::serve(["--pages"]);
    let page = |target: &str| {
        http(
            server.address(),
            &format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
        )
    };
    assert!(page("/status").contains("[example.EchoService]\n"));
    assert!(page("/brpc_metrics").starts_with("HTTP/1.1 200 "));
    assert!(page("/flags/max_body_size?setvalue=1").starts_with("HTTP/1.1 403 "));
}

#[test]
fn admin_listener_is_local_or_has_tokens() {
    let refused = polyrpc(["serve", "--listen", "127.0.0.1:0", "--admin", "0.0.0.0:0"]);
    assert!(refused.code == 1 && refused.stderr.contains("can be reached from elsewhere"), "{refused:?}");
    let folder = TempDir::new();
    let file = folder.path().join("tokens");
    std::fs::write(&file, "read 0123456789abcdef\nwrite short\n").unwrap();
    let tokens = file.to_str().unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--admin-tokens", tokens];
    let short = polyrpc(serve);
    assert!(short.code == 1 && short.stderr.contains("at least 16 bytes"), "{short:?}");
    std::fs::write(&file, "root 0123456789abcdef\n").unwrap();
    let unknown = polyrpc(serve);
    assert!(unknown.code == 1 && unknown.stderr.contains("line 1 of "), "{unknown:?}");
    std::fs::write(&file, "read 0123456789abcdef\n").unwrap();
    let server = Server::serve(["--admin", "127.0.0.1:0", "--admin-tokens", tokens]);
    let status = |fields: &str| {
        let request = format!("GET /status HTTP/1.1\r\nHost: localhost\r\n{fields}Connection: close\r\n\r\n");
        http(server.listener("admin"), &request)
    };
    assert!(status("").starts_with("HTTP/1.1 401 "));
    assert!(status("Authorization: Bearer 0123456789abcdef\r\n").starts_with("HTTP/1.1 200 "));
}

#[test]
fn cors_allows_only_the_configured_origins() {
    let server = Server::serve(["--cors", "https://app.example", "--cors", "http://localhost:3000"]);
    let call = |origin: &str| {
        let body = r#"{"message":"hi"}"#;
        http(
            server.address(),
            &format!(
                "POST /example.EchoService/Echo HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\nConnection: close\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ),
        )
    };
    for allowed in ["https://app.example", "http://localhost:3000"] {
        let answer = call(allowed).to_ascii_lowercase();
        assert!(answer.starts_with("http/1.1 200 "), "{answer}");
        assert!(answer.contains(&format!("access-control-allow-origin: {allowed}\r\n")), "{answer}");
    }
    let answer = call("https://other.example");
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");

    let server = Server::serve(["--cors", "*"]);
    let preflight = "OPTIONS /example.EchoService/Echo HTTP/1.1\r\nHost: localhost\r\nOrigin: https://any.example\r\n\
                     Access-Control-Request-Method: POST\r\nConnection: close\r\n\r\n";
    let answer = http(server.address(), preflight).to_ascii_lowercase();
    assert!(answer.contains("access-control-allow-origin: https://any.example\r\n"), "{answer}");

    let ran = polyrpc(["serve", "--cors", "https://app.example/path"]);
    assert!(ran.code == 2 && ran.stderr.contains("expected an origin without a path"), "{ran:?}");
}

#[test]
fn shutdown_waits_for_running_calls_up_to_the_grace_period() {
    // A streaming call that the client never ends.
    let watch = |server: &Server| {
        let url = server.url("grpc");
        let method = "grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
        let mut run = InteractiveRun::start(["call", &url, method, "-"]);
        run.write_input(r#"{"listServices":"*"}"#);
        assert!(run.read_json()["listServicesResponse"].is_object());
        run
    };
    // Far below the usual grace of 10 s, but a busy machine may delay the end for seconds.
    let most = Duration::from_secs(9);
    for (grace, least) in [("0", 0), ("1", 900)] {
        let server = Server::serve(["--grace", grace]);
        let run = watch(&server);
        let stopped = Instant::now();
        assert!(server.stop().success());
        let took = stopped.elapsed();
        assert!(took >= Duration::from_millis(least), "with a grace of {grace} s: {took:?}");
        assert!(took <= most, "with a grace of {grace} s: {took:?}");
        let ran = run.end();
        assert_ne!(ran.code, 0, "the call was cancelled: {ran:?}");
    }
}

/// Returns everything the server sends until it closes the connection.
fn http(address: &str, request: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

const ECHO: &str = "example.EchoService/Echo";
