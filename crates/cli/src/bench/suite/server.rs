//! A server while it is measured.

use std::env;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::{Client, Format};
use polyrpc_load::Process;

use super::START_TIMEOUT;
use super::definition::CellPlan;
use super::peers::Peer;
use super::program::{NoLine, Output, POLL, Program, accepts, free_port};
use super::ready::Ready;
use crate::terminal;

/// A running server.
pub(super) struct Server {
    program: Program,
    grace: Duration,
    pub(super) address: String,
    pub(super) url: String,
    pub(super) command: String,
}

impl Server {
    /// Starts the server, and waits until it is ready.
    pub(super) fn start(peer: &Peer, plan: &CellPlan) -> Result<Self, String> {
        let mut started = Self::start_once(peer, plan);
        // Another program may have taken the port before the server did.
        for _ in 1..STARTS {
            match &started {
                Err(error) if error.contains("in use") => started = Self::start_once(peer, plan),
                _ => break,
            }
        }
        started
    }

    fn start_once(peer: &Peer, plan: &CellPlan) -> Result<Self, String> {
        let definition = &peer.definition;
        let start = definition.start.as_deref().ok_or("it has no server")?;
        let port = free_port()?;
        let words = expand(start, port, plan)?;
        let command = format_command(&words);
        let mut server = Self {
            program: Program::start(&peer.dir, &words, Output::Log)?,
            grace: definition.stop.grace,
            address: format!("127.0.0.1:{port}"),
            url: url(definition.url.as_deref(), port, plan)?,
            command,
        };
        server.wait_until_ready(&definition.ready, port)?;
        Ok(server)
    }

    fn wait_until_ready(&mut self, ready: &Ready, port: u16) -> Result<(), String> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(how) = self.program.describe_end() {
                return Err(format!("the server {how}"));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let is_ready = match ready {
                Ready::Tcp => accepts(port),
                Ready::Line(begin) => match self.program.line(left.min(LINE_TIMEOUT)) {
                    Ok(line) => line.starts_with(begin.as_str()),
                    Err(NoLine::TimedOut | NoLine::Ended) => false,
                },
                Ready::Http(path) => answers_http(port, path),
                Ready::GrpcHealth => is_healthy(port),
            };
            match is_ready {
                true => return Ok(()),
                false if left.is_zero() => {
                    let line = self.program.last_error().map_or_else(String::new, |line| format!(": {line}"));
                    return Err(format!(
                        "the server was not ready after {} s{line}",
                        START_TIMEOUT.as_secs()
                    ));
                }
                false => thread::sleep(POLL),
            }
        }
    }

    /// How it ended, if it did or does within this time.
    pub(super) fn wait_for_end(&mut self, timeout: Duration) -> Option<String> {
        self.program.wait_for_end(timeout)
    }

    pub(super) fn id(&self) -> u32 {
        self.program.id()
    }

    pub(super) fn cpu(&self) -> Option<Duration> {
        Process { id: self.program.id() }.cpu()
    }

    /// The largest resident memory so far, in bytes.
    pub(super) fn memory(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.program.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1024)
    }

    pub(super) fn stop(self) {
        self.program.stop(self.grace);
    }
}

/// This program.
pub(super) fn own_program() -> Result<String, String> {
    let own = env::current_exe().map_err(|error| format!("this program is not found: {error}"))?;
    Ok(own.display().to_string())
}

/// A command for readers: where this program is says nothing on another machine.
pub(super) fn format_command(words: &[String]) -> String {
    let own = own_program().unwrap_or_default();
    let word = |word: &String| match *word == own {
        true => "polyrpc".to_owned(),
        false => word.clone(),
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// A command with its placeholders filled. It is split at spaces, before any value is put in.
pub(super) fn expand(command: &str, port: u16, plan: &CellPlan) -> Result<Vec<String>, String> {
    let values = [
        ("{polyrpc}", own_program()?),
        ("{port}", port.to_string()),
        ("{heavy}", plan.heavy.to_string()),
        ("{size}", plan.size.to_string()),
        ("{contract}", plan.contract.to_string()),
        ("{protocol}", plan.pair.protocol.clone().unwrap_or_default()),
    ];
    let fill =
        |word: &str| values.iter().fold(word.to_owned(), |word, (name, value)| word.replace(name, value));
    Ok(command.split_whitespace().map(fill).collect())
}

/// The pair chooses the scheme and its parameters, where the peer's URL leaves them open: `{scheme}://…{parameters}`.
fn url(template: Option<&str>, port: u16, plan: &CellPlan) -> Result<String, String> {
    let template = template.ok_or("it has no url")?;
    let protocol = plan.pair.protocol.as_deref().unwrap_or_default();
    let (scheme, parameters) = protocol.split_once('?').unwrap_or((protocol, ""));
    if template.contains("{scheme}") && scheme.is_empty() {
        return Err(format!("pair {} names no protocol for {template}", plan.pair.id));
    }
    let parameters = if parameters.is_empty() { String::new() } else { format!("?{parameters}") };
    let url = template.replace("{port}", &port.to_string());
    Ok(url.replace("{scheme}", scheme).replace("{parameters}", &parameters))
}

fn answers_http(port: u16, path: &str) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
        let mut head = [0; 12];
        stream.read_exact(&mut head)?;
        Ok::<_, std::io::Error>(head.ends_with(b" 200"))
    };
    ask().unwrap_or(false)
}

fn is_healthy(port: u16) -> bool {
    let ask = || {
        let client = Client::builder(&format!("grpc://127.0.0.1:{port}"))
            .timeout(Duration::from_secs(1))
            .build()
            .ok()?;
        let request = Body::new(Format::Protobuf, "");
        let reply = client.call_raw("grpc.health.v1.Health/Check", request, CallOptions::default());
        terminal::block_on(reply).ok()?.ok()
    };
    // Field 1 is SERVING.
    ask().is_some_and(|reply| reply.message.bytes.as_ref() == [8, 1])
}

/// Between two looks at whether the server still runs.
const LINE_TIMEOUT: Duration = Duration::from_millis(200);
/// How often a server is started if its port is taken.
const STARTS: usize = 3;
