//! Valid and invalid uses of `call` and `list` as a transcript: `mistakes.txt` has every command line with its output
//! and exit code.
//!
//! `UPDATE=1 cargo test -p polyrpc-cli --test command mistakes` rewrites the transcript; review it before checking it in.

use std::fs;
use std::path::PathBuf;

use crate::running::reflection::{ServerReflection, ServerReflectionServer};
use crate::running::{Server, TempDir, polyrpc};
use bytes::Bytes;
use futures_util::StreamExt;
use polyrpc::codec::Raw;
use polyrpc::rest_rpc::Version;
use polyrpc::server::Listen;
use polyrpc::service::ServiceBuilder;
use polyrpc::{Context, Protocol, Result, Status, Streaming};
use polyrpc_grpc_messages::reflection::v1::server_reflection_request::MessageRequest;
use polyrpc_grpc_messages::reflection::v1::server_reflection_response::MessageResponse;
use polyrpc_grpc_messages::reflection::v1::{
    ErrorResponse, FileDescriptorResponse, ListServiceResponse, ServerReflectionRequest,
    ServerReflectionResponse, ServiceResponse,
};
use protox::prost::Message;
use protox::prost_reflect::prost_types::FileDescriptorSet;
use tokio::runtime::Runtime;

#[test]
fn output_of_valid_and_invalid_commands_equals_the_transcript() {
    let placeholders = Placeholders::new();
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/mistakes.txt"));
    let wanted = fs::read_to_string(&path).unwrap();
    let entries = Entry::all(&wanted);
    assert!(entries.len() >= 60, "there are {} uses", entries.len());
    let texts = wanted.split("\n\n");
    let found: String =
        entries.iter().zip(texts).map(|(entry, text)| entry.run_until(text, &placeholders)).collect();
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &found).unwrap();
    }
    for (found, wanted) in found.split("\n\n").zip(wanted.split("\n\n")) {
        assert_eq!(found, wanted);
    }
    assert_eq!(found, wanted);
}

#[test]
fn service_unknown_to_the_command_is_measured_by_reflection() {
    let placeholders = Placeholders::new();
    let bench = |message: &str| {
        let url = placeholders.fill("grpc://{foreign}");
        polyrpc(["bench", &url, "example.EchoService/Echo", message, "-n", "3", "--warmup", "1ms"])
    };
    // This program's own EchoService has no such field, and requires a message.
    let ran = bench(r#"{"copies":2}"#);
    assert_eq!((ran.stderr.as_str(), ran.code), ("", 0), "{ran:?}");
    assert!(bench(r#"{"copeis":2}"#).stderr.contains("did you mean `copies`?"));
}

/// One case: comments, the command line, its input, and its output.
struct Entry<'a> {
    comment: Vec<&'a str>,
    command: &'a str,
    input: Vec<&'a str>,
}

impl<'a> Entry<'a> {
    fn all(transcript: &'a str) -> Vec<Self> {
        let entry = |text: &'a str| {
            let text = text.trim_start_matches('\n');
            let lines = |mark: &'static str| text.lines().filter_map(move |line| line.strip_prefix(mark));
            let comment = lines("# ").collect();
            let command = lines("$ ").next().unwrap_or_else(|| panic!("no command in {text}"));
            Self { comment, command, input: lines("< ").collect() }
        };
        transcript.trim_end().split("\n\n").map(entry).collect()
    }

    /// Runs it until its text is this one, at most a few times: a call with a short timeout, a question about the messages or
    /// a probe of the protocols may not be answered in time on a busy machine.
    fn run_until(&self, wanted: &str, placeholders: &Placeholders) -> String {
        let mut found = self.run(placeholders);
        for _ in 1..5 {
            if found.trim_end() == wanted.trim() {
                break;
            }
            found = self.run(placeholders);
        }
        found
    }

    fn run(&self, placeholders: &Placeholders) -> String {
        let words = words(&placeholders.fill(self.command));
        assert_eq!(words[0], "polyrpc", "{}", self.command);
        let ran = crate::running::polyrpc_with_input(&words[1..], &self.input.join("\n"));
        let mut text = String::new();
        let mut add = |mark: &str, lines: &str| {
            for line in lines.lines() {
                let line = format!("{mark}{}", placeholders.hide(line));
                text += &format!("{}\n", line.trim_end());
            }
        };
        add("# ", &self.comment.join("\n"));
        add("$ ", self.command);
        add("< ", &self.input.join("\n"));
        add("| ", &ran.stdout);
        add("! ", &ran.stderr);
        text + &format!("= {}\n\n", ran.code)
    }
}

/// The words of a command line, with single quotes as in a shell.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Servers and files by their placeholders in the transcript.
struct Placeholders {
    names: Vec<(&'static str, String)>,
    _servers: Vec<Server>,
    _runtime: Runtime,
    _dir: TempDir,
}

impl Placeholders {
    fn new() -> Self {
        let ours = Server::serve([]);
        let only_rpcx = Server::serve(["--protocols", "rpcx"]);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let start = |server: polyrpc::Server, listen: Listen| {
            let bound = runtime.block_on(server.bind(listen)).unwrap();
            let address = bound.address().to_string();
            runtime.spawn(bound.run());
            address
        };
        let local = || Listen::on("127.0.0.1:0");
        let text = || polyrpc::Server::new().function("echo", |text: String| async move { text });
        let dir = TempDir::new();
        for (name, text) in FILES {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let set = protox::compile(["order.proto"], [dir.path()]).unwrap();
        fs::write(dir.path().join("order.bin"), set.encode_to_vec()).unwrap();
        let names = vec![
            ("ours", ours.address().to_owned()),
            ("only-rpcx", only_rpcx.address().to_owned()),
            ("foreign", start(foreign(&dir), local())),
            ("no-reflection", start(text(), local())),
            ("only-http", start(text(), local().protocols([Protocol::Http]))),
            ("only-net-rpc", start(text(), local().protocols([Protocol::NetRpc]))),
            ("rest-v0.11", start(text(), local().rest_rpc(Version::V0_11))),
            ("nobody", crate::running::free_address()),
            ("dir", dir.path().display().to_string()),
            ("proto", concat!(env!("CARGO_MANIFEST_DIR"), "/proto").to_owned()),
        ];
        Self { names, _servers: vec![ours, only_rpcx], _runtime: runtime, _dir: dir }
    }

    fn fill(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (name, it)| text.replace(&format!("{{{name}}}"), it))
    }

    /// Replaces what differs from run to run.
    fn hide(&self, line: &str) -> String {
        let line = self
            .names
            .iter()
            .fold(line.to_owned(), |line, (name, it)| line.replace(it, &format!("{{{name}}}")));
        // A closed connection is reported in several ways.
        let hung_up = [
            "the connection broke: Broken pipe (os error 32)",
            "the connection broke: Connection reset by peer (os error 104)",
        ];
        let line =
            hung_up.iter().fold(line, |line, way| line.replace(way, "the server closed the connection"));
        let line = match line.rsplit_once(" in ") {
            Some((before, time)) if line.starts_with("< ") && time.ends_with('s') => {
                format!("{before} in TIME")
            }
            _ => line,
        };
        match line.split_once("\"time_ms\":") {
            Some((before, after)) => {
                let end = after.find([',', '}']).unwrap_or(after.len());
                format!("{before}\"time_ms\":TIME{}", &after[end..])
            }
            None => line,
        }
    }
}

/// A server with a foreign EchoService: same name, other messages.
fn foreign(dir: &TempDir) -> polyrpc::Server {
    let echo = ServiceBuilder::new("example.EchoService")
        .method::<Raw, _, _, _, _>("Echo", |cx: Context, message: Bytes| async { (cx, Ok(message)) })
        .method::<Raw, Bytes, Bytes, _, _>("Fail", |mut cx: Context, _| async {
            cx.reply_options().metadata.insert("told", "before");
            (cx, Err(Status::failed_precondition("the shop is closed").into()))
        });
    let files = protox::compile(["foreign.proto"], [dir.path()]).unwrap();
    polyrpc::Server::new().service(echo).service(ServerReflectionServer::new(Reflection(files)))
}

/// Reflection that sends everything in one response.
struct Reflection(FileDescriptorSet);

impl ServerReflection for Reflection {
    async fn server_reflection_info(
        &self,
        _: &mut Context,
        requests: Streaming<ServerReflectionRequest>,
    ) -> Result<Streaming<ServerReflectionResponse>> {
        let files: Vec<Bytes> = self.0.file.iter().map(|file| file.encode_to_vec().into()).collect();
        Ok(Streaming::from_stream(requests.map(move |request| {
            let answer: MessageResponse = match request?.message_request {
                Some(MessageRequest::ListServices(_)) => {
                    let service =
                        ServiceResponse { name: "example.EchoService".into(), ..ServiceResponse::default() };
                    ListServiceResponse { service: vec![service], ..ListServiceResponse::default() }.into()
                }
                Some(MessageRequest::FileContainingSymbol(name)) if name.starts_with("example.") => {
                    let file_descriptor_proto = files.clone();
                    FileDescriptorResponse { file_descriptor_proto, ..FileDescriptorResponse::default() }
                        .into()
                }
                _ => ErrorResponse { error_code: 5, ..ErrorResponse::default() }.into(),
            };
            Ok(ServerReflectionResponse {
                message_response: Some(answer),
                ..ServerReflectionResponse::default()
            })
        })))
    }
}

const FILES: [(&str, &str); 4] = [
    (
        "foreign.proto",
        r#"
        syntax = "proto3";
        package example;
        enum Size { SMALL = 0; LARGE = 1; }
        message EchoRequest { string message = 1; int32 copies = 2; Size size = 3; repeated EchoRequest more = 4; }
        service EchoService {
          rpc Echo(EchoRequest) returns (EchoRequest);
          rpc Fail(EchoRequest) returns (EchoRequest);
        }
        "#,
    ),
    (
        "order.proto",
        r#"syntax = "proto3"; package shop; message Order { string message = 1; } message Receipt { string message = 1; }"#,
    ),
    ("hi.json", "{\n  \"message\": \"from a file\"\n}\n"),
    ("wrong.json", "{\n  \"message\": \"x\",\n  \"copeis\": 2\n}\n"),
];
