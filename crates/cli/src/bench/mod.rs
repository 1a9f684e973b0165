//! `polyrpc bench`: measures how fast a server answers one method, and at what cost.

mod cpu;
mod interrupt;
mod listener;
mod load;
mod machine;
mod output;
mod report;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use polyrpc::client::{self, ConnectionMode};
use polyrpc::codec::Body;
use polyrpc::rest_rpc::Generation;
use polyrpc::{Client, Code, Protocol, Scope};

use self::load::{Clients, Extent, Load};
use self::output::Output;
use self::report::{Report, Setting};
use crate::call::{self, CommonOptions};
use crate::failure::Failure;
use crate::message::{self, Translator};
use crate::terminal;

#[derive(Debug, Args)]
#[command(after_long_help = CLOSED_LOOP)]
pub(crate) struct Options {
    /// The server, as for `call`
    url: String,
    /// The method, `Service/Method`, or a function's name
    target: String,
    /// The message as JSON; @FILE reads it from a file, - from standard input
    #[arg(value_name = "JSON")]
    argument: Option<String>,
    /// Send a string of this many bytes to example.EchoService/Echo
    #[arg(long, value_name = "N", conflicts_with = "argument")]
    size: Option<usize>,
    #[command(flatten)]
    message: message::Options,
    #[command(flatten)]
    common: CommonOptions,
    /// Number of concurrent calls [default: one per connection]
    #[arg(short, long, value_name = "N", value_parser = positive)]
    callers: Option<usize>,
    /// Number of connections that the callers share, with --kind single
    #[arg(long, value_name = "N", value_parser = positive, conflicts_with = "blocking")]
    connections: Option<usize>,
    /// How callers use connections: shared, one each, or a new one for each call
    #[arg(long, value_enum, default_value = "single")]
    kind: Sharing,
    /// Use one thread per caller, which writes and reads its connection itself
    #[arg(long)]
    blocking: bool,
    /// How long to measure
    #[arg(long, value_name = "TIME", value_parser = terminal::duration, default_value = "5s")]
    duration: Duration,
    /// Number of calls to measure, however long they take
    #[arg(short = 'n', long, value_name = "N", value_parser = positive, conflicts_with = "duration")]
    calls: Option<usize>,
    /// How long to call before the measurement starts
    #[arg(long, value_name = "TIME", value_parser = terminal::duration, default_value = "1s")]
    warmup: Duration,
    /// Also write the results as JSON; - writes them to standard output instead of the report
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sharing {
    Single,
    Pooled,
    Short,
}

pub(crate) fn run(options: Options) -> Result<ExitCode, Failure> {
    let output = Output::open(options.json.as_deref())?;
    let client = options.client()?.build()?;
    let translator = Translator::new(&client, &options.target, &options.message)?;
    if !translator.shape().is_unary() {
        let text = format!("{} streams; only calls of one message each way are measured", options.target);
        return Err(Failure::new(text));
    }
    let request = translator.request(&options.argument()?)?;
    let reply_bytes = options.try_once(translator.target(&options.target), request.clone())?;
    let clients = options.clients(&client)?;
    let setting = Setting {
        url: options.url.clone(),
        target: options.target.clone(),
        format: request.format.as_str(),
        request_bytes: request.bytes.len(),
        reply_bytes,
        clients: clients.to_string(),
        callers: clients.callers(),
        warmup_s: options.warmup.as_secs_f64(),
        command: command_line(env::args()),
    };
    let load = Load {
        target: translator.target(&options.target).to_owned(),
        request,
        warmup: options.warmup,
        extent: match options.calls {
            Some(calls) => Extent::Calls(calls),
            None => Extent::Time(options.duration),
        },
    };
    let figures = load.run(clients, listener::process_behind(&options.url))?;
    let lost = figures.lost.as_ref().map(ToString::to_string);
    let report = Report::new(setting, figures);
    output.show(&report)?;
    match lost {
        Some(lost) => Err(Failure::new(lost)),
        None if report.calls == 0 => Ok(ExitCode::FAILURE),
        None => Ok(ExitCode::SUCCESS),
    }
}

impl Options {
    fn client(&self) -> Result<client::Builder, Failure> {
        let kind = match self.kind {
            Sharing::Single => ConnectionMode::Shared,
            Sharing::Pooled => ConnectionMode::Pooled,
            Sharing::Short => ConnectionMode::Short,
        };
        Ok(self.common.client(&self.url)?.connection_mode(kind))
    }

    fn argument(&self) -> Result<Vec<u8>, Failure> {
        match self.size {
            None => call::argument(self.argument.as_deref()),
            Some(_) if !self.target.ends_with("EchoService/Echo") => {
                Err(Failure::new("--size is for example.EchoService/Echo; give another method its message"))
            }
            Some(size) => Ok(format!(r#"{{"message":"{}"}}"#, "x".repeat(size)).into_bytes()),
        }
    }

    /// Makes one call before the load, to report errors at once and in full. Returns the size of the reply.
    fn try_once(&self, target: &str, request: Body) -> Result<usize, Failure> {
        let options = client::CallOptions::default();
        let called = if self.blocking {
            self.client()?.build_blocking()?.call_raw(target, request, options)
        } else {
            // Discovery, KCP and QUIC need a client with a runtime.
            let client = self.client()?.build()?;
            terminal::block_on(client.call_raw(target, request, options))?
        };
        match called {
            Ok(response) => Ok(response.message.bytes.len()),
            Err(error) => {
                let status = error.status();
                let is_permanent =
                    status.scope() == Scope::Connection || status.code() == Code::Unimplemented;
                if is_permanent { Err(Failure::of_call(status, &self.url)) } else { Ok(0) }
            }
        }
    }

    fn clients(&self, client: &Client) -> Result<Clients, Failure> {
        // HTTP/1 and some versions of rest_rpc do not multiplex calls on a connection: each caller gets its own.
        let side_by_side = client.protocol() != Protocol::Http
            && !client.generation().is_some_and(Generation::is_one_at_a_time);
        let shared = self.kind == Sharing::Single && side_by_side && !self.blocking;
        let connections = self.connections.unwrap_or(1);
        let callers = self.callers.unwrap_or(connections);
        if self.connections.is_some() && !shared {
            return Err(Failure::new(
                "--connections is for calls that share connections; here every caller has its own",
            )
            .with_hint("set the number with --callers"));
        }
        if callers < connections {
            return Err(Failure::new(format!("{callers} callers cannot use {connections} connections")));
        }
        if self.calls.is_some_and(|calls| calls < callers) {
            return Err(Failure::new(format!("there are fewer calls than the {callers} callers")));
        }
        if self.blocking {
            let short = self.kind == Sharing::Short;
            let clients =
                (0..callers).map(|_| Ok(self.client()?.build_blocking()?)).collect::<Result<_, Failure>>()?;
            return Ok(Clients::Blocking { clients, short });
        }
        let clients =
            (0..connections).map(|_| Ok(self.client()?.build()?)).collect::<Result<_, Failure>>()?;
        Ok(match (self.kind, shared) {
            (Sharing::Short, _) => Clients::Short { clients, callers },
            (_, true) => Clients::Shared { clients, callers },
            (_, false) => Clients::Pooled { clients, callers },
        })
    }
}

/// The command line, to repeat the measurement.
fn command_line(arguments: impl Iterator<Item = String>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+,@%".contains(c);
    let quoted = |argument: String| match !argument.is_empty() && argument.chars().all(plain) {
        true => argument,
        false => format!("'{}'", argument.replace('\'', r"'\''")),
    };
    let words: Vec<_> = ["polyrpc".to_owned()].into_iter().chain(arguments.skip(1).map(quoted)).collect();
    words.join(" ")
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "want a number above 0".to_owned())
}

const CLOSED_LOOP: &str = "\
Every caller makes its next call when the last has ended (a closed loop). A server that stalls therefore receives \
fewer calls, and the latencies do not include the waiting of callers that would have called meanwhile (coordinated \
omission): read them as what one caller sees at this rate, not as what independent callers would see.

Latency is measured from the end of a caller's last call to the end of this one. Failed calls are counted by their \
code, and are neither in the rate nor in the latencies.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reported_command_is_quoted_for_a_shell() {
        let words = ["/x/polyrpc", "bench", "rpcx://h:1", "Arith/Mul", r#"{"A":7}"#, "it's", ""];
        assert_eq!(
            command_line(words.into_iter().map(str::to_owned)),
            r#"polyrpc bench rpcx://h:1 Arith/Mul '{"A":7}' 'it'\''s' ''"#
        );
    }
}
