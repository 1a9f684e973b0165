//! Arguments of our load client, as a command line, and its output, as lines of JSON.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::process::{Child, Done};
use crate::run::REPORT_TIMEOUT;

/// The called method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Method {
    /// `example.EchoService/Echo`
    Echo,
    /// `helloworld.Greeter/SayHello`
    Hello,
    /// `pb.Hello/Say`
    Say,
}

/// Arguments of the client.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct ClientOptions {
    /// The server to call.
    #[arg(long)]
    pub(crate) connect: SocketAddr,
    /// The method to call.
    #[arg(long)]
    pub(crate) method: Method,
    /// Length of an echo's message in bytes.
    #[arg(long, default_value_t = 32)]
    pub(crate) payload: usize,
    /// Number of connections.
    #[arg(long, default_value_t = 1)]
    pub(crate) connections: usize,
    /// Number of callers per connection, with one call in flight each.
    #[arg(long, default_value_t = 1)]
    pub(crate) callers: usize,
    /// Total number of calls of all callers, however long that takes.
    #[arg(long)]
    pub(crate) calls: Option<usize>,
    /// Interval between the calls of a caller, in microseconds; 0: none.
    #[arg(long, default_value_t = 0)]
    pub(crate) every: u64,
    /// Number of metadata entries of an echo, each with a name of its own.
    #[arg(long, default_value_t = 0)]
    pub(crate) metadata: usize,
    /// Whether the values of the metadata are the same in every call, instead of new ones.
    #[arg(long)]
    pub(crate) same: bool,
    /// Warm-up before the window, in milliseconds.
    #[arg(long, default_value_t = 0)]
    pub(crate) warm_up: u64,
    /// Length of the window in milliseconds, if no number of calls is given.
    #[arg(long, default_value_t = 1500)]
    pub(crate) window: u64,
}

/// Output of the client once its connections are open, each has made a call, and it is warm.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ConnectReport {
    /// Duration of opening, including first calls.
    pub(crate) took_ns: u64,
}

impl ClientOptions {
    /// Default: an echo on one connection.
    pub(crate) fn echo(connect: SocketAddr) -> Self {
        Self {
            connect,
            method: Method::Echo,
            payload: 32,
            connections: 1,
            callers: 1,
            calls: None,
            every: 0,
            metadata: 0,
            same: false,
            warm_up: 300,
            window: 1500,
        }
    }

    /// Starts the client and waits until its connections are open.
    pub(crate) fn start(&self) -> io::Result<(Child, ConnectReport)> {
        let client = Child::start(&self.to_arguments())?;
        let connected = client.read_report(Duration::from_millis(self.warm_up) + 2 * REPORT_TIMEOUT)?;
        Ok((client, connected))
    }

    /// Starts the window, and waits for its end.
    pub(crate) fn wait_for_end(&self, client: &Child) -> io::Result<Done> {
        client.read_report(Duration::from_millis(self.window) + 2 * REPORT_TIMEOUT)
    }

    /// The equivalent command line.
    fn to_arguments(&self) -> Vec<String> {
        let method = self.method.to_possible_value().expect("no method is hidden");
        let mut arguments = vec![
            "grpc-client".to_owned(),
            format!("--connect={}", self.connect),
            format!("--method={}", method.get_name()),
            format!("--payload={}", self.payload),
            format!("--connections={}", self.connections),
            format!("--callers={}", self.callers),
            format!("--every={}", self.every),
            format!("--metadata={}", self.metadata),
            format!("--warm-up={}", self.warm_up),
            format!("--window={}", self.window),
        ];
        arguments.extend(self.same.then(|| "--same".to_owned()));
        arguments.extend(self.calls.map(|calls| format!("--calls={calls}")));
        arguments
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    enum Command {
        GrpcClient(ClientOptions),
    }

    #[test]
    fn client_arguments_survive_the_command_line() {
        let address = SocketAddr::from(([127, 0, 0, 1], 8000));
        for calls in [None, Some(20_000)] {
            let options = ClientOptions {
                method: Method::Say,
                connections: 20,
                callers: 3,
                calls,
                every: 7,
                metadata: 20,
                same: calls.is_some(),
                ..ClientOptions::echo(address)
            };
            let arguments = std::iter::once("polyrpc-bench".to_owned()).chain(options.to_arguments());
            let Command::GrpcClient(read) = Command::parse_from(arguments);
            assert_eq!(read, options);
        }
    }
}
