//! The text pages beside those of brpc 1.17, which `vectors/http` holds.

mod common;

use bytes::Bytes;
use common::{get, observe, send, services};
use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::{Client, Format};

/// Returns the body of a captured answer.
fn read_captured(name: &str) -> String {
    let path = format!("{}/../../vectors/http/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.replace("\r\n", "\n").split_once("\n\n").unwrap().1.to_owned()
}

/// Returns a text with its numbers replaced.
fn shape(text: &str) -> String {
    let mut shape = String::new();
    for letter in text.chars() {
        match letter {
            '0'..='9' if shape.ends_with('#') => {}
            '0'..='9' => shape.push('#'),
            letter => shape.push(letter),
        }
    }
    shape
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn pages_that_do_not_depend_on_time_are_equal() {
    let (console, server) = observe(services()).await;
    let own = |target: &str| get(server.address(), target).body;
    assert_eq!(own("/health"), read_captured("get_health"));
    assert_eq!(own("/protobufs"), read_captured("get_protobufs"));
    assert_eq!(own("/protobufs/example.EchoRequest"), read_captured("get_protobufs_example.EchoRequest"));
    let list: serde_json::Value = serde_json::from_str(&read_captured("get_list")).unwrap();
    let own_list: serde_json::Value = serde_json::from_str(&own("/list")).unwrap();
    let service = &list["service"][0];
    assert!(own_list["service"].as_array().unwrap().contains(service), "{own_list}");
    drop(console);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn status_has_the_lines_of_brpc() {
    let (console, server) = observe(services()).await;
    let own = get(server.address(), "/status").body;
    let head = |text: &str| {
        shape(text)
            .lines()
            .take_while(|line| !line.starts_with('['))
            .map(|line| line.split(':').next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(head(&own), head(&read_captured("get_status")));
    let method = |text: &str| shape(text.split_once("[example.EchoService]").unwrap().1);
    assert_eq!(method(&own), method(&read_captured("get_status")));
    drop(console);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn connections_have_the_columns_of_brpc() {
    let (console, server) = observe(services()).await;
    let own = get(server.address(), "/connections").body;
    let brpc = read_captured("get_connections");
    let lines = |text: &str, at: usize| text.lines().nth(at).unwrap().to_owned();
    assert_eq!((lines(&own, 0), lines(&own, 1)), (lines(&brpc, 0), lines(&brpc, 1)));
    let columns = |line: &str| line.match_indices('|').map(|(at, _)| at).collect::<Vec<_>>();
    assert_eq!(columns(&lines(&own, 2)), columns(&lines(&brpc, 2)), "{own}");
    assert!(own.ends_with("\n\nchannel_connection_count: 0\n"), "{own}");
    drop(console);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn flags_and_variables_have_the_form_of_brpc() {
    let (console, server) = observe(services()).await;
    let own = get(server.address(), "/flags/max_body_size;health_check_interval;bvar_dump_interval").body;
    let brpc = read_captured("get_flags_max_body_size_health_check_interval_bvar_dump_interva");
    let start = |text: &str| text.lines().take(2).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(start(&own), start(&brpc));
    let flag = "max_body_size | 67108864 | Maximum size of a single message body in all protocols | ";
    assert!(own.contains(flag) && brpc.contains(flag), "{own}");
    // The variables of a server and its method that brpc has.
    let own = get(server.address(), "/vars/rpc_*").body;
    let port = server.address().to_string().rsplit_once(':').unwrap().1.to_owned();
    let own_names: Vec<_> = own.lines().filter_map(|line| line.split(" : ").next()).collect();
    let missing = ["builtin_service_count"];
    for line in read_captured("get_vars_rpc__").lines().filter(|line| line.starts_with("rpc_server_18001_")) {
        let name = line.split(" : ").next().unwrap().replace("18001", &port);
        let is_missing = missing.iter().any(|end| name.ends_with(end));
        assert_eq!(own_names.contains(&name.as_str()), !is_missing, "{name}: {own}");
    }
    assert!(own.contains(&format!("rpc_server_{port}_start_time : \"2")), "{own}");
    let metrics = send(server.address(), "GET", "/brpc_metrics", "", "").body;
    assert!(metrics.contains(&format!("# TYPE rpc_server_{port}_concurrency gauge\n")), "{metrics}");
    drop(console);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn status_and_list_are_there_over_baidu_std() {
    let (console, server) = observe(services()).await;
    let client = Client::new(&format!("baidu-std://{}", server.address())).unwrap();
    let call = async |service: &str| {
        let body = Body::new(Format::Protobuf, Bytes::new());
        client.call_raw(&format!("{service}/default_method"), body, CallOptions::default()).await.unwrap()
    };
    let status = call("brpc.status").await;
    assert!(status.message.bytes.is_empty());
    assert!(
        String::from_utf8_lossy(&status.attachment).contains("[example.EchoService]\n\nEcho (EchoRequest)")
    );
    // The captured answer is the service EchoService; ours has the functions before it.
    let list = call("brpc.list").await.message.bytes;
    let captured = b"\x0a\x42\x0a\x0bEchoService\x12\x33\x0a\x04Echo\x12\x14.example.EchoRequest\x1a\x15.example.EchoResponse";
    assert!(list.ends_with(captured), "{list:?}");
    drop(console);
}
