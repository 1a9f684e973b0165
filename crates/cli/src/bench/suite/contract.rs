//! What a server must do: methods, messages, and the one right reply.

use std::fmt;

use polyrpc::Client;
use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::message::{self, Translator, Wire};

/// A method with its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Contract {
    /// A string comes back: `example.EchoService/Echo`, or the function `echo` of rest_rpc.
    Echo,
    /// `helloworld.Greeter/SayHello` greets, after a loop of additions.
    Hello,
    /// `pb.Hello/Say` returns the message of rpcx's benchmark, 581 bytes as protobuf, with two fields changed.
    Say581,
    /// `test.BenchmarkService/Test` returns fixed fields and a string.
    Fields,
}

impl Contract {
    /// The method's name over a protocol.
    pub(super) fn target(self, scheme: &str) -> &'static str {
        match (self, scheme) {
            (Self::Echo, "rest-rpc") => "echo",
            // rpcx and net/rpc have no packages.
            (Self::Echo, "rpcx") => "EchoService/Echo",
            (Self::Say581, "rpcx" | "net-rpc") => "Hello/Say",
            (Self::Echo, _) => "example.EchoService/Echo",
            (Self::Hello, _) => "helloworld.Greeter/SayHello",
            (Self::Say581, _) => "pb.Hello/Say",
            (Self::Fields, _) => "test.BenchmarkService/Test",
        }
    }

    /// A request as JSON. Its text is of `letter`s, so that one request has not the reply of another.
    pub(super) fn request(self, size: usize, scheme: &str, letter: &str) -> String {
        let text = letter.repeat(size.max(1));
        match self {
            Self::Echo if scheme == "rest-rpc" => json!([text]).to_string(),
            Self::Echo => json!({ "message": text }).to_string(),
            Self::Hello => {
                json!({ "name": if letter == LOAD { "Joe".to_owned() } else { text } }).to_string()
            }
            Self::Say581 if letter == LOAD => MESSAGE_581.to_owned(),
            Self::Say581 => MESSAGE_581.replace("许多", &letter.repeat(2)),
            Self::Fields => {
                let message = letter.repeat(size);
                json!({
                    "opcode": 1, "echo_attachment": 0, "attachment_size": 3, "request_id": 4, "reserved": 5,
                    "message": message,
                })
                .to_string()
            }
        }
    }

    /// The reply, from the request as the protocol carries it.
    fn reply(self, request: &str, echoed: Option<Value>) -> Result<Value, Failure> {
        let sent: Value = serde_json::from_str(request).map_err(|error| Failure::new(error.to_string()))?;
        Ok(match self {
            Self::Hello => {
                json!({ "message": format!("Hello {}", sent["name"].as_str().unwrap_or_default()) })
            }
            Self::Echo if sent.is_array() => sent[0].clone(),
            Self::Echo | Self::Fields => echoed.unwrap_or(sent),
            Self::Say581 => {
                let mut message = echoed.unwrap_or(sent);
                message["field1"] = "OK".into();
                message["field2"] = 100.into();
                message
            }
        })
    }

    /// How messages are encoded.
    pub(super) fn translator(
        self,
        client: &Client,
        scheme: &str,
        format: Option<Wire>,
    ) -> Result<Translator, Failure> {
        let options = format.map_or_else(message::Options::default, message::Options::with_format);
        Translator::from_built_in(client, self.target(scheme), &options)
    }
}

/// Requests that the server must answer exactly.
pub(super) struct Check {
    client: Client,
    translator: Translator,
    contract: Contract,
    scheme: String,
}

/// Why a server is not measured.
#[derive(Debug)]
pub(super) enum CheckError {
    /// It did not answer.
    Unanswered(String),
    /// It answered something else.
    Wrong(String),
}

impl Check {
    pub(super) fn new(
        url: &str,
        scheme: &str,
        contract: Contract,
        format: Option<Wire>,
    ) -> Result<Self, Failure> {
        let client = Client::builder(url).timeout(super::START_TIMEOUT).build()?;
        let translator = contract.translator(&client, scheme, format)?;
        Ok(Self { client, translator, contract, scheme: scheme.to_owned() })
    }

    /// Makes a call with a message that the load does not have.
    pub(super) async fn call(&self, size: usize, letter: &str) -> Result<(), CheckError> {
        let unanswered = |failure: Failure| CheckError::Unanswered(failure.to_string());
        let request = self.contract.request(size, &self.scheme, letter);
        let body = self.translator.encode_request(request.as_bytes()).map_err(unanswered)?;
        let expected = self.expected_reply(&request, &body).map_err(unanswered)?;
        let target = self.contract.target(&self.scheme);
        let target = self.translator.target(target);
        let called = self.client.call_raw(target, body, CallOptions::default()).await;
        let response = called.map_err(|error| CheckError::Unanswered(error.status().to_string()))?;
        let wrong = |text: String| CheckError::Wrong(text);
        let reply = self.translator.decode_reply(&response.message);
        let reply = reply.map_err(|failure| wrong(failure.to_string()))?;
        let answered: Value = serde_json::from_str(&reply).unwrap_or(Value::String(reply));
        match answered == expected {
            true => Ok(()),
            false => Err(wrong(format!(
                "{target} answered {} instead of {}",
                shorten(&answered.to_string()),
                shorten(&expected.to_string())
            ))),
        }
    }

    /// Request and reply of an echo have the same fields, so that the request decodes as the reply.
    fn expected_reply(&self, request: &str, body: &Body) -> Result<Value, Failure> {
        let is_message = matches!(self.contract, Contract::Say581 | Contract::Fields);
        let echoed = is_message.then(|| self.translator.decode_reply(body)).transpose()?;
        let echoed = echoed.map(|text| serde_json::from_str(&text).unwrap_or(Value::String(text)));
        self.contract.reply(request, echoed)
    }
}

fn shorten(text: &str) -> String {
    crate::terminal::cut(text, 120)
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unanswered(text) => {
                write!(f, "the check call failed: {}", text.trim_start_matches("error: "))
            }
            Self::Wrong(text) => write!(f, "the server answers wrongly: {text}"),
        }
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Echo => "echo",
            Self::Hello => "hello",
            Self::Say581 => "say581",
            Self::Fields => "fields",
        })
    }
}

/// The letter of the load's text, as in the benchmark of rest_rpc.
pub(super) const LOAD: &str = "A";
/// Letters of the checks before and after a window.
pub(super) const CHECKS: [&str; 2] = ["b", "c"];

/// The message that rpcx's benchmark sends, as JSON.
const MESSAGE_581: &str = include_str!("definitions/say581.json");
