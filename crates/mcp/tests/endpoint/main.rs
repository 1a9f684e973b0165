//! The endpoint over real connections, as a client of each revision of the protocol uses it.

mod limits;
mod revisions;
mod security;
mod tools;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use polyrpc::codec::Serde;
use polyrpc::layers::Metrics;
use polyrpc::server::{Listen, ServerHandle};
use polyrpc::service::ServiceBuilder;
use polyrpc::{Address, Context, Server, Status, Streaming};
use polyrpc_mcp::{Builder, Mcp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// An answer over HTTP/1.1.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The result of a request that succeeded.
    pub(crate) fn result(&self) -> Value {
        let answer = self.json();
        assert_eq!((self.status, &answer["jsonrpc"]), (200, &json!("2.0")), "{self:?}");
        assert!(answer["error"].is_null(), "{self:?}");
        answer["result"].clone()
    }

    /// The code of a request that failed.
    pub(crate) fn code(&self) -> i64 {
        self.json()["error"]["code"].as_i64().unwrap_or_else(|| panic!("no failure: {self:?}"))
    }
}

/// Sends a request with these fields, and reads the answer to its end.
pub(crate) fn send(
    address: &Address,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: &str,
) -> Answer {
    let mut stream = TcpStream::connect(address.to_string()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut head =
        format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    if !fields.iter().any(|(name, _)| *name == "Host") {
        head += &format!("Host: {address}\r\n");
    }
    for (name, value) in fields {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Answer { status: status.expect("a status"), head: head.to_owned(), body: body.to_owned() }
}

/// The fields that every client sends.
pub(crate) const USUAL: [(&str, &str); 2] =
    [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];

/// A server with an endpoint.
pub(crate) struct Running {
    pub(crate) server: ServerHandle,
    pub(crate) metrics: Metrics,
}

impl Running {
    /// Sends a message with these fields in addition to the usual ones.
    pub(crate) fn post(&self, fields: &[(&str, &str)], message: &Value) -> Answer {
        let fields: Vec<_> = USUAL.iter().chain(fields).copied().collect();
        send(self.server.address(), "POST", "/mcp", &fields, &message.to_string())
    }

    /// Makes a request by the revision 2025-06-18.
    pub(crate) fn request(&self, method: &str, params: Value) -> Answer {
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        self.post(&[("MCP-Protocol-Version", "2025-06-18")], &message)
    }

    /// Calls a tool.
    pub(crate) fn call(&self, name: &str, arguments: Value) -> Answer {
        self.request("tools/call", json!({ "name": name, "arguments": arguments }))
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Words {
    text: String,
    count: Option<u32>,
}

/// Serves functions and methods, of which the patterns select some.
pub(crate) async fn serve(builder: Builder) -> Running {
    listen(builder, Listen::on("127.0.0.1:0")).await
}

pub(crate) async fn listen(builder: Builder, listen: Listen) -> Running {
    let mcp = builder.build().unwrap();
    let metrics = Metrics::new();
    let server = Server::new()
        .count_calls(&metrics)
        .function("add", |a: i64, b: i64| async move { a + b })
        .function("echo", |words: Words| async move { words })
        .function("nothing", || async {})
        .function("fail", |_: String| async move {
            Err::<(), _>(Status::not_found("there is no such thing").with_number(77))
        })
        .function("wait", |cx: Context, _: String| async move {
            let left = cx.remaining().unwrap_or_default().as_millis();
            std::future::pending::<()>().await;
            u64::try_from(left).unwrap_or(u64::MAX)
        })
        .function("secret", |cx: Context| async move {
            let field = |name: &str| cx.metadata().get(name).unwrap_or_default().to_owned();
            vec![
                field("x-tenant"),
                field("traceparent"),
                field("x-forwarded-for"),
                field("mcp-protocol-version"),
            ]
        })
        .function("long", |length: usize| async move { "x".repeat(length) })
        .service(streams());
    let server = mcp.serve(server).bind(listen).await.unwrap().start();
    mcp.start(&server).unwrap();
    Running { server, metrics }
}

#[derive(Debug, Serialize, Deserialize)]
struct Numbers {
    count: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Number {
    n: u32,
}

fn streams() -> ServiceBuilder {
    ServiceBuilder::new("Streams")
        .server_streaming::<Serde, Numbers, Number, _, _>("Count", |cx: Context, numbers: Numbers| {
            let messages = Streaming::produce(move |sender| async move {
                for n in 0..numbers.count {
                    sender.send(Number { n }).await?;
                }
                Ok(())
            });
            std::future::ready((cx, Ok(messages)))
        })
        .client_streaming::<Serde, Number, Numbers, _, _>(
            "Sum",
            |cx: Context, _: Streaming<Number>| async move { (cx, Ok(Numbers { count: 0 })) },
        )
}

pub(crate) fn everything() -> Builder {
    Mcp::builder(["*"])
}
