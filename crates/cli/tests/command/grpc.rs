//! gRPC features of the command: reflection and streaming calls.

use std::fs;

use crate::local::Local;
use crate::running::reflection::{ServerReflection, ServerReflectionServer};
use crate::running::{InteractiveRun, Server, TempDir, polyrpc, until_the_timeout};
use crate::shapes::{ShapesServer, Workshop};
use bytes::Bytes;
use futures_util::StreamExt;
use polyrpc::codec::Raw;
use polyrpc::introspection::Health;
use polyrpc::service::ServiceBuilder;
use polyrpc::{Context, Result, Streaming};
use polyrpc_grpc_messages::reflection::v1::server_reflection_request::MessageRequest;
use polyrpc_grpc_messages::reflection::v1::server_reflection_response::MessageResponse;
use polyrpc_grpc_messages::reflection::v1::{
    ErrorResponse, FileDescriptorResponse, ListServiceResponse, ServerReflectionRequest,
    ServerReflectionResponse, ServiceResponse,
};
use protox::prost::Message;
use protox::prost_reflect::prost_types::FileDescriptorSet;
use serde_json::json;

// --------------------------------------------------------------------------------------------- list

#[test]
fn list_queries_the_server_by_reflection() {
    let server = Server::serve([]);
    let list = |more: &[&str]| {
        let ran = polyrpc(["list", &server.url("grpc")].iter().chain(more));
        assert_eq!((ran.stderr.as_str(), ran.code), ("", 0), "{more:?}");
        ran.stdout
    };
    let services = list(&[]);
    for lines in [
        "Arith\n  Mul (ArithArgs) returns (ArithReply)\n",
        "\nexample.EchoService\n  Echo (example.EchoRequest) returns (example.EchoResponse)\n",
        "\n  Watch (grpc.health.v1.HealthCheckRequest) returns (stream grpc.health.v1.HealthCheckResponse)\n",
        "\ngrpc.reflection.v1.ServerReflection\n",
    ] {
        assert!(services.contains(lines), "no {lines} in\n{services}");
    }
    assert_eq!(
        list(&["helloworld.Greeter"]),
        "// helloworld.Greeter in helloworld.proto\n\
         service Greeter {\n  rpc SayHello (helloworld.HelloRequest) returns (helloworld.HelloReply);\n}\n"
    );
    let request =
        "// helloworld.HelloRequest in helloworld.proto\nmessage HelloRequest {\n  string name = 1;\n}\n";
    assert_eq!(list(&["helloworld.HelloRequest"]), request);
    for method in ["helloworld.Greeter/SayHello", "helloworld.Greeter.SayHello"] {
        let text = list(&[method]);
        assert!(text.contains("\nrpc SayHello (") && text.contains(request), "{text}");
    }
    for protocol in ["grpc-web", "grpc-web?http_version=2"] {
        let ran = polyrpc(["list", &server.url(protocol)]);
        assert_eq!((ran.stderr.as_str(), &ran.stdout, ran.code), ("", &services, 0), "{protocol}");
    }
}

#[test]
fn failed_list_prints_a_hint() {
    let server = Server::serve([]);
    let fails = |arguments: &[&str], stderr: &[&str]| {
        let ran = polyrpc(["list"].iter().chain(arguments));
        let code = if stderr.contains(&"Connection refused") { 78 } else { 1 };
        assert!(
            ran.code == code && stderr.iter().all(|text| ran.stderr.contains(text)),
            "{arguments:?}: {ran:?}"
        );
    };
    let output = [
        "nothing that the server describes is called `a.B`",
        "its services are Arith, PBArith, example.EchoService",
    ];
    fails(&[&server.url("grpc"), "a.B"], &output);
    fails(
        &[&format!("grpc://{}", crate::running::free_address())],
        &["Connection refused", "polyrpc serve --listen"],
    );
    let server = Local::serve(polyrpc::Server::new().function("echo", |text: String| async { text }));
    let silent = server.url("grpc");
    fails(&[&silent], &["the server has no reflection", "--proto FILE"]);
    fails(
        &[&server.url("baidu-std")],
        &["baidu_std cannot list services", "no gRPC reflection", "--proto FILE"],
    );
    let proto = concat!(env!("CARGO_MANIFEST_DIR"), "/proto/example.proto");
    fails(&[&silent, "a.B", "--proto", proto], &["nothing in", "its services are example.EchoService"]);
}

#[test]
fn proto_file_replaces_reflection() {
    let proto = concat!(env!("CARGO_MANIFEST_DIR"), "/proto/example.proto");
    let ran = polyrpc(["list", "rpcx://anywhere:1", "--proto", proto]);
    let text = "example.EchoService\n  Echo (example.EchoRequest) returns (example.EchoResponse)\n";
    assert_eq!((ran.stdout.as_str(), ran.code), (text, 0), "{ran:?}");
    let ran = polyrpc(["list", "rpcx://anywhere:1", "example.EchoRequest", "--proto", proto]);
    assert!(ran.stdout.contains("message EchoRequest {"), "{ran:?}");
}

// ------------------------------------------------------------------------------------------ describe

#[test]
fn describe_prints_documents_of_a_reflected_server() {
    let server = Server::serve([]);
    let url = server.url("grpc");
    let document = polyrpc(["describe", &url, "--openapi"]).json();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["servers"][0]["url"], server.url("http"));
    let echo = &document["paths"]["/example.EchoService/Echo"]["post"];
    let schema = &echo["responses"]["200"]["content"]["application/json"]["schema"];
    assert_eq!(schema["$ref"], "#/components/schemas/example.EchoResponse");
    assert!(document["paths"].as_object().unwrap().keys().all(|path| !path.starts_with("/grpc.")));
    // By other protocols the server is asked by gRPC.
    for protocol in ["grpc-web", "baidu-std", "rpcx"] {
        let other = polyrpc(["describe", &server.url(protocol), "--openapi"]).json();
        assert_eq!(other["paths"], document["paths"], "{protocol}");
    }
    let schema = polyrpc(["describe", &url, "helloworld.Greeter/SayHello", "--json-schema"]).json();
    assert_eq!(schema["title"], "helloworld.Greeter/SayHello");
    assert_eq!(schema["$defs"]["helloworld.HelloRequest"]["properties"]["name"]["type"], "string");
    let message = polyrpc(["describe", &url, "helloworld.HelloReply", "--json-schema"]).json();
    assert_eq!(message["$ref"], "#/$defs/helloworld.HelloReply");
    let ran = polyrpc(["describe", &url, "helloworld.Greeter"]);
    assert!(ran.stdout.contains("\nsyntax = \"proto3\";\n\npackage helloworld;\n"), "{ran:?}");
    assert!(ran.stdout.contains("service Greeter {"), "{ran:?}");
}

#[test]
fn describe_reads_files() {
    let proto = concat!(env!("CARGO_MANIFEST_DIR"), "/proto/example.proto");
    let document = polyrpc(["describe", proto, "--openapi", "--dialect", "proto3"]).json();
    assert!(document["servers"].is_null() && document["paths"]["/example.EchoService/Echo"].is_object());
    let printed = polyrpc(["describe", proto]);
    // What was printed is a file that describes the same.
    let folder = TempDir::new();
    let again = folder.path().join("again.proto");
    fs::write(&again, &printed.stdout).unwrap();
    let described = polyrpc(["describe", again.to_str().unwrap(), "--json-schema"]).json();
    assert_eq!(described, polyrpc(["describe", proto, "--json-schema"]).json());
    let fbs = concat!(env!("CARGO_MANIFEST_DIR"), "/fbs/benchmark.fbs");
    let schema = polyrpc(["describe", fbs, "--json-schema"]).json();
    assert_eq!(schema["title"], "test.BenchmarkService/Test");
}

#[test]
fn failed_describe_prints_a_hint() {
    let server = Server::serve([]);
    let silent = Local::serve(polyrpc::Server::new().function("echo", |text: String| async { text }));
    let proto = concat!(env!("CARGO_MANIFEST_DIR"), "/proto/example.proto");
    let fbs = concat!(env!("CARGO_MANIFEST_DIR"), "/fbs/benchmark.fbs");
    for (arguments, stderr) in [
        (
            &[&*server.url("grpc"), "example.EchoServise", "--openapi"][..],
            "did you mean `example.EchoService`?",
        ),
        (&[&*server.url("grpc"), "example.EchoService/Eco", "--openapi"], "did you mean `Echo`?"),
        (
            &[&*server.url("grpc"), "helloworld.HelloReply", "--openapi"],
            "describes no `helloworld.HelloReply`",
        ),
        (&[&*silent.url("grpc"), "--openapi"], "the server has no reflection"),
        (&[&*silent.url("rpcx"), "--openapi"], "rpcx cannot describe services"),
        (&["nothing.proto"], "there is no file nothing.proto"),
        (&["nothing"], "name a server by its URL"),
        (&[fbs, "--proto"], "a .fbs has no .proto"),
        (&[proto, "--openapi", "--proto"], "cannot be used with"),
    ] {
        let ran = polyrpc(["describe"].iter().chain(arguments));
        assert!(ran.code != 0 && ran.stderr.contains(stderr), "{arguments:?}: {ran:?}");
    }
}

// ---------------------------------------------------------------------------------------------- call

#[test]
fn unknown_method_is_described_by_reflection() {
    let server = shapes_server();
    let url = server.url("grpc");
    let ran = polyrpc(["call", &url, "test.shapes.Shapes/One", r#"{"partSizes":[1,2]}"#]);
    assert_eq!(ran.json(), json!({"body": "AAAA"}));
    let ran = polyrpc(["call", &url, "test.shapes.Shapes/Nope"]);
    let text = "error: there is no method `Nope` in test.shapes.Shapes\nhint: it has One, ";
    assert!(ran.stderr.starts_with(text), "{ran:?}");
    let server = Server::serve([]);
    let url = server.url("grpc");
    let ran = polyrpc(["call", &url, "nope.Nope/Nope", "{}"]);
    let text = "error: unimplemented: unknown service nope.Nope\nhint: the server has Arith, PBArith, ";
    assert!(ran.stderr.starts_with(text) && ran.code == 76, "{ran:?}");
    let ran = polyrpc(["call", &url, "grpc.health.v1.Health/Check"]);
    assert_eq!(ran.json(), json!({"status": "SERVING"}));
}

#[test]
fn server_without_reflection_is_called_with_plain_json() {
    let twice = |text: String| async move { text.repeat(2) };
    let server = Local::serve(polyrpc::Server::new().function("Text/Twice", twice));
    assert_eq!(polyrpc(["call", &server.url("grpc"), "Text/Twice", r#""ha""#]).json(), json!("haha"));
}

#[test]
fn reflection_reads_files_one_by_one_from_older_servers() {
    let echo = ServiceBuilder::new("old.Service")
        .method::<Raw, _, _, _, _>("Echo", |cx: Context, message: Bytes| async { (cx, Ok(message)) });
    let old = ServerReflectionServer::new(Old(old_files()));
    let server = Local::serve(polyrpc::Server::new().service(echo).service(old));
    let url = server.url("grpc");
    let ran = polyrpc(["list", &url]);
    assert_eq!(
        ran.stdout, "old.Service\n  Echo (old.Message) returns (old.Message)\nold.Unknown\n",
        "{ran:?}"
    );
    let message = json!({"at": "2023-11-14T22:13:20Z", "part": {"name": "x"}});
    let ran = polyrpc(["call", &url, "old.Service/Echo", &message.to_string()]);
    assert_eq!(ran.json(), message);
}

#[test]
fn messages_stream_in_each_direction_and_both() {
    let server = shapes_server();
    let call = |method: &str, argument: &str| {
        polyrpc(["call", &server.url("grpc"), &format!("test.shapes.Shapes/{method}"), argument])
    };
    let body = |bytes: &str| json!({ "body": bytes });
    assert_eq!(call("Collect", r#"{"body":"AAAA"} {"body":"AAAAAAAA"}"#).json(), json!({"totalSize": 9}));
    assert_eq!(call("Collect", "").json(), json!({}), "a stream without messages succeeds");
    assert_eq!(call("Expand", r#"{"partSizes":[1,2]}"#).values(), [body("AA=="), body("AAA=")]);
    let ran = call("Converse", r#"{"partSizes":[1]}{"partSizes":[2,3]}"#);
    assert_eq!(ran.values(), [body("AA=="), body("AAA="), body("AAAA")]);
}

#[test]
fn streaming_method_of_a_fbs_streams() {
    let dir = TempDir::new();
    let schema = dir.path().join("twice.fbs").display().to_string();
    let declared =
        "table Text { text: string; } rpc_service Twice { Say(Text): Text (streaming: \"server\"); }";
    fs::write(&schema, declared).unwrap();
    let twice = |cx: Context, message: Bytes| async move {
        (cx, Ok(Streaming::from_iter([message.clone(), message])))
    };
    let service = ServiceBuilder::new("Twice").server_streaming::<Raw, Bytes, Bytes, _, _>("Say", twice);
    let server = Local::serve(polyrpc::Server::new().service(service));
    let call = |scheme: &str| {
        polyrpc(["call", &server.url(scheme), "Twice/Say", r#"{"text":"a"}"#, "--schema", &schema])
    };
    let text = json!({ "text": "a" });
    assert_eq!(call("grpc").values(), [text.clone(), text]);
    let refused = call("fb-rpc");
    assert!(refused.code == 1 && refused.stderr.contains("fb_rpc has no streams"), "{refused:?}");
}

#[test]
fn messages_from_stdin_are_sent_as_they_arrive() {
    let server = shapes_server();
    let mut run = InteractiveRun::start(["call", &server.url("grpc"), "test.shapes.Shapes/Converse", "-"]);
    for (size, body) in [(1, "AA=="), (2, "AAA=")] {
        run.write_input(&json!({"partSizes": [size]}).to_string());
        assert_eq!(run.read_json(), json!({ "body": body }));
    }
    let ran = run.end();
    assert_eq!((ran.stdout.trim(), ran.stderr.as_str(), ran.code), ("", "", 0));
}

#[test]
fn failed_stream_prints_the_cause() {
    let server = shapes_server();
    let fails = |scheme: &str, target: &str, more: &[&str], stderr: &str, code: i32| {
        let ran = polyrpc(["call", &server.url(scheme), target].iter().chain(more));
        assert_eq!((ran.stderr.as_str(), ran.code), (stderr, code), "{more:?}");
    };
    let full = "test.shapes.Shapes/Converse";
    fails("grpc", full, &[r#"{"failure":{"code":5,"message":"gone"}}"#], "error: not found: gone\n", 69);
    let text = "error: message 2: the argument is not JSON: line 1, column 4: expected value\n";
    fails("grpc", full, &["{} oh"], text, 1);
    let text = format!("error: {full} streams: it has no attachment and always answers\n");
    fails("grpc", full, &["{}", "--oneway"], &text, 1);
    // baidu_std has attachments, but not with the messages of a stream: the file would not be written.
    let dir = TempDir::new();
    let unwritten = dir.path().join("unwritten").display().to_string();
    fails("baidu-std", full, &["{}", "--save-attachment", &unwritten], &text, 1);
    let watch = "grpc.health.v1.Health/Watch";
    // Both sides know the deadline: either may report it first.
    let ran = polyrpc(["call", &server.url("grpc"), watch, "--timeout", "200ms"]);
    assert!(ran.stderr.starts_with("error: deadline exceeded: ") && ran.code == 68, "{ran:?}");
    fails("rpcx", watch, &["--format", "json"], "error: rpcx has no streams\n", 1);
}

#[test]
fn describe_and_list_report_what_happened() {
    let unused = format!("grpc://{}", crate::running::free_address());
    assert_eq!(polyrpc(["describe", &unused]).code, 78);
    let ran = polyrpc(["list", &unused, "--schema", "a.fbs"]);
    assert!(ran.code == 1 && ran.stderr.contains("and no .fbs"), "{ran:?}");
    let server = Server::serve([]);
    for name in ["Arith/Nope", "Arith.Nope", "helloworld.Greeter/Nope"] {
        for command in ["describe", "list"] {
            let ran = polyrpc([command, &server.url("grpc"), name]);
            assert!(
                ran.code == 1 && ran.stdout.is_empty() && ran.stderr.contains("Nope"),
                "{command} {ran:?}"
            );
        }
    }
    assert!(polyrpc(["describe", &server.url("grpc"), "Arith/Mul"]).stdout.contains("rpc Mul"));
    // Accepts connections and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    for command in ["describe", "list"] {
        let ran = polyrpc([command, &url]);
        assert_eq!(ran.code, 68, "{ran:?}");
        assert!(ran.stderr.contains("gRPC reflection failed: deadline exceeded"), "{ran:?}");
    }
}

#[test]
fn endless_stream_ends_at_the_timeout_over_every_protocol() {
    let server = Server::serve([]);
    for scheme in ["grpc", "grpc-web", "connect", "baidu-std"] {
        let watch = ["call", &server.url(scheme), "grpc.health.v1.Health/Watch", "{}", "--timeout"];
        let ran = until_the_timeout(|seconds| polyrpc(watch.iter().chain(&[seconds])));
        assert_eq!(ran.code, 68, "{scheme}: {ran:?}");
        assert!(
            ran.stdout.contains("SERVING") && ran.stderr.contains("deadline exceeded"),
            "{scheme}: {ran:?}"
        );
    }
}

#[test]
fn server_that_has_answered_is_not_probed_for_other_protocols() {
    let server = Server::serve([]);
    let mut count = None;
    let ran = until_the_timeout(|seconds| {
        let (address, connections) = crate::running::counting_proxy(server.address());
        count = Some(connections);
        let url = crate::running::url_of("grpc", &address);
        polyrpc(["call", &url, "grpc.health.v1.Health/Watch", "{}", "--timeout", seconds])
    });
    assert!(ran.code == 68 && ran.stdout.contains("SERVING"), "{ran:?}");
    assert_eq!(count.unwrap().load(std::sync::atomic::Ordering::SeqCst), 1, "{ran:?}");
}

#[test]
fn bench_measures_calls_of_every_shape() {
    let server = shapes_server();
    let bench = |method: &str, message: &str, more: &[&str]| {
        let (url, method) = (server.url("grpc"), format!("test.shapes.Shapes/{method}"));
        let arguments = ["bench", &url, &method, message, "--warmup", "20ms", "--json", "-"];
        polyrpc(arguments.iter().chain(more))
    };
    for (method, message, more, shape) in [
        ("One", r#"{"part_sizes":[3]}"#, &["-n", "30", "-c", "3"][..], "unary"),
        ("One", r#"{"part_sizes":[3]}"#, &["-n", "30", "--oneway"], "oneway"),
        ("Collect", "{}", &["-n", "30", "-c", "3", "--messages", "4"], "client stream"),
        ("Expand", r#"{"part_sizes":[1,2,3]}"#, &["-n", "30", "-c", "3"], "server stream"),
        ("Converse", r#"{"part_sizes":[1]}"#, &["-n", "30", "--streams", "3"], "bidirectional stream"),
    ] {
        let figures = bench(method, message, more).json();
        assert_eq!(figures["counts"]["succeeded"], 30, "{figures}");
        assert!(figures["load"]["description"].as_str().unwrap().starts_with(shape), "{figures}");
        assert!(figures["errors"].as_array().is_none_or(Vec::is_empty), "{figures}");
    }
    let failing = bench("Expand", r#"{"failure":{"code":5,"message":"gone"}}"#, &["-n", "4"]);
    assert_eq!(
        failing.json_of_failure()["errors"],
        json!([{ "error": "not found", "count": 4 }]),
        "{failing:?}"
    );
    assert_eq!(failing.code, 1);

    let endless = ["bench", &server.url("grpc"), "grpc.health.v1.Health/Watch", "-n", "2", "--warmup", "0s"];
    let ran = polyrpc(endless.iter().chain(&["--timeout", "100ms", "--json", "-"]));
    assert_eq!(
        ran.json_of_failure()["errors"],
        json!([{ "error": "deadline exceeded", "count": 2 }]),
        "{ran:?}"
    );
}

/// A server with a method of each call kind, and with the standard services of `polyrpc serve`.
fn shapes_server() -> Local {
    let server = polyrpc::Server::new().service(ShapesServer::new(Workshop));
    Local::serve(server.health(&Health::new()).reflection())
}

/// Reflection v1alpha, by a server that sends each file separately, without the well-known ones.
struct Old(FileDescriptorSet);

impl ServerReflection for Old {
    async fn server_reflection_info(
        &self,
        _: &mut Context,
        requests: Streaming<ServerReflectionRequest>,
    ) -> Result<Streaming<ServerReflectionResponse>> {
        let old = Self(self.0.clone());
        Ok(Streaming::from_stream(requests.map(move |request| {
            let message_response = Some(old.answer(request?.message_request));
            Ok(ServerReflectionResponse { message_response, ..ServerReflectionResponse::default() })
        })))
    }
}

impl Old {
    fn answer(&self, question: Option<MessageRequest>) -> MessageResponse {
        match question {
            Some(MessageRequest::ListServices(_)) => {
                let service =
                    |name: &str| ServiceResponse { name: name.into(), ..ServiceResponse::default() };
                let service = ["old.Unknown", "old.Service"].map(service).into();
                ListServiceResponse { service, ..ListServiceResponse::default() }.into()
            }
            Some(MessageRequest::FileByFilename(name)) => self.file(&name),
            Some(MessageRequest::FileContainingSymbol(name)) if name == "old.Service" => {
                self.file("old.proto")
            }
            _ => self.file(""),
        }
    }

    fn file(&self, name: &str) -> MessageResponse {
        match self.0.file.iter().find(|file| file.name() == name && !name.starts_with("google/")) {
            Some(file) => FileDescriptorResponse {
                file_descriptor_proto: vec![file.encode_to_vec().into()],
                ..FileDescriptorResponse::default()
            }
            .into(),
            None => ErrorResponse { error_code: 5, ..ErrorResponse::default() }.into(),
        }
    }
}

fn old_files() -> FileDescriptorSet {
    let dir = TempDir::new();
    for (name, text) in OLD {
        fs::write(dir.path().join(name), text).unwrap();
    }
    protox::compile(["old.proto"], [dir.path()]).unwrap()
}

const OLD: [(&str, &str); 2] = [
    ("part.proto", "syntax = \"proto3\"; package old; message Part { string name = 1; }"),
    (
        "old.proto",
        r#"
        syntax = "proto3";
        package old;
        import "google/protobuf/timestamp.proto";
        import "part.proto";
        message Message { google.protobuf.Timestamp at = 1; Part part = 2; }
        service Service { rpc Echo(Message) returns (Message); }
        "#,
    ),
];
