//! The measured subjects: the servers and clients that a process can become.
//!
//! This is the interface between the harness and its subjects. A server is a function that serves
//! on its own threads and returns its address; a client is a [`Load`]. To add a subject: a kind of
//! server and of client here, and its [`setup`](Subject::setup).

mod polyrpc_client;
mod polyrpc_server;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::exchange::{Exchange, Protocol};
use crate::floor;
use crate::load::{Epoll, Idle, Load};

/// The measured subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Subject {
    /// The same bytes without any RPC.
    Floor,
    /// This project.
    Polyrpc,
}

/// How calls are made; each is a usage pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Shape {
    /// One call in flight, made by the waiting thread.
    Blocking,
    /// This many callers in closed loops share one connection.
    Shared(usize),
    /// This many calls are kept in flight on one connection.
    Outstanding(usize),
    /// This many connections with one call in flight each, with the raw load client.
    Connections(usize),
    /// This many connections that never send anything.
    Silent(usize),
    /// This many connections that are idle after one call.
    Idle(usize),
}

/// The programs of a subject in a workload, and the client's number of calls in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    pub(crate) server: ServerKind,
    pub(crate) client: ClientKind,
    pub(crate) connections: usize,
    pub(crate) in_flight: usize,
    /// Whether the floor's frames are used instead of the protocol's.
    pub(crate) floor_frames: bool,
}

impl Subject {
    /// The programs of this subject in a workload of this shape; `None` if this build has none.
    pub(crate) fn setup(self, shape: Shape) -> Option<Setup> {
        match self {
            Self::Floor => Some(floor_setup(shape)),
            Self::Polyrpc => Some(polyrpc_setup(shape)),
        }
    }
}

fn floor_setup(shape: Shape) -> Setup {
    let (server, client, connections, in_flight) = match shape {
        Shape::Blocking => (ServerKind::FloorBlocking, ClientKind::FloorBlocking, 1, 1),
        Shape::Shared(calls) | Shape::Outstanding(calls) => {
            (ServerKind::FloorEpoll, ClientKind::Epoll, 1, calls)
        }
        Shape::Connections(connections) => (ServerKind::FloorEpoll, ClientKind::Epoll, connections, 1),
        Shape::Silent(connections) => (ServerKind::FloorEpoll, ClientKind::Silent, connections, 0),
        Shape::Idle(connections) => (ServerKind::FloorEpoll, ClientKind::Idle, connections, 0),
    };
    Setup { server, client, connections, in_flight, floor_frames: true }
}

fn polyrpc_setup(shape: Shape) -> Setup {
    let (client, connections, in_flight) = match shape {
        Shape::Blocking => (ClientKind::PolyrpcBlocking, 1, 1),
        Shape::Shared(calls) | Shape::Outstanding(calls) => (ClientKind::PolyrpcShared, 1, calls),
        Shape::Connections(connections) => (ClientKind::Epoll, connections, 1),
        Shape::Silent(connections) => (ClientKind::Silent, connections, 0),
        Shape::Idle(connections) => (ClientKind::Idle, connections, 0),
    };
    Setup { server: ServerKind::Polyrpc, client, connections, in_flight, floor_frames: false }
}

/// The servers a process can become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServerKind {
    /// The floor's frames, one thread per connection.
    FloorBlocking,
    /// The floor's frames, one thread with epoll.
    FloorEpoll,
    /// PolyRPC's server, one thread.
    Polyrpc,
}

/// The clients a process can become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientKind {
    /// The floor's frames, one call in flight.
    FloorBlocking,
    /// PolyRPC's blocking client, one call in flight.
    PolyrpcBlocking,
    /// Callers that share one connection of PolyRPC's client, on one thread.
    PolyrpcShared,
    /// The raw load client, in the frames of either the floor or a protocol.
    Epoll,
    /// Connections that never send anything.
    Silent,
    /// Connections that are idle after one call.
    Idle,
}

/// Arguments of a server.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct ServerOptions {
    /// The kind of server.
    #[arg(long)]
    pub(crate) kind: ServerKind,
    /// Address to listen on; port 0 selects a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// The protocol whose frame lengths the floor uses.
    #[arg(long)]
    pub(crate) protocol: Protocol,
    /// Length of the message in bytes.
    #[arg(long)]
    pub(crate) payload: usize,
    /// The core to run on.
    #[arg(long)]
    pub(crate) core: Option<usize>,
}

impl ServerOptions {
    /// Serves on its own threads until the process ends; returns its address.
    pub(crate) fn start(&self) -> io::Result<SocketAddr> {
        let reply_len = || self.protocol.floor_exchange(self.payload).reply.len();
        match self.kind {
            ServerKind::FloorBlocking => floor::serve_blocking(self.listen, reply_len()),
            ServerKind::FloorEpoll => floor::serve_epoll(self.listen, reply_len()),
            ServerKind::Polyrpc => polyrpc_server::serve(self.listen),
        }
    }

    /// The equivalent command line.
    pub(crate) fn to_arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "server".to_owned(),
            format!("--kind={}", to_argument(self.kind)),
            format!("--listen={}", self.listen),
            format!("--protocol={}", to_argument(self.protocol)),
            format!("--payload={}", self.payload),
        ];
        arguments.extend(self.core.map(|core| format!("--core={core}")));
        arguments
    }
}

/// Arguments of a client.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct ClientOptions {
    /// The kind of client.
    #[arg(long)]
    pub(crate) kind: ClientKind,
    /// The server to call.
    #[arg(long)]
    pub(crate) connect: SocketAddr,
    /// The protocol, or that whose frame lengths the floor uses.
    #[arg(long)]
    pub(crate) protocol: Protocol,
    /// Use the floor's frames instead of the protocol's.
    #[arg(long)]
    pub(crate) floor_frames: bool,
    /// Length of the message in bytes.
    #[arg(long)]
    pub(crate) payload: usize,
    /// Number of connections.
    #[arg(long, default_value_t = 1)]
    pub(crate) connections: usize,
    /// Number of calls in flight on each.
    #[arg(long, default_value_t = 1)]
    pub(crate) in_flight: usize,
    /// Warm-up before the window, in milliseconds.
    #[arg(long, default_value_t = 500)]
    pub(crate) warm_up: u64,
    /// Length of the window, in milliseconds.
    #[arg(long, default_value_t = 1500)]
    pub(crate) window: u64,
    /// The core to run on.
    #[arg(long)]
    pub(crate) core: Option<usize>,
}

impl ClientOptions {
    /// Builds the client and opens its connections.
    pub(crate) fn connect(&self) -> io::Result<Box<dyn Load>> {
        let exchange = self.exchange();
        Ok(match self.kind {
            ClientKind::FloorBlocking => Box::new(floor::Blocking::connect(self.connect, &exchange)?),
            ClientKind::PolyrpcBlocking => {
                Box::new(polyrpc_client::Blocking::connect(self.connect, self.protocol, self.payload)?)
            }
            ClientKind::PolyrpcShared => Box::new(polyrpc_client::Shared::connect(
                self.connect,
                self.protocol,
                self.payload,
                self.in_flight,
            )?),
            ClientKind::Epoll => {
                Box::new(Epoll::connect(self.connect, &exchange, self.connections, self.in_flight)?)
            }
            ClientKind::Silent => Box::new(Idle::connect(self.connect, self.connections, None)?),
            ClientKind::Idle => Box::new(Idle::connect(self.connect, self.connections, Some(&exchange))?),
        })
    }

    /// The warm-up time.
    pub(crate) fn warm_up(&self) -> Duration {
        Duration::from_millis(self.warm_up)
    }

    /// The length of the window.
    pub(crate) fn window(&self) -> Duration {
        Duration::from_millis(self.window)
    }

    fn exchange(&self) -> Exchange {
        if self.floor_frames {
            self.protocol.floor_exchange(self.payload)
        } else {
            self.protocol.exchange(self.payload)
        }
    }

    /// The equivalent command line.
    pub(crate) fn to_arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "client".to_owned(),
            format!("--kind={}", to_argument(self.kind)),
            format!("--connect={}", self.connect),
            format!("--protocol={}", to_argument(self.protocol)),
            format!("--payload={}", self.payload),
            format!("--connections={}", self.connections),
            format!("--in-flight={}", self.in_flight),
            format!("--warm-up={}", self.warm_up),
            format!("--window={}", self.window),
        ];
        arguments.extend(self.floor_frames.then(|| "--floor-frames".to_owned()));
        arguments.extend(self.core.map(|core| format!("--core={core}")));
        arguments
    }
}

/// Spelling of a value on the command line.
fn to_argument(value: impl ValueEnum) -> String {
    value.to_possible_value().expect("no kind is hidden").get_name().to_owned()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    enum Command {
        Server(ServerOptions),
        Client(ClientOptions),
    }

    #[test]
    fn server_arguments_survive_the_command_line() {
        let options = ServerOptions {
            kind: ServerKind::FloorEpoll,
            listen: SocketAddr::from(([127, 0, 0, 1], 8000)),
            protocol: Protocol::BaiduStd,
            payload: 1024,
            core: Some(1),
        };
        let Command::Server(read) = parse(options.to_arguments()) else { panic!("not a server") };
        assert_eq!(read, options);
    }

    #[test]
    fn client_arguments_survive_the_command_line() {
        let options = ClientOptions {
            kind: ClientKind::Epoll,
            connect: SocketAddr::from(([127, 0, 0, 1], 8000)),
            protocol: Protocol::Rpcx,
            floor_frames: true,
            payload: 32,
            connections: 20,
            in_flight: 3,
            warm_up: 100,
            window: 200,
            core: None,
        };
        let Command::Client(read) = parse(options.to_arguments()) else { panic!("not a client") };
        assert_eq!(read, options);
    }

    fn parse(arguments: Vec<String>) -> Command {
        Command::parse_from(std::iter::once("polyrpc-bench".to_owned()).chain(arguments))
    }
}
