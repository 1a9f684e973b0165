//! What is called: one method, or a mix; with messages from the command line, templates and records.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use polyrpc::Client;
use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc_core::protocol::Streams;
use polyrpc_load::{CallKind, Method, Order, Records, Template};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::options::parse_positive;
use crate::call::{self, CommonOptions, DEFAULT_TIMEOUT, Headers};
use crate::failure::Failure;
use crate::message::{self, Translator};

/// Messages and their direction.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Workload")]
pub(super) struct WorkloadOptions {
    /// Send a string of this many bytes to example.EchoService/Echo
    #[arg(long, value_name = "N", conflicts_with = "argument")]
    size: Option<usize>,
    /// Call several methods, one in each line of a file: {"method": "Arith/Mul", "weight": 3, "message": {"A": 1}};
    /// also "template" with placeholders instead of "message", "stream" and "oneway"
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "argument", "size", "feed", "stream", "oneway"])]
    pub(super) mix: Option<PathBuf>,
    /// Fill placeholders such as {{name}} in the message from the records of a CSV file with a header, or of a .jsonl
    /// file; FILE:random uses them at random instead of in sequence. {{seq}}, {{random 1 100}}, {{uuid}} and {{text
    /// 64}} need no file
    #[arg(long, value_name = "FILE")]
    feed: Option<String>,
    /// Number of different messages that placeholders without records produce before the load; calls reuse them
    #[arg(long, value_name = "N", value_parser = parse_positive, default_value = "10000")]
    variants: usize,
    /// Stream: server (a call ends with the last message), client (--messages to the server), bidi (a call is a message
    /// and its answer on a stream that stays open) [default: as the method's schema declares]
    #[arg(long, value_enum, value_name = "DIRECTION")]
    stream: Option<Direction>,
    /// Number of open streams, with --stream bidi [default: as many as callers; 1 with --rate]
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    pub(super) streams: Option<usize>,
    /// Number of messages of a call, with --stream client
    #[arg(long, value_name = "N", value_parser = parse_positive, default_value = "10")]
    messages: usize,
    /// Do not wait for replies: a call ends when it is sent
    #[arg(long, conflicts_with = "stream")]
    oneway: bool,
    /// The expected reply of every call, as JSON; a call with another reply fails. For a unary method and one message
    #[arg(long, value_name = "JSON", conflicts_with_all = ["mix", "feed", "stream", "oneway"])]
    pub(super) expect: Option<String>,
    #[command(flatten)]
    pub(super) headers: Headers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Direction {
    Server,
    Client,
    Bidi,
}

/// A line of a mix.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    method: String,
    #[serde(default = "default_weight")]
    weight: u32,
    message: Option<Box<RawValue>>,
    template: Option<String>,
    stream: Option<Direction>,
    #[serde(default)]
    oneway: bool,
}

fn default_weight() -> u32 {
    1
}

/// How a method's messages are encoded, and how long calls may take.
#[derive(Clone, Copy)]
pub(super) struct Encoding<'a> {
    pub(super) client: &'a Client,
    pub(super) options: &'a message::Options,
    /// The timeout and the credential given on the command line.
    pub(super) common: &'a CommonOptions,
    pub(super) seed: u64,
    /// Number of calls, if limited.
    pub(super) calls: Option<usize>,
}

impl WorkloadOptions {
    /// The methods to call.
    pub(super) fn methods(
        &self,
        target: Option<&str>,
        argument: Option<&str>,
        encoding: Encoding<'_>,
    ) -> Result<Vec<Method>, Failure> {
        if let Some(path) = &self.mix {
            return self.read_mix(path, encoding);
        }
        let target = target.ok_or_else(|| Failure::new("name the method to call, or a --mix of methods"))?;
        let argument = self.read_argument(target, argument)?;
        Ok(vec![self.build_method(target, 1, &argument, (self.stream, self.oneway), encoding)?])
    }

    fn read_mix(&self, path: &Path, encoding: Encoding<'_>) -> Result<Vec<Method>, Failure> {
        let text = read(path)?;
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let methods: Vec<_> = lines
            .map(|(number, line)| {
                let location = format!("{}, line {}", path.display(), number + 1);
                let line: Line = serde_json::from_str(line)
                    .map_err(|error| Failure::new(format!("{location}: {error}")))?;
                let message = match (&line.message, &line.template) {
                    (Some(message), None) => message.get(),
                    (None, Some(template)) => template,
                    (None, None) => "",
                    (Some(_), Some(_)) => {
                        return Err(Failure::new(format!("{location}: there is a message and a template")));
                    }
                };
                let shape = (line.stream, line.oneway);
                let method =
                    self.build_method(&line.method, line.weight, message.as_bytes(), shape, encoding);
                method.map_err(|failure| failure.with_subject(location))
            })
            .collect::<Result<_, Failure>>()?;
        match methods.is_empty() {
            true => Err(Failure::new(format!("{} has no method", path.display()))),
            false => Ok(methods),
        }
    }

    fn read_argument(&self, target: &str, argument: Option<&str>) -> Result<Vec<u8>, Failure> {
        match self.size {
            None => call::read_argument(argument),
            Some(_) if !target.ends_with("EchoService/Echo") => {
                Err(Failure::new("--size is for example.EchoService/Echo; give another method its message"))
            }
            Some(size) => Ok(format!(r#"{{"message":"{}"}}"#, "x".repeat(size)).into_bytes()),
        }
    }

    fn build_method(
        &self,
        target: &str,
        weight: u32,
        argument: &[u8],
        (stream, oneway): (Option<Direction>, bool),
        encoding: Encoding<'_>,
    ) -> Result<Method, Failure> {
        let query_options = encoding.common.query_options(&self.headers);
        let translator = Translator::new(encoding.client, target, encoding.options, query_options)?;
        let shape = self.shape(&translator, stream, oneway);
        check_shape(&translator, target, shape, encoding)?;
        let (messages, order) = self.encode_requests(&translator, argument, encoding)?;
        // The client's own timeout does not cover streams.
        let timeout = match shape {
            CallKind::ServerStream | CallKind::ClientStream { .. } | CallKind::Bidi => {
                Some(encoding.common.timeout().unwrap_or(DEFAULT_TIMEOUT))
            }
            CallKind::Unary | CallKind::Oneway => None,
        };
        Ok(Method {
            name: target.to_owned(),
            target: translator.target(target).to_owned(),
            weight,
            kind: shape,
            messages: messages.into(),
            expected: None,
            order,
            options: CallOptions {
                metadata: self.headers.metadata(),
                oneway: shape == CallKind::Oneway,
                timeout,
                ..CallOptions::default()
            },
        })
    }

    fn shape(&self, translator: &Translator, stream: Option<Direction>, oneway: bool) -> CallKind {
        let described = translator.stream_type();
        let direction = stream.or(match (described.client_streaming, described.server_streaming) {
            (false, false) => None,
            (false, true) => Some(Direction::Server),
            (true, false) => Some(Direction::Client),
            (true, true) => Some(Direction::Bidi),
        });
        match direction {
            _ if oneway => CallKind::Oneway,
            None => CallKind::Unary,
            Some(Direction::Server) => CallKind::ServerStream,
            Some(Direction::Client) => CallKind::ClientStream { messages: self.messages },
            Some(Direction::Bidi) => CallKind::Bidi,
        }
    }

    /// Encodes every message that the load will send.
    fn encode_requests(
        &self,
        translator: &Translator,
        argument: &[u8],
        encoding: Encoding<'_>,
    ) -> Result<(Vec<Body>, Order), Failure> {
        let (records, order) = self.read_records()?;
        let text = std::str::from_utf8(argument).ok().filter(|text| text.contains("{{"));
        let Some(text) = text.filter(|_| translator.format() != polyrpc::Format::Raw) else {
            if records.is_some() {
                return Err(Failure::new(
                    "--feed fills placeholders such as {{name}}, and the message has none",
                ));
            }
            return Ok((vec![translator.encode_request(argument)?], order));
        };
        let template: Template = text.parse().map_err(Failure::new)?;
        let variants = encoding.calls.map_or(self.variants, |calls| calls.min(self.variants));
        let messages = polyrpc_load::messages(&template, records.as_ref(), variants, encoding.seed);
        let encode = |(number, message): (usize, &Vec<u8>)| {
            let encoded = translator.encode_request(message);
            encoded.map_err(|failure| failure.with_subject(format_args!("message {}", number + 1)))
        };
        let messages = messages.map_err(Failure::new)?;
        let bodies = messages.iter().enumerate().map(encode).collect::<Result<_, _>>()?;
        Ok((bodies, order))
    }

    fn read_records(&self) -> Result<(Option<Records>, Order), Failure> {
        let Some(feed) = &self.feed else { return Ok((None, Order::default())) };
        let (path, order) = match feed.rsplit_once(':') {
            Some((path, order @ ("random" | "sequence"))) => (path, order.parse().map_err(Failure::new)?),
            _ => (feed.as_str(), Order::default()),
        };
        let path = Path::new(path);
        let records = Records::parse(path, &read(path)?);
        Ok((Some(records.map_err(|error| Failure::new(format!("{}: {error}", path.display())))?), order))
    }
}

/// Rejects a stream that contradicts the method's description: its peer would wait for messages that never come.
fn check_shape(
    translator: &Translator,
    target: &str,
    shape: CallKind,
    encoding: Encoding<'_>,
) -> Result<(), Failure> {
    let described = translator.stream_type();
    let wanted = match shape {
        // A method without streams may be called one-way, and streams are attached to unary calls of brpc.
        CallKind::Unary | CallKind::Oneway => return Ok(()),
        CallKind::ServerStream => (false, true),
        CallKind::ClientStream { .. } => (true, false),
        CallKind::Bidi => (true, true),
    };
    let is_attached = encoding.client.protocol().descriptor().capabilities.streams == Streams::Attached;
    // A message type that the user names says nothing about the method.
    let is_declared = translator.is_declared() && encoding.options.message_types().is_none();
    if !is_declared || is_attached || wanted == (described.client_streaming, described.server_streaming) {
        return Ok(());
    }
    let what = match (described.client_streaming, described.server_streaming) {
        (false, false) => "it takes one message and returns one: leave out --stream",
        (false, true) => "expected --stream server",
        (true, false) => "expected --stream client",
        (true, true) => "expected --stream bidi",
    };
    Err(Failure::new(format!("{target} is declared otherwise than --stream says: {what}")))
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| Failure::system(format!("read {}", path.display()), &error))
}
