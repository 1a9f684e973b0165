//! Recordings of the calls through a gateway.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::fallback::{RawRequest, RawResponse};
use polyrpc::server::ServerHandle;
use polyrpc::{Bytes, Client, Format, Server, Streaming};
use polyrpc_gateway::{Config, Gateway, check};
use polyrpc_record::{Call, Entry, Reader, RecordingEnd};
use serde_json::Value;

use super::shop::{Customers, Shop, proto, wait_for_page};

/// A folder of the test's own.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("polyrpc-gateway-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("calls.rec")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn read(path: &Path) -> Vec<Call> {
    let mut reader = Reader::new(fs::File::open(path).unwrap()).unwrap();
    let mut calls = Vec::new();
    while let Some(entry) = reader.next_entry().unwrap() {
        if let Entry::Call(call) = entry {
            calls.push(*call);
        }
    }
    assert!(matches!(reader.ending(), Some(RecordingEnd::Complete(_))), "{:?}", reader.ending());
    calls
}

fn configuration(folder: &Folder, url: &str, record: &str, schema: bool) -> String {
    let proto = if schema { format!("\"{}\"", proto()) } else { String::new() };
    format!(
        r#"
[admin]
listen = "127.0.0.1:0"
[schema]
proto = [{proto}]
[record]
file = "{file}"
min_free = "0KiB"
{record}
[[listen]]
address = "127.0.0.1:0"
[[upstream]]
name = "a"
url = "{url}"
[[route]]
match = {{ method = "Buy" }}
to = "a"
record = false
[[route]]
to = "a"
"#,
        file = folder.file().display()
    )
}

async fn start(text: &str) -> Gateway {
    let config = Config::parse(text).unwrap();
    check(&config).unwrap();
    Gateway::start(config).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_recorded_as_callers_made_them_without_what_is_removed() {
    let folder = Folder::new();
    let key = folder.0.join("key");
    fs::write(&key, "sixteen bytes or more").unwrap();
    let shop = Shop::start(0).await;
    let rules = format!("drop = [\"name\"]\nhash = [\"price\"]\nhash_key = \"file:{}\"", key.display());
    let text = configuration(&folder, &format!("grpc://{}", shop.address()), &rules, true);
    let mut gateway = start(&text).await;
    let customers = Customers::new(&gateway);
    assert_eq!(customers.call("Get", 7).await.unwrap()["name"], "item 7");
    customers.call("Buy", 8).await.unwrap();
    // Messages of gRPC pass unread, and are removed by the schema.
    let grpc = Client::builder(&format!("grpc://{}", gateway.addresses()[0])).credential("secret");
    let body = Body::new(Format::Protobuf, &b"\x08\x09"[..]);
    grpc.build().unwrap().call_raw("shop.Shop/Get", body, CallOptions::default()).await.unwrap();
    shop.is_broken.store(true, Ordering::Relaxed);
    customers.call("Get", 7).await.unwrap_err();
    wait_for_page(&gateway, "recording", |page| page["recorded"] == 3).await;
    // A reload keeps the recording, which itself cannot change.
    gateway.reload(Config::parse(&text).unwrap()).await.unwrap();
    let moved = text.replace("calls.rec", "other.rec");
    let refused = gateway.reload(Config::parse(&moved).unwrap()).await.unwrap_err().to_string();
    assert_eq!(refused, "[record] cannot change while the gateway runs");
    gateway.shutdown().await;
    let calls = read(&folder.file());
    let [json, protobuf, failed] = calls.as_slice() else { panic!("{calls:?}") };
    assert!(calls.iter().all(|call| call.full_name() == "shop.Shop/Get" && call.is_unary()), "{calls:?}");
    assert_eq!((json.protocol.as_str(), protobuf.protocol.as_str()), ("http", "grpc"));
    let answer = |call: &Call| call.outcome.as_ref().unwrap().response.clone().unwrap();
    let offer: Value = serde_json::from_slice(&answer(json).body).unwrap();
    assert!(offer["id"] == 7 && offer.get("name").is_none(), "{offer}");
    assert!(offer["price"] != 21 && !offer["price"].is_null(), "{offer}");
    assert_eq!(answer(protobuf).format, Some(Format::Protobuf));
    assert!(answer(protobuf).length > 0 && answer(protobuf).omitted.is_empty());
    let failure = failed.failure().unwrap();
    assert_eq!(
        (failure.code.as_str(), failure.message.as_str()),
        ("internal", ""),
        "its text may repeat a field"
    );
    let file = fs::read(folder.file()).unwrap();
    for removed in [&b"item"[..], b"secret"] {
        assert!(!file.windows(removed.len()).any(|part| part == removed), "{}", removed.escape_ascii());
    }
}

/// A server of gRPC that returns every message.
async fn echo() -> ServerHandle {
    let server = Server::new()
        .fallback(|mut call: RawRequest| async move { Ok(RawResponse::messages(call.messages())) });
    server.bind("127.0.0.1:0").await.unwrap().start()
}

/// Sends these messages, and gets them back.
async fn converse(gateway: &Gateway, messages: &[&'static [u8]]) {
    let client = Client::new(&format!("grpc://{}", gateway.addresses()[0])).unwrap();
    let mut call =
        client.open_raw("any.Service/Method", CallOptions::default(), Format::Protobuf).await.unwrap();
    for message in messages {
        call.send(Bytes::from_static(message)).await.unwrap();
        assert_eq!(call.next().await.unwrap().unwrap().bytes, message);
    }
    call.finish_sending().await.unwrap();
    assert!(call.next().await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_calls_that_nothing_declares_are_recorded() {
    let folder = Folder::new();
    let server = echo().await;
    let text = configuration(&folder, &format!("grpc://{}", server.address()), "", false);
    let gateway = start(&text).await;
    converse(&gateway, &[b"one", b"two", b"three"]).await;
    converse(&gateway, &[b"alone"]).await;
    gateway.shutdown().await;
    let calls = read(&folder.file());
    let [stream, single] = calls.as_slice() else { panic!("{calls:?}") };
    let messages: Vec<_> =
        stream.events.iter().map(|event| (event.from_server, event.message.as_ref())).collect();
    let three = [&b"one"[..], b"two", b"three"];
    let expected: Vec<_> = three.iter().flat_map(|message| [(false, *message), (true, *message)]).collect();
    assert!(!stream.is_unary() && messages == expected && stream.events_left_out == 0, "{stream:?}");
    // One message each way is what a unary call has.
    let outcome = single.outcome.as_ref().unwrap();
    assert!(single.is_unary() && single.events.is_empty(), "{single:?}");
    assert_eq!(single.request.as_ref().unwrap().body, &b"alone"[..]);
    assert_eq!(outcome.response.as_ref().unwrap().body, &b"alone"[..]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_streams_are_recorded_up_to_a_bound() {
    let folder = Folder::new();
    let server = Server::new().fallback(|mut call: RawRequest| async move {
        call.body().await?;
        Ok(RawResponse::messages(Streaming::from_iter(vec![Bytes::from_static(&[0x5a; 100]); 1_500])))
    });
    let server = server.bind("127.0.0.1:0").await.unwrap().start();
    let gateway = start(&configuration(&folder, &format!("grpc://{}", server.address()), "", false)).await;
    let client = Client::new(&format!("grpc://{}", gateway.addresses()[0])).unwrap();
    let mut call =
        client.open_raw("any.Service/Method", CallOptions::default(), Format::Protobuf).await.unwrap();
    call.send(Bytes::from_static(b"go")).await.unwrap();
    call.finish_sending().await.unwrap();
    let mut count = 0;
    while call.next().await.unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 1_500);
    gateway.shutdown().await;
    let calls = read(&folder.file());
    assert_eq!((calls[0].events.len(), calls[0].events_left_out), (1_000, 501), "{:?}", calls[0].request);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_cannot_be_decoded_are_not_recorded_if_fields_are_removed() {
    let folder = Folder::new();
    let server = echo().await;
    let url = format!("grpc://{}", server.address());
    let gateway = start(&configuration(&folder, &url, "drop = [\"password\"]", false)).await;
    converse(&gateway, &[b"hunter2 in one message"]).await;
    converse(&gateway, &[b"hunter2", b"in a stream"]).await;
    gateway.shutdown().await;
    let calls = read(&folder.file());
    assert_eq!(calls.len(), 2);
    assert!(!calls[0].request.as_ref().unwrap().omitted.is_empty(), "{calls:?}");
    let file = fs::read(folder.file()).unwrap();
    assert!(!file.windows(7).any(|part| part == b"hunter2"));
}

#[test]
fn check_says_which_messages_a_recording_drops() {
    let folder = Folder::new();
    let text = configuration(&folder, "grpc://127.0.0.1:1", "drop = [\"name\"]", true);
    let notes = |text: &str| -> Vec<String> {
        check(&Config::parse(text).unwrap()).unwrap().iter().map(ToString::to_string).collect()
    };
    let recording =
        |notes: Vec<String>| notes.into_iter().filter(|note| note.contains("[record]")).collect::<Vec<_>>();
    let said = recording(notes(&text));
    assert_eq!(
        said,
        [
            "line 6: [record]: messages of net_rpc, fb_rpc callers are not kept: fields are removed from protobuf, JSON and MessagePack"
        ]
    );
    // The upstream's names are declared, and the callers' are not.
    let callers = "protocols = [\"grpc\"]\n[[upstream]]";
    let renamed = text.replacen("[[upstream]]", callers, 1).replace(
        "[[route]]\nto",
        "[[route]]\nmatch = { service = \"Old\" }\nrename = { service = \"shop.Shop\" }\nto",
    );
    assert!(recording(notes(&renamed)).is_empty(), "methods by their declared names pass");
    let missing = text.replace("calls.rec", "no/such/folder/calls.rec");
    let problems = check(&Config::parse(&missing).unwrap()).unwrap_err().to_string();
    assert!(problems.starts_with("line 6: [record]: there is no folder "), "{problems}");
    assert!(!folder.file().exists(), "a check creates nothing");
}
