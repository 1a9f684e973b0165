//! `polyrpc dump`: shows the calls in captured packets.
//!
//! In the order of a packet: it arrives by [`input`], [`file`] reads it, [`segment`] finds its TCP segment,
//! [`connections`] puts those of each connection into order by [`stream`], [`sessions`] detects the protocol, and
//! [`observer`] reads both directions of it. A [`captured`] call is decompressed when it is shown.

mod captured;
mod connections;
mod file;
mod input;
mod observer;
mod segment;
mod sessions;
mod stream;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use polyrpc_record::redact::Redaction;
use polyrpc_record::{DeclaredMessages, Writer};

use self::captured::CapturedCall;
use self::connections::Connections;
use self::file::Packets;
use self::input::{Input, InterruptFlag};
use crate::failure::Failure;
use crate::recording::described::{DescribedMessages, ProtoOptions};
use crate::recording::filter::Filter;
use crate::recording::show;
use crate::terminal;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// The captured packets, a pcap or pcapng file; `-` is standard input
    file: PathBuf,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    described: ProtoOptions,
    /// Also write the calls to a recording, for `polyrpc replay`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Keep the values of `authorization`, `cookie` and the like
    #[arg(long)]
    keep_credentials: bool,
    /// Print a line of JSON for each call
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let name = options.file.display();
    let wrong = |error: io::Error| Failure::new(format!("{name}: {error}"));
    let input = open(&options.file)?;
    let interrupted = input.get_ref().interrupt_flag();
    let mut packets = Packets::new(input).map_err(wrong)?;
    let mut output = Output::new(options, print)?;
    let mut connections = Connections::default();
    let read = read(&mut packets, &interrupted, &mut connections, &mut output);
    // What was recorded is whole, however the reading ended.
    let is_any = output.is_any;
    let finished = output.finish();
    let damage = read?;
    finished?;
    for note in connections.notes() {
        terminal::print_error(format_args!("note: {name}: {note}"));
    }
    // What came before the damage was shown.
    damage.map_or_else(|| Ok(show::report_selection(is_any, &options.filter)), |error| Err(wrong(error)))
}

/// Reads captured packets as the command does. Returns the number of their calls.
pub(crate) fn count_calls(file: &[u8]) -> usize {
    let (mut connections, mut calls) = (Connections::default(), 0);
    let Ok(mut packets) = Packets::new(file) else { return 0 };
    while let Ok(Some(packet)) = packets.next_packet() {
        match segment::find_segment(&packet) {
            Ok(_) if packet.is_cut => connections.skip(segment::SkipReason::Cut),
            Ok(segment) => {
                calls +=
                    connections.push(&segment, packet.at).into_iter().map(CapturedCall::into_call).count()
            }
            Err(why) => connections.skip(why),
        }
    }
    let calls = calls + connections.finish().into_iter().map(CapturedCall::into_call).count();
    connections.notes();
    calls
}

/// Reads the packets until their calls are no longer needed. Returns why they cannot be read further.
fn read(
    packets: &mut Packets<BufReader<Input>>,
    interrupted: &InterruptFlag,
    connections: &mut Connections,
    output: &mut Output<'_>,
) -> Result<Option<io::Error>, Failure> {
    let damage = loop {
        match packets.next_packet() {
            Ok(None) => break None,
            Ok(Some(packet)) => match segment::find_segment(&packet) {
                Ok(_) if packet.is_cut => connections.skip(segment::SkipReason::Cut),
                Ok(segment) => {
                    for call in connections.push(&segment, packet.at) {
                        if !output.write_call(call)? {
                            return Ok(None);
                        }
                    }
                }
                Err(why) => connections.skip(why),
            },
            // In the middle of a packet.
            Err(_) if interrupted.is_set() => break None,
            Err(error) => break Some(error),
        }
    };
    for call in connections.finish() {
        if !output.write_call(call)? {
            return Ok(None);
        }
    }
    Ok(damage)
}

/// Prints a text; `false` if standard output is closed.
type Print = fn(&str) -> Result<bool, Failure>;

fn print(text: &str) -> Result<bool, Failure> {
    terminal::print(text)
}

/// Outputs of calls.
struct Output<'o> {
    options: &'o Options,
    described: Option<DescribedMessages>,
    redaction: Redaction,
    recording: Option<Writer<BufWriter<File>>>,
    print: Print,
    /// Whether standard output is open.
    is_read: bool,
    /// A call was selected.
    is_any: bool,
}

impl<'o> Output<'o> {
    fn new(options: &'o Options, print: Print) -> Result<Self, Failure> {
        let described = options.described.read()?;
        let mut recording = options.out.as_deref().map(create).transpose()?;
        if let (Some(writer), Some(described)) = (&mut recording, &described) {
            writer.schema(&described.schema).map_err(|error| unwritten(options, &error))?;
        }
        let redaction = Redaction::new();
        let redaction = if options.keep_credentials { redaction.keep_credentials() } else { redaction };
        Ok(Self { options, described, redaction, recording, print, is_read: true, is_any: false })
    }

    /// Prints and records a call; returns `false` if further ones are not needed.
    fn write_call(&mut self, captured: CapturedCall) -> Result<bool, Failure> {
        if !self.options.filter.selects(&captured.call) {
            return Ok(true);
        }
        self.is_any = true;
        let mut call = captured.into_call();
        let described = self.described.as_ref().filter(|described| described.declare(&mut call));
        self.redaction.apply(&mut call, None);
        if let Some(recording) = &mut self.recording {
            recording.call(&call).map_err(|error| unwritten(self.options, &error))?;
        }
        if self.is_read {
            let none = DeclaredMessages::new();
            let messages = described.map_or(&none, DescribedMessages::messages);
            self.is_read = (self.print)(&show::format_call(messages, &call, self.options.json))?;
        }
        Ok(self.is_read || self.recording.is_some())
    }

    fn finish(self) -> Result<(), Failure> {
        let Some(recording) = self.recording else { return Ok(()) };
        let file =
            recording.finish().and_then(|file| file.into_inner().map_err(io::IntoInnerError::into_error));
        file.and_then(|file| file.sync_all()).map_err(|error| unwritten(self.options, &error))
    }
}

fn open(path: &Path) -> Result<BufReader<Input>, Failure> {
    let unread = |error: io::Error| Failure::system(format!("read {}", path.display()), &error);
    if path.as_os_str() == "-" {
        if io::stdin().is_terminal() {
            return Err(Failure::new("standard input is a terminal: expected captured packets"));
        }
        return Input::new(io::stdin()).map(BufReader::new).map_err(unread);
    }
    let file = File::open(path).map_err(unread)?;
    Input::new(file).map(BufReader::new).map_err(unread)
}

/// Creates a file that only its owner may read, since it contains messages.
fn create(path: &Path) -> Result<Writer<BufWriter<File>>, Failure> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path).and_then(|file| Writer::new(BufWriter::new(file)));
    file.map_err(|error| Failure::system(format!("create {}", path.display()), &error))
}

fn unwritten(options: &Options, error: &io::Error) -> Failure {
    let name = options.out.as_deref().unwrap_or_else(|| Path::new("")).display();
    Failure::system(format!("write {name}"), error)
}

const EXAMPLES: &str = "\
Examples:
  tcpdump -i any -s 0 -w calls.pcap port 8002
  polyrpc dump calls.pcap
  polyrpc dump calls.pcapng --proto echo.proto --method 'example.*' --failed
  tcpdump -i any -s 0 -U -w - port 8002 | polyrpc dump - --json
  polyrpc dump calls.pcapng --out calls.rec && polyrpc replay calls.rec --to rpcx://127.0.0.1:8002 --unsafe

Shows the calls of baidu_std, rpcx, fb_rpc, gRPC, gRPC-Web, Connect, HTTP, rest_rpc and net/rpc over TCP, each with its answer and its
duration, until the file ends or Ctrl-C is pressed: the recording of --out is complete then. What cannot be read is noted on standard error: encrypted connections, connections that began before the capture, missing
packets, WebSockets. Answers of plain HTTP within HTTP/2 and messages of brpc's streams are not shown.";
