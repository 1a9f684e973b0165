use std::time::{Duration, Instant};

use polyrpc::codec::Body;
use polyrpc::{Address, Client, client};
use serde_json::Value;

use crate::failure::Failure;
use crate::message::{Options, Translator, Wire};
use crate::url::Url;

/// A row of the table: one method, one protocol, one format.
pub(super) struct Call {
    pub(super) protocol: &'static str,
    /// With parameters, if any: `rest-rpc?version=0.20`.
    scheme: &'static str,
    pub(super) format: Wire,
    pub(super) target: &'static str,
    request: &'static str,
    /// The expected reply.
    reply: &'static str,
    headers: &'static [(&'static str, &'static str)],
}

/// Outcome of a call.
pub(super) enum Outcome {
    Answered { reply: String, latency: Duration },
    Wrong { reply: String },
    Failed(Failure),
}

impl Call {
    /// Makes the call, then some more to measure its latency.
    pub(super) async fn make(&self, address: &Address) -> Outcome {
        match self.try_make(address).await {
            Ok(outcome) => outcome,
            Err(failure) => Outcome::Failed(failure),
        }
    }

    async fn try_make(&self, address: &Address) -> Result<Outcome, Failure> {
        let client = Client::new(&Url::from_server(self.scheme, address).to_string())?;
        let translator = Translator::from_built_in(&client, self.target, &Options::with_format(self.format))?;
        let request = translator.encode_request(self.request.as_bytes())?;
        let options = client::CallOptions {
            metadata: self.headers.iter().copied().collect(),
            ..client::CallOptions::default()
        };
        let target = translator.target(self.target);
        let once = || exchange(&client, target, &request, &options);
        let reply = translator.decode_reply(&once().await?)?;
        let value = |json: &str| serde_json::from_str::<Value>(json).ok();
        let shown = value(&reply).map_or(reply, |value| value.to_string());
        if value(&shown) != value(self.reply) {
            return Ok(Outcome::Wrong { reply: shown });
        }
        let mut latencies = Vec::with_capacity(REPEATS);
        for _ in 0..REPEATS {
            let start = Instant::now();
            once().await?;
            latencies.push(start.elapsed());
        }
        latencies.sort_unstable();
        let latency = latencies.get(REPEATS / 2).copied().unwrap_or_default();
        Ok(Outcome::Answered { reply: shown, latency })
    }
}

async fn exchange(
    client: &Client,
    target: &str,
    request: &Body,
    options: &client::CallOptions,
) -> Result<Body, Failure> {
    Ok(client.call_raw(target, request.clone(), options.clone()).await?.message)
}

const REPEATS: usize = 100;

const fn call(
    protocol: &'static str,
    scheme: &'static str,
    format: Wire,
    target: &'static str,
    request: &'static str,
    reply: &'static str,
) -> Call {
    Call { protocol, scheme, format, target, request, reply, headers: &[] }
}

pub(super) const CALLS: &[Call] = &[
    call("baidu_std", "baidu-std", Wire::Protobuf, ECHO, HELLO, HELLO),
    call("baidu_std", "baidu-std", Wire::Json, ECHO, HELLO, HELLO),
    call("baidu_std", "baidu-std", Wire::Protobuf, "pb.Hello/Say", ANY_BENCHMARK, OK_BENCHMARK),
    call("baidu_std", "baidu-std", Wire::Json, "add", "[1,2]", "3"),
    call("rpcx", "rpcx", Wire::Protobuf, "PBArith/Mul", SEVEN_AND_EIGHT, FIFTY_SIX),
    call("rpcx", "rpcx", Wire::Msgpack, "Arith/Mul", SEVEN_AND_EIGHT, FIFTY_SIX),
    call("rpcx", "rpcx", Wire::Json, "Arith/Add", SEVEN_AND_EIGHT, r#"{"C":15}"#),
    call("rpcx", "rpcx", Wire::Msgpack, "echo", r#""hello""#, r#""hello""#),
    call("fb_rpc", "fb-rpc", Wire::Flatbuffers, BENCHMARK, ANY_MESSAGE, ANY_MESSAGE),
    call("gRPC", "grpc", Wire::Flatbuffers, BENCHMARK, ANY_MESSAGE, ANY_MESSAGE),
    call("rest_rpc v0.20", "rest-rpc?version=0.20", Wire::Msgpack, "add", "[1,2]", "3"),
    call("rest_rpc v0.20", "rest-rpc?version=0.20", Wire::Msgpack, "Arith/Mul", SEVEN_AND_EIGHT, FIFTY_SIX),
    call("rest_rpc v0.21", "rest-rpc?version=0.21", Wire::Cpp, "echo", r#""hello""#, r#""hello""#),
    call("gRPC", "grpc", Wire::Protobuf, ECHO, HELLO, HELLO),
    call("gRPC", "grpc", Wire::Json, "helloworld.Greeter/SayHello", r#"{"name":"you"}"#, HELLO_YOU),
    call("gRPC", "grpc", Wire::Protobuf, "pb.Hello/Say", ANY_BENCHMARK, OK_BENCHMARK),
    call("gRPC-Web", "grpc-web", Wire::Protobuf, ECHO, HELLO, HELLO),
    call("Connect", "connect", Wire::Json, "helloworld.Greeter/SayHello", r#"{"name":"you"}"#, HELLO_YOU),
    call("HTTP", "http", Wire::Json, "helloworld.Greeter/SayHello", r#"{"name":"you"}"#, HELLO_YOU),
    call("HTTP", "http", Wire::Protobuf, ECHO, HELLO, HELLO),
    call("HTTP", "http", Wire::Json, "Arith/Div", r#"{"A":56,"B":8}"#, r#"{"C":7}"#),
    Call {
        // rpcx's gateway reads the call from these fields (rpcx `server/gateway.go`); 1 is JSON.
        headers: &[
            ("X-RPCX-ServicePath", "Arith"),
            ("X-RPCX-ServiceMethod", "Mul"),
            ("X-RPCX-SerializeType", "1"),
        ],
        ..call("HTTP, rpcx gateway", "http", Wire::Json, "Arith/Mul", SEVEN_AND_EIGHT, FIFTY_SIX)
    },
    call("HTTP, JSON-RPC 2.0", "http?dialect=json-rpc", Wire::Json, "Arith/Mul", SEVEN_AND_EIGHT, FIFTY_SIX),
    call("HTTP, JSON-RPC 2.0", "http?dialect=json-rpc", Wire::Json, "add", "[1,2]", "3"),
    call("Go net/rpc", "net-rpc", Wire::Gob, "Arith/Mul", SEVEN_AND_EIGHT, FIFTY_SIX),
    call(
        "Go net/rpc, HTTP",
        "net-rpc?transport=http-connect",
        Wire::Gob,
        "Arith/Add",
        SEVEN_AND_EIGHT,
        r#"{"C":15}"#,
    ),
    call("Go net/rpc/jsonrpc", "net-rpc?codec=json", Wire::Json, "Arith/Mul", SEVEN_AND_EIGHT, FIFTY_SIX),
    call("rpcx of 2016", "net-rpc?codec=msgpack", Wire::Msgpack, "Arith/Mul", SEVEN_AND_EIGHT, FIFTY_SIX),
];

const ECHO: &str = "example.EchoService/Echo";
const BENCHMARK: &str = "test.BenchmarkService/Test";
const ANY_MESSAGE: &str = r#"{"opcode":1,"request_id":2,"message":"hello"}"#;
const HELLO: &str = r#"{"message":"hello"}"#;
const HELLO_YOU: &str = r#"{"message":"Hello you"}"#;
const SEVEN_AND_EIGHT: &str = r#"{"A":7,"B":8}"#;
const FIFTY_SIX: &str = r#"{"C":56}"#;
const ANY_BENCHMARK: &str = r#"{"field1":"?","field2":0,"field3":3}"#;
const OK_BENCHMARK: &str = r#"{"field1":"OK","field2":100,"field3":3}"#;
