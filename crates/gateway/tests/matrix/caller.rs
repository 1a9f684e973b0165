//! A client of one family, and the calls that it makes.

use std::time::Duration;

use polyrpc::client::{CallOptions, Response};
use polyrpc::codec::Body;
use polyrpc::payload::gob;
use polyrpc::streaming::StreamOptions;
use polyrpc::{Bytes, Client, Error, Format, Json, Protocol};
use polyrpc_core::protocol::Streams;
use polyrpc_transform::{Direction, MethodSchema, Options, Schemas, Translator};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::backend::Backend;

pub(crate) const CASES: [&str; 7] =
    ["unary call", "failure", "deadline", "metadata", "attachment", "server stream", "bidirectional stream"];

pub(crate) struct Caller {
    client: Client,
    /// Has lines of JSON: HTTP, but not JSON-RPC.
    has_lines: bool,
    address: String,
}

impl Caller {
    pub(crate) fn new(scheme: &str, address: &str, query: &str) -> Self {
        let client = Client::new(&format!("{scheme}://{address}{query}")).unwrap();
        Self { client, has_lines: scheme == "http" && query.is_empty(), address: address.to_owned() }
    }

    /// Makes the calls of all cases.
    pub(crate) async fn cases(&self, backend: &Backend) -> Vec<(&'static str, String)> {
        let plain = CallOptions { timeout: Some(Duration::from_secs(10)), ..CallOptions::default() };
        backend.take_seen();
        let unary = self.echo(plain.clone()).await;
        let seen = backend.take_seen();
        let deadline = match &unary {
            Ok(_) if seen.has_deadline => "sent".to_owned(),
            Ok(_) => "enforced by the gateway".to_owned(),
            Err(error) => error.clone(),
        };
        let failure = self.call("Fail", plain.clone()).await.map(|_| "no failure".to_owned());
        let failure = failure.unwrap_or_else(|error| match error.message().contains("polyrpc-gateway") {
            true => refusal(&error),
            false => match error.message().contains("no such text") {
                true => format!("{}, text", error.code().as_str()),
                false => error.code().as_str().to_owned(),
            },
        });
        let mut tenant = plain.clone();
        tenant.metadata.insert("tenant", "a");
        tenant.metadata.insert("authorization", "secret");
        let capabilities = &self.client.protocol().descriptor().capabilities;
        let metadata = match self.echo(tenant).await {
            _ if !capabilities.carries_metadata() => "–".to_owned(),
            Ok(_) => {
                let seen = backend.take_seen();
                assert_eq!(seen.authorization, None, "credentials are dropped");
                if seen.tenant.as_deref() == Some("a") { "ok".to_owned() } else { "not sent".to_owned() }
            }
            Err(error) => error,
        };
        let attached = CallOptions { attachment: Bytes::from_static(b"more"), ..plain };
        let attachment = match capabilities.attachments {
            false => "–".to_owned(),
            true => self.echo(attached).await.map_or_else(
                |error| error,
                |response| if response.attachment == "more" { "ok".to_owned() } else { "lost".to_owned() },
            ),
        };
        let unary = unary.map_or_else(|error| error, |_| "ok".to_owned());
        let (server_stream, stream) = (self.server_stream().await, self.stream().await);
        let cells = [unary, failure, deadline, metadata, attachment, server_stream, stream];
        CASES.into_iter().zip(cells).collect()
    }

    /// Calls Echo, and checks the text in the response.
    async fn echo(&self, options: CallOptions) -> Result<Response<Body>, String> {
        let response = self.call("Echo", options).await.map_err(|error| refusal(&error))?;
        let text = self.text(&response.message);
        if text == r#"{"text":"hi"}"# || text == "hi" { Ok(response) } else { Err(format!("wrong: {text}")) }
    }

    async fn call(&self, method: &str, options: CallOptions) -> Result<Response<Body>, Error> {
        let target = match self.client.protocol() {
            Protocol::RestRpc => method.to_owned(),
            Protocol::FbRpc => format!("test.Echo/{method}#{0},{0}", u8::from(method == "Fail")),
            _ => format!("test.Echo/{method}"),
        };
        self.client.call_raw(&target, self.message(), options).await
    }

    /// Sends one message, and expects it twice.
    async fn server_stream(&self) -> String {
        if self.has_lines {
            return lines(&self.address).await;
        }
        if self.client.protocol().descriptor().capabilities.streams == Streams::None {
            return "–".to_owned();
        }
        let body = self.message();
        let exchange = async {
            let options = CallOptions::default();
            let mut call = match self.client.protocol() {
                Protocol::BaiduStd => {
                    let streams = StreamOptions::default();
                    self.client.open_stream_raw("test.Echo/Count", body, options, streams).await?.1
                }
                _ => {
                    let mut call = self.client.open_raw("test.Echo/Count", options, body.format).await?;
                    let _ = call.send(body.bytes).await;
                    let _ = call.finish_sending().await;
                    call
                }
            };
            let mut count = 0;
            while let Some(body) = call.next().await? {
                match self.text(&body).as_str() {
                    r#"{"text":"hi"}"# => count += 1,
                    text => return Ok(format!("wrong: {text}")),
                }
            }
            Ok::<_, Error>(if count == 2 { "ok".to_owned() } else { format!("{count} of 2 messages") })
        };
        format_end(timeout(Duration::from_secs(10), exchange).await)
    }

    /// Sends two messages, and expects them back.
    async fn stream(&self) -> String {
        if self.client.protocol().descriptor().capabilities.streams == Streams::None {
            return "–".to_owned();
        }
        let format = self.message().format;
        let exchange = async {
            let mut call = self.client.open_raw("test.Echo/Watch", CallOptions::default(), format).await?;
            // If the call is refused meanwhile, the response has the reason.
            for _ in 0..2 {
                let _ = call.send(self.message().bytes).await;
            }
            if self.client.protocol() != Protocol::BaiduStd {
                let _ = call.finish_sending().await;
            }
            let mut count = 0;
            while count < 2 {
                match call.next().await? {
                    Some(body) if self.text(&body) == r#"{"text":"hi"}"# => count += 1,
                    Some(body) => return Ok(format!("wrong: {}", self.text(&body))),
                    None => break,
                }
            }
            Ok::<_, Error>(if count == 2 { "ok".to_owned() } else { format!("{count} of 2 messages") })
        };
        format_end(timeout(Duration::from_secs(10), exchange).await)
    }

    fn message(&self) -> Body {
        match self.client.protocol() {
            Protocol::Rpcx => Body::new(Format::MessagePack, &b"\x81\xa4text\xa2hi"[..]),
            Protocol::Http => Body::new(Format::Json(Json::Brpc), &br#"{"text":"hi"}"#[..]),
            Protocol::NetRpc => Body::new(Format::Gob, gob::from_json(br#"{"Text":"hi"}"#).unwrap()),
            Protocol::RestRpc => Body { positional: true, ..Body::new(Format::RestRpc, &b"hi"[..]) },
            Protocol::FbRpc => {
                let json = Body::new(Format::Json(Json::Proto3), &br#"{"text":"hi"}"#[..]);
                translate(json, Format::FlatBuffers)
            }
            _ => Body::new(Format::Protobuf, &b"\x0a\x02hi"[..]),
        }
    }

    fn text(&self, body: &Body) -> String {
        let body = match body.format {
            Format::RestRpc | Format::Json(_) => body.clone(),
            Format::Protobuf if &body.bytes[..] == b"\x0a\x02hi" => return r#"{"text":"hi"}"#.to_owned(),
            Format::Gob => {
                let json = gob::to_json(&body.bytes).unwrap_or_default().replace("Text", "text");
                Body::new(Format::Json(Json::Go), json.into_bytes())
            }
            _ => translate(body.clone(), Format::Json(Json::Proto3)),
        };
        String::from_utf8_lossy(&body.bytes).into_owned()
    }
}

fn format_end(exchange: Result<Result<String, Error>, Elapsed>) -> String {
    match exchange {
        Ok(Ok(cell)) => cell,
        Ok(Err(error)) if error.message().contains("polyrpc-gateway") => refusal(&error),
        Ok(Err(error)) => format!("{}: {}", error.code().as_str(), error.message()),
        Err(_) => "no answer".to_owned(),
    }
}

/// Calls over HTTP/1.1 with JSON, and expects two lines of JSON.
async fn lines(address: &str) -> String {
    let body = r#"{"text":"hi"}"#;
    let request = format!(
        "POST /test.Echo/Count HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Accept: application/x-ndjson\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    let response = String::from_utf8_lossy(&response);
    if let Some(start) = response.find("polyrpc-gateway") {
        let text = response[start..].split('"').next().unwrap_or_default();
        return format!("refused: {text}");
    }
    match response.matches("{\"text\":\"hi\"}\n").count() {
        2 => "ok".to_owned(),
        _ => format!("wrong: {response}"),
    }
}

/// By the `.fbs` of the test, or plain.
fn translate(body: Body, to: Format) -> Body {
    let schema = match [body.format, to].contains(&Format::FlatBuffers) {
        true => {
            let mut schemas = Schemas::new();
            schemas.add_fbs_text("echo.fbs", include_str!("echo.fbs")).unwrap();
            schemas.method("test.Echo/Echo", false)
        }
        false => MethodSchema::default(),
    };
    let translator =
        Translator::new(Direction::Request, body.format, to, &schema, Options::default()).unwrap();
    translator.translate(body).unwrap().body
}

/// The text of a refusal, without names of servers that protocols add.
fn refusal(error: &Error) -> String {
    let text = error.message();
    let start = text.find("polyrpc-gateway").unwrap_or(0);
    format!("{}: {}", error.code().as_str(), &text[start..])
}
