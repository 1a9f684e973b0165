//! The configuration of the guide works, and reloading keeps what works.

use std::path::PathBuf;

use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::fallback::{RawRequest, RawResponse};
use polyrpc::server::ServerHandle;
use polyrpc::{Client, Code, Format, Json, Server};
use polyrpc_gateway::{Config, Gateway, check};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const GUIDE: &str = include_str!("gateway.toml");
const MOVE: &str = include_str!("move.toml");
const RECORD: &str = include_str!("record.toml");

/// A server that answers every call with its own name in the field `name`.
async fn server(answer: &'static [u8]) -> ServerHandle {
    let server = Server::new().fallback(move |mut call: RawRequest| async move {
        call.body().await?;
        Ok(RawResponse::message(answer))
    });
    server.bind("127.0.0.1:0").await.unwrap().start()
}

fn configuration(old: &ServerHandle, new: &ServerHandle) -> String {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "guide"].iter().collect();
    let proto = format!("{}/users.proto", folder.display());
    GUIDE
        .replace("users.proto", &proto)
        .replace("127.0.0.1:8972", &old.address().to_string())
        .replace("127.0.0.1:50051", &new.address().to_string())
        // Calls must succeed on a busy machine, too.
        .replace("timeout = \"2s\"", "timeout = \"60s\"")
        .replace("timeout = \"1s\"", "timeout = \"60s\"")
}

async fn get(gateway: &Gateway, metadata: &[(&'static str, &'static str)]) -> Result<String, polyrpc::Error> {
    let client = Client::new(&format!("http://{}", gateway.addresses()[0])).unwrap();
    let body = Body::new(Format::Json(Json::Brpc), &br#"{"id":7}"#[..]);
    let mut options = CallOptions::default();
    metadata.iter().for_each(|(key, value)| options.metadata.insert(*key, *value));
    let response = client.call_raw("demo.Users/Get", body, options).await?;
    Ok(String::from_utf8_lossy(&response.message.bytes).into_owned())
}

/// Returns the status of a GET, which calls nothing.
async fn status_of_get(gateway: &Gateway, path: &str) -> String {
    let address = gateway.addresses()[0].to_string();
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[tokio::test]
async fn configuration_of_the_guide_routes_translates_and_reloads() {
    let old = server(br#"{"id":7,"name":"old"}"#).await;
    let new = server(b"\x08\x07\x12\x03new").await;
    let text = configuration(&old, &new);
    let config = Config::parse(&text).unwrap();
    check(&config).unwrap();
    let mut gateway = Gateway::start(config).await.unwrap();

    assert_eq!(get(&gateway, &[("beta", "yes")]).await.unwrap(), r#"{"id":7,"name":"new"}"#);
    for (path, status) in [("/demo.Users/Get", "405"), ("/demo.Orders/Get", "404"), ("/favicon.ico", "404")] {
        assert_eq!(status_of_get(&gateway, path).await, status, "{path}");
    }
    let (mut olds, mut news) = (0, 0);
    for _ in 0..200 {
        match get(&gateway, &[]).await.unwrap().contains("old") {
            true => olds += 1,
            false => news += 1,
        }
    }
    assert!(olds > 170 && news > 0, "{olds} {news}");
    let first = get(&gateway, &[("uid", "17")]).await.unwrap();
    for _ in 0..20 {
        assert_eq!(get(&gateway, &[("uid", "17")]).await.unwrap(), first);
    }

    // A broken file changes nothing.
    let address = gateway.addresses()[0].to_string();
    for broken in [text.replace("users.proto", "missing.proto"), text.replace("rpcx://", "nothing://")] {
        gateway.reload(Config::parse(&broken).unwrap()).await.unwrap_err();
        assert_eq!(gateway.addresses()[0].to_string(), address);
        assert!(get(&gateway, &[("beta", "yes")]).await.unwrap().contains("new"));
    }
    let all_new = text.replace("{ old = 95, new = 5 }", "{ old = 0, new = 100 }");
    gateway.reload(Config::parse(&all_new).unwrap()).await.unwrap();
    assert_eq!(gateway.addresses()[0].to_string(), address);
    for _ in 0..50 {
        assert!(get(&gateway, &[]).await.unwrap().contains("new"));
    }
    let none = all_new.replace("*Users", "Other");
    gateway.reload(Config::parse(&none).unwrap()).await.unwrap();
    let refused = get(&gateway, &[]).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    assert!(
        refused.message().contains("polyrpc-gateway: no-route: no route takes demo.Users/Get"),
        "{refused}"
    );
    gateway.shutdown().await;
}

#[test]
fn guide_shows_the_tested_configuration() {
    let guide: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "../../docs/guides/putting-a-gateway-in-front.md"].iter().collect();
    let guide = std::fs::read_to_string(guide).unwrap();
    assert!([GUIDE, MOVE, RECORD].iter().all(|text| guide.contains(text)));
}

#[test]
fn second_configuration_of_the_guide_is_valid() {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "guide"].iter().collect();
    let text = MOVE.replace("users.proto", &format!("{}/users.proto", folder.display()));
    check(&Config::parse(&text).unwrap()).unwrap();
}

#[test]
fn recording_of_the_guide_is_valid() {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "guide"].iter().collect();
    let key = std::env::temp_dir().join(format!("polyrpc-guide-key-{}", std::process::id()));
    let text = MOVE.replace("users.proto", &format!("{}/users.proto", folder.display()));
    let text = format!("{text}\n{}", RECORD.replace("file:key", &format!("file:{}", key.display())));
    let checked = || check(&Config::parse(&text).unwrap());
    std::fs::write(&key, "too short").unwrap();
    let problems = checked().unwrap_err().to_string();
    assert!(problems.contains("[record]: the key in file:") && !problems.contains("too short"), "{problems}");
    std::fs::write(&key, "long enough for a key").unwrap();
    let notes = checked();
    std::fs::remove_file(&key).unwrap();
    let of_recording: Vec<_> =
        notes.unwrap().into_iter().filter(|note| note.text.contains("[record]")).collect();
    assert_eq!(of_recording.len(), 1, "{of_recording:?}");
}

#[test]
fn stream_of_brpc_callers_to_a_half_duplex_upstream_is_noted() {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "matrix"].iter().collect();
    let text = |url: &str| {
        format!(
            "[schema]\nproto = [\"{0}/echo.proto\"]\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"a\"\n\
             url = \"{url}\"\n[[route]]\nto = \"a\"\n",
            folder.display()
        )
    };
    let notes = |url: &str| -> Vec<String> {
        let notes = check(&Config::parse(&text(url)).unwrap()).unwrap();
        let of_brpc = |text: &str| text.contains("baidu_std callers of test.Echo/Watch");
        notes.into_iter().map(|note| note.text).filter(|text| of_brpc(text)).collect()
    };
    let refused = notes("connect://127.0.0.1:1");
    assert!(refused.len() == 1 && refused[0].contains("ends in both directions at once"), "{refused:?}");
    assert!(notes("connect://127.0.0.1:1?http_version=2").is_empty());
}

#[test]
fn upstreams_that_push_or_lead_back_are_noted() {
    let text = "[[listen]]\naddress = \"127.0.0.1:8000\"\n[[upstream]]\nname = \"a\"\n\
                url = \"rpcx://127.0.0.1:8000\"\n[[route]]\nto = \"a\"\n";
    let notes = |text: &str| -> Vec<String> {
        let notes = check(&Config::parse(text).unwrap()).unwrap();
        notes.iter().filter(|note| note.line == 3).map(|note| note.text.clone()).collect()
    };
    let [pushes, leads] = &notes(text)[..] else { panic!("{:?}", notes(text)) };
    assert!(pushes.contains("messages that rpcx servers of `a` push are dropped"), "{pushes}");
    assert_eq!(leads, "`a` is this gateway itself: calls end after 8 rounds");
    assert!(notes(&text.replace("rpcx://127.0.0.1:8000", "grpc://127.0.0.1:8001")).is_empty());
}

#[test]
fn impossible_route_is_named_with_its_line() {
    let text = "[[listen]]\naddress = \"127.0.0.1:0\"\nprotocols = [\"net_rpc\"]\n\n[[upstream]]\nname = \"a\"\n\
                url = \"grpc://127.0.0.1:1\"\n\n[[route]]\nto = \"a\"\n";
    let problems = check(&Config::parse(text).unwrap()).unwrap_err().to_string();
    assert_eq!(
        problems,
        "line 9: `a` refuses net_rpc callers of methods that nothing declares: gob cannot become protobuf without a .proto that \
         declares the method"
    );
    let pass = text.replace("url =", "credential = \"pass\"\nurl =");
    let problems = check(&Config::parse(&pass).unwrap()).unwrap_err().to_string();
    assert!(problems.starts_with("line 5: `a` cannot pass credentials of net_rpc callers"), "{problems}");
}

/// What starting would refuse is found without a socket, at the line of its key.
#[tokio::test]
async fn check_finds_what_starting_refuses() {
    let text = "[[listen]]\nprotocols = [\"http\"]\naddress = \"127.0.0.1:0\"\n\n[[upstream]]\nname = \"a\"\n\
                url = \"http://127.0.0.1:1\"\n\n[[route]]\nto = \"a\"\n";
    let address = "address = \"127.0.0.1:0\"";
    let with = |more: &str| text.replace(address, &format!("{address}\n{more}"));
    let admin = |keys: &str| format!("{text}[admin]\n{keys}");
    for (broken, wrong) in [
        (text.replace("127.0.0.1:0", "x"), "line 3: `address`: "),
        (
            with("tokens = [\"env:POLYRPC_NO_SUCH\"]"),
            "line 4: `tokens`: there is no variable POLYRPC_NO_SUCH",
        ),
        (with("trusted = [\"10.0.0.0/33\"]"), "line 4: `trusted`: "),
        (with("trusted = [\"proxy.local\"]"), "line 4: `trusted`: "),
        (with("tls = { cert = \"nope.pem\", key = \"nope.pem\" }"), "line 4: `tls`: "),
        (admin("listen = \"0.0.0.0:0\""), "line 12: [admin]: "),
        (
            admin("listen = \"127.0.0.1:0\"\nread_token = \"env:POLYRPC_NO_SUCH\""),
            "line 13: [admin]: `read_token`: there is no variable POLYRPC_NO_SUCH",
        ),
    ] {
        let checked = check(&Config::parse(&broken).unwrap()).unwrap_err().to_string();
        assert!(checked.starts_with(wrong), "{wrong}: {checked}");
        let started = Gateway::start(Config::parse(&broken).unwrap()).await.unwrap_err().to_string();
        assert!(started.starts_with(&wrong[..8]), "{wrong}: {started}");
    }
    check(&Config::parse(text).unwrap()).unwrap();
}

#[test]
fn methods_that_some_callers_cannot_call_are_notes_and_each_reason_is_said_once() {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "matrix"].iter().collect();
    let text = format!(
        "[schema]\nproto = [\"{}/echo.proto\"]\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"a\"\n\
         url = \"http://127.0.0.1:1\"\n[[route]]\nto = \"a\"\n",
        folder.display()
    );
    // HTTP has no streams, so that nobody can call Count and Watch; the others can be called.
    let notes = check(&Config::parse(&text).unwrap()).unwrap();
    assert!(notes.iter().any(|note| note.text.contains("test.Echo/Count and test.Echo/Watch")), "{notes:?}");
    assert!(notes.len() < 10 && notes.iter().all(|note| note.text.len() < 300), "{notes:#?}");
    assert!(!notes.iter().any(|note| note.text.contains("fbs")), "{notes:?}");
    let named = text.replace("[[upstream]]", "protocols = [\"http\", \"fb_rpc\"]\n[[upstream]]");
    let notes = check(&Config::parse(&named).unwrap()).unwrap();
    assert!(notes.iter().any(|note| note.text.contains(" fb_rpc callers of ")), "{notes:?}");
}

#[test]
fn route_behind_one_that_takes_everything_is_noted() {
    let text = "[[listen]]\naddress = \"127.0.0.1:0\"\nprotocols = [\"http\"]\n[[upstream]]\nname = \"a\"\n\
                url = \"http://127.0.0.1:1\"\n[[route]]\nFIRST\nto = \"a\"\n\
                [[route]]\nmatch = { service = \"demo.Users\" }\nto = \"a\"\n";
    let notes = |first: &str| -> Vec<String> {
        let config = Config::parse(&text.replace("FIRST", first)).unwrap();
        check(&config).unwrap().iter().map(ToString::to_string).collect()
    };
    for first in ["", "match = { service = \"*\" }", "match = { service = \"*Users\" }"] {
        let noted = notes(first);
        let wanted = "line 10: the route gets no calls: the one before it at line 7";
        assert!(noted.iter().any(|note| note.starts_with(wanted)), "{first}: {noted:?}");
    }
    for first in
        ["match = { method = \"Get\" }", "match = { service = \"*Users\", metadata = { a = \"*\" } }"]
    {
        assert!(notes(first).is_empty(), "{first}: {:?}", notes(first));
    }
}
