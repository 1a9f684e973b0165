//! Go's net/rpc through the public API.

use std::collections::BTreeMap;
use std::time::Duration;

use polyrpc::introspection::Health;
use polyrpc::net_rpc::Codec;
use polyrpc::server::{Limits, Listen};
use polyrpc::{Client, Context, Server, Status};
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

use crate::common::{Socket, serve, soon};

/// A Go client that expects a list of strings accepts no other type, and closes its connection over one; but an
/// empty value shows no type.
#[tokio::test]
async fn empty_results_keep_their_type() {
    /// A value without a visible type is in an interface, from which only an enum can be read.
    #[derive(Debug, Deserialize)]
    enum Interface {}

    let server = serve(
        Server::new()
            .function("names", || async { Vec::<String>::new() })
            .function("bytes", || async { Vec::<u8>::new() })
            .function("ages", || async { BTreeMap::<String, i64>::new() })
            .function("grid", || async { vec![Vec::<i64>::new()] }),
    )
    .await;
    let client = Client::new(&format!("net-rpc://{}", server.address())).unwrap();
    for (name, is) in [("names", "slice"), ("bytes", "bytes"), ("ages", "map"), ("grid", "slice")] {
        let error = client.call::<Interface>(name, &()).await.expect_err("no interface");
        let want = format!("decoding into Interface, received {is}");
        assert!(error.message().ends_with(&want), "{name}: {error}");
    }
    let grid: Vec<Vec<i64>> = client.call("grid", &()).await.unwrap();
    assert_eq!(grid, [Vec::<i64>::new()]);
}

#[tokio::test]
async fn idle_net_rpc_connection_is_kept_since_go_clients_do_not_reconnect() {
    let limits = Limits {
        first_byte_timeout: Duration::from_millis(250),
        idle_timeout: Some(Duration::from_millis(250)),
        ..Limits::default()
    };
    let add = |a: i64, b: i64| async move { a + b };
    let server = serve(Server::new().limits(limits).function("add", add)).await;
    let client = Client::new(&format!("net-rpc://{}", server.address())).unwrap();
    let sum: i64 = soon(client.call("add", &(1, 2))).await.unwrap();
    assert_eq!(sum, 3);
    // A connection without calls has been closed meanwhile, twice.
    for _ in 0..2 {
        Socket { stream: TcpStream::connect(server.address().to_string()).await.unwrap() }.rest().await;
    }
    assert_eq!(server.connection_count(), 1);
}

#[tokio::test]
async fn first_of_several_params_is_the_message_as_in_go() {
    let server = serve(Server::new().health(&Health::new())).await;
    let mut socket = Socket::connect(&server).await;
    for (params, want) in [
        ("[{}]", r#""error":null"#),
        (r#"[{},{"service":"nobody"},7]"#, r#""error":null"#),
        (r#"[{"service":"nobody"},{}]"#, r#""result":null"#),
    ] {
        let request = format!(r#"{{"method":"grpc.health.v1.Health.Check","params":{params},"id":1}}"#);
        socket.send(request.as_bytes()).await;
        let answer = socket.up_to("\n").await;
        assert!(answer.contains(want), "{params}: {answer}");
    }
}

#[tokio::test]
async fn type_unsupported_by_gob_fails_the_bind() {
    #[derive(Serialize, Deserialize)]
    struct Inner {
        a: i32,
    }

    #[derive(Serialize, Deserialize)]
    struct Flat {
        #[serde(flatten)]
        inner: Inner,
        b: i32,
    }

    let server = || Server::new().function("flat", |flat: Flat| async move { flat.inner.a + flat.b });
    let address = "127.0.0.1:0";
    // Functions with a context are checked too: their arguments, and every form of their result.
    let made = || Flat { inner: Inner { a: 1 }, b: 2 };
    for with_context in [
        Server::new().function("flat", |_: Context, flat: Flat| async move { flat.b }),
        Server::new().function("flat", move |_: Context| async move { made() }),
        Server::new().function("flat", move |_: Context| async move { Ok::<_, Status>(made()) }),
        Server::new().function("flat", move |cx: Context| async move { (cx, made()) }),
    ] {
        let listen = Listen::on(address).net_rpc(Codec::Gob);
        let error = with_context.bind(listen).await.expect_err("Go has no such struct").to_string();
        assert!(error.contains("serde(flatten)"), "{error}");
    }
    for listen in
        [Listen::on(address).net_rpc(Codec::Gob), Listen::on(address).protocols([polyrpc::Protocol::NetRpc])]
    {
        let error = server().bind(listen).await.expect_err("Go has no such struct").to_string();
        assert!(error.starts_with("flat cannot be called by net/rpc: "), "{error}");
        assert!(error.contains("serde(flatten)"), "{error}");
    }
    // It can still be called in other formats, such as JSON.
    let running = server().bind(address).await.unwrap().start();
    let client = crate::common::client(polyrpc::Protocol::Http, &running);
    let flat = Flat { inner: Inner { a: 1 }, b: 2 };
    assert_eq!(client.call::<i32>("flat", &flat).await.unwrap(), 3);
}
