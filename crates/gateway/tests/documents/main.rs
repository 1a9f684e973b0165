//! Tools and the OpenAPI document of a gateway: what is behind it, called by programs that know HTTP and JSON only.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

use polyrpc::Server;
use polyrpc::fallback::{RawRequest, RawResponse};
use polyrpc::server::ServerHandle;
use polyrpc_gateway::{Config, Gateway, check};
use serde_json::{Value, json};

/// A server that answers in its own format, as an rpcx or a brpc server that nobody else can call.
async fn server(answer: impl Fn(&RawRequest) -> Vec<u8> + Clone + Send + Sync + 'static) -> ServerHandle {
    let server = Server::new().fallback(move |mut call: RawRequest| {
        let answer = answer.clone();
        async move {
            let bytes = answer(&call);
            call.body().await?;
            Ok(RawResponse::message(bytes))
        }
    });
    server.bind("127.0.0.1:0").await.unwrap().start()
}

fn configuration(rpcx: &ServerHandle, brpc: &ServerHandle, more: &str) -> String {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "guide"].iter().collect();
    format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n\n\
         [[upstream]]\nname = \"old\"\nurl = \"rpcx://{}\"\n\n\
         [[upstream]]\nname = \"new\"\nurl = \"baidu-std://{}\"\n\n\
         [[route]]\nmatch = {{ service = \"legacy.Users\" }}\nrename = {{ service = \"demo.Users\" }}\nto = \"old\"\n\n\
         [[route]]\nmatch = {{ service = \"demo.*\" }}\nto = \"new\"\n\n\
         [schema]\nproto = [\"{}/users.proto\"]\n\n{more}",
        rpcx.address(),
        brpc.address(),
        folder.display()
    )
}

const BOTH: &str = "[mcp]\ntools = [\"legacy.*\", \"demo.*\"]\n\n[openapi]\nmethods = [\"demo.*\"]\n";

fn send(gateway: &Gateway, verb: &str, path: &str, fields: &str, body: &str) -> (u16, String) {
    let address = gateway.addresses()[0].to_string();
    let mut stream = TcpStream::connect(&address).unwrap();
    let head = format!("{verb} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{fields}");
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn request(gateway: &Gateway, fields: &str, method: &str, params: &Value) -> (u16, Value) {
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let fields = format!("Content-Type: application/json\r\nMCP-Protocol-Version: 2025-06-18\r\n{fields}");
    let (status, body) = send(gateway, "POST", "/mcp", &fields, &message);
    (status, serde_json::from_str(&body).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_lead_to_servers_of_other_protocols() {
    let rpcx = server(|call| {
        assert_eq!((call.protocol().as_str(), call.service()), ("rpcx", "demo.Users"));
        br#"{"id":7,"name":"old"}"#.to_vec()
    })
    .await;
    let brpc = server(|call| {
        assert_eq!(call.protocol().as_str(), "baidu_std");
        b"\x08\x07\x12\x03new".to_vec()
    })
    .await;
    let text = configuration(&rpcx, &brpc, BOTH).replace("url = \"rpcx", "format = \"json\"\nurl = \"rpcx");
    let gateway = Gateway::start(Config::parse(&text).unwrap()).await.unwrap();
    let (_, list) = request(&gateway, "", "tools/list", &json!({}));
    let names: Vec<_> =
        list["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["demo_Users_Get", "legacy_Users_Get"], "{list}");
    assert_eq!(list["result"]["tools"][0]["inputSchema"]["type"], "object");
    for (name, answer) in [("legacy_Users_Get", "old"), ("demo_Users_Get", "new")] {
        let params = json!({ "name": name, "arguments": { "id": 7 } });
        let (_, called) = request(&gateway, "", "tools/call", &params);
        assert_eq!(called["result"]["structuredContent"]["name"], answer, "{called}");
    }
    let (status, document) = send(&gateway, "GET", "/openapi.json", "", "");
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(status, 200);
    assert_eq!(document["paths"].as_object().unwrap().keys().collect::<Vec<_>>(), ["/demo.Users/Get"]);
    // The documented path is answered.
    let (status, body) =
        send(&gateway, "POST", "/demo.Users/Get", "Content-Type: application/json\r\n", "{\"id\":7}");
    assert_eq!((status, serde_json::from_str::<Value>(&body).unwrap()["name"].as_str()), (200, Some("new")));
    gateway.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_need_the_credential_of_the_listener() {
    let one = server(|_| b"\x08\x07".to_vec()).await;
    let file = std::env::temp_dir().join(format!("polyrpc-gateway-token-{}", std::process::id()));
    std::fs::write(&file, "right").unwrap();
    let text = configuration(&one, &one, BOTH).replace(
        "address = \"127.0.0.1:0\"\n",
        &format!("address = \"127.0.0.1:0\"\ntokens = [\"file:{}\"]\n", file.display()),
    );
    let gateway = Gateway::start(Config::parse(&text).unwrap()).await.unwrap();
    let params = json!({ "name": "demo_Users_Get", "arguments": { "id": 7 } });
    assert_eq!(request(&gateway, "", "tools/call", &params).0, 401);
    let (status, called) = request(&gateway, "Authorization: Bearer right\r\n", "tools/call", &params);
    assert_eq!((status, &called["result"]["isError"]), (200, &json!(false)), "{called}");
    let _ = std::fs::remove_file(&file);
    gateway.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_change_when_the_file_is_loaded_again() {
    let one = server(|_| b"\x08\x07".to_vec()).await;
    let text = configuration(&one, &one, "[mcp]\ntools = [\"*\"]\n");
    let mut gateway = Gateway::start(Config::parse(&text).unwrap()).await.unwrap();
    let count = |gateway: &Gateway| {
        let (_, list) = request(gateway, "", "tools/list", &json!({}));
        list["result"]["tools"].as_array().unwrap().len()
    };
    assert_eq!(count(&gateway), 2);
    let fewer = text.replace("\"legacy.Users\"", "\"legacy.*\"");
    gateway.reload(Config::parse(&fewer).unwrap()).await.unwrap();
    assert_eq!(count(&gateway), 1, "what any name leads to has no name");
    let other_tools = text.replace("tools = [\"*\"]", "tools = [\"demo.*\"]");
    let no_methods = text.replace("\"legacy.Users\"", "\"a\"").replace("\"demo.*\"", "\"b\"");
    let no_methods = no_methods.replace("rename = { service = \"demo.Users\" }", "");
    for (broken, why) in [
        (other_tools, "[mcp] and [openapi] cannot change while the gateway runs"),
        (no_methods, "[mcp]: no method matches `*`"),
    ] {
        let error = gateway.reload(Config::parse(&broken).unwrap()).await.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(count(&gateway), 1);
    }
    gateway.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_patterns_are_named() {
    let one = server(|_| Vec::new()).await;
    for (more, why) in [
        ("[mcp]\ntools = [\"demo.Usres\"]\n", "[mcp]: no method matches `demo.Usres`"),
        ("[mcp]\ntools = [\"a b\"]\n", "[mcp]: `a b` is not a pattern of methods"),
        ("[mcp]\ntools = [\"*\"]\npath = \"a/b\"\n", "[mcp]: `a/b` is not one segment of a path"),
        ("[openapi]\nmethods = [\"x\"]\n", "[openapi]: no method matches `x`"),
    ] {
        let config = Config::parse(&configuration(&one, &one, more)).unwrap();
        let checked = check(&config).unwrap_err().to_string();
        let error = Gateway::start(config).await.unwrap_err().to_string();
        assert!(error.starts_with("line ") && error.contains(why) && checked == error, "{checked} {error}");
    }
    let error = Config::parse(&configuration(&one, &one, "[mcp]\ntool = []\n")).unwrap_err().to_string();
    assert!(error.contains("unknown field `tool`"), "{error}");
}
