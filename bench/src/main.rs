//! Cost of a call: the floor of the machine, PolyRPC, and the bars between them.
//!
//! One binary has all roles. `polyrpc-bench core` is the parent: it starts a server and a client as
//! separate processes for every run, alternating floor and PolyRPC, and checks their results.
//!
//! In the order of a measurement:
//!
//! 1. [`core`] lists the workloads of `./dev bench core` and their bars; [`suite`] measures such a list,
//!    [`case`] one of it. Separate suites are [`grpc`], with servers of other projects, [`floods`], with attackers,
//!    [`large`], large messages, [`fb`], FlatBuffers and protobuf, [`rest_rpc`], rest_rpc and baidu_std,
//!    [`governance`], a client of several servers and a bare one, [`handlers`], handlers that are not just an echo,
//!    [`gateway`], a gateway and proxies of other projects, [`console`], a server with a console and one without,
//!    [`stream`], with a slow reader, and [`overload`], with more calls than can be answered.
//! 2. [`rounds`] repeats a workload, floor and PolyRPC alternately.
//! 3. [`run`] is one of those runs, [`idle`] the one that measures memory instead of calls.
//! 4. [`process`] is the communication between the parent and its child processes.
//! 5. [`subject`] defines the servers and clients that a process can become.
//! 6. [`floor`] contains the servers and the client that only move bytes; [`load`] makes
//!    calls and times them; [`exchange`] has the bytes of one call in each protocol.
//! 7. [`measure`] reads the clocks and the memory of a process and pins it to a core.
//! 8. [`bar`] defines the limits, [`report`] prints.

mod console;
mod core;
mod fb;
mod floods;
mod gateway;
mod governance;
mod grpc;
mod handlers;
mod large;
mod overload;
mod rest_rpc;
mod stream;
mod suite;

mod case;
mod rounds;

mod idle;
mod run;

mod messages;
mod process;
mod proto;
mod subject;

mod exchange;
mod floor;
mod load;
mod measure;

mod bar;
mod report;

use std::io;
use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match Command::parse().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("polyrpc-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Used by every role, including the floor, which allocates nothing for a call.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures the cost of a call, and the floor of this machine.
#[derive(Debug, Parser)]
#[command(version)]
enum Command {
    /// The bars of the core: floor and PolyRPC alternately, and the ratios between them.
    Core(suite::Options),
    /// FlatBuffers over fb_rpc compared with protobuf over baidu_std.
    Fb(fb::Options),
    /// rest_rpc compared with baidu_std, as in its own benchmark.
    RestRpc(rest_rpc::Options),
    /// The bars of gRPC: PolyRPC compared with tonic, grpc-go and gRPC C++, with the same clients.
    Grpc(grpc::Options),
    /// A well-behaved client next to an attacker, for every known attack on HTTP/2.
    Floods(floods::Options),
    /// Large messages over gRPC compared with baidu_std.
    Large(large::Options),
    /// gRPC calls whose metadata change, compared with tonic and with another build.
    Headers(grpc::HeadersOptions),
    /// Cost of discovery, load balancing and retries, compared with a bare client.
    Governance(governance::Options),
    /// Cost of calls whose handler waits, fails, or is behind layers, compared with an echo.
    Handlers(handlers::Options),
    /// Cost of a console for the calls of the server that it observes, and the time of its pages.
    Console(console::Options),
    /// Calls through a gateway, compared with nghttpx, haproxy, nginx and Envoy.
    Gateway(gateway::Options),
    /// A GiB through one stream, and the memory cost of a slow reader.
    Stream(stream::Options),
    /// A method of known cost under overload.
    Overload(overload::Options),
    /// Serves until its standard input closes; started by the parent, or manually for analysis.
    Server(subject::ServerOptions),
    /// Makes calls in a window that its standard input starts; started by the parent, or manually.
    Client(subject::ClientOptions),
    /// The server of the FlatBuffers suite; started by the parent, or manually.
    FbServer(fb::ServerOptions),
    /// The client of the FlatBuffers suite; started by the parent, or manually.
    FbClient(fb::ClientOptions),
    /// The server of the rest_rpc suite; started by the parent, or manually.
    RestRpcServer(rest_rpc::ServerOptions),
    /// The client of the rest_rpc suite; started by the parent, or manually.
    RestRpcClient(rest_rpc::ClientOptions),
    /// Our server of the gRPC suite; started by the parent, or manually.
    GrpcServer(grpc::ServerOptions),
    /// Our load client of the gRPC suite; started by the parent, or manually.
    GrpcClient(grpc::ClientOptions),
    /// The server of the suite of large messages; started by the parent, or manually.
    LargeServer(large::ServerOptions),
    /// The client of the suite of large messages; started by the parent, or manually.
    LargeClient(large::ClientOptions),
    /// The attacker of the floods suite; started by the parent, or manually.
    FloodsAttacker(floods::AttackerOptions),
    /// The well-behaved client of the floods suite; started by the parent, or manually.
    FloodsVictim(floods::VictimOptions),
    /// A subject of the handlers suite; started by the parent, or manually.
    HandlersSubject(handlers::SubjectOptions),
    /// Our gateway of the gateway suite; started by the parent, or manually.
    GatewayServer(gateway::ServerOptions),
    /// The server of the stream suite; started by the parent, or manually.
    StreamServer,
    /// The slow reader of the stream suite; started by the parent, or manually.
    StreamClient(stream::ClientOptions),
    /// The server of the overload suite; started by the parent, or manually.
    OverloadServer(overload::ServerOptions),
    /// The callers of the overload suite; started by the parent, or manually.
    OverloadCaller(overload::CallerOptions),
}

impl Command {
    fn run(self) -> io::Result<ExitCode> {
        match self {
            Self::Core(options) => core::SUITE.run(&options),
            Self::Fb(options) => fb::run(&options),
            Self::FbServer(options) => fb::serve(&options).map(|()| ExitCode::SUCCESS),
            Self::FbClient(options) => fb::call(&options).map(|()| ExitCode::SUCCESS),
            Self::RestRpc(options) => rest_rpc::run(&options),
            Self::RestRpcServer(options) => rest_rpc::serve(&options).map(|()| ExitCode::SUCCESS),
            Self::RestRpcClient(options) => rest_rpc::call(&options).map(|()| ExitCode::SUCCESS),
            Self::Grpc(options) => grpc::run(&options),
            Self::GrpcServer(options) => grpc::serve(&options).map(|()| ExitCode::SUCCESS),
            Self::GrpcClient(options) => grpc::call(&options).map(|()| ExitCode::SUCCESS),
            Self::Floods(options) => floods::run(&options),
            Self::FloodsAttacker(options) => floods::run_attacker(&options).map(|()| ExitCode::SUCCESS),
            Self::FloodsVictim(options) => floods::run_victim(&options).map(|()| ExitCode::SUCCESS),
            Self::Large(options) => large::run(&options),
            Self::LargeServer(options) => large::serve(&options).map(|()| ExitCode::SUCCESS),
            Self::LargeClient(options) => large::call(&options).map(|()| ExitCode::SUCCESS),
            Self::Headers(options) => grpc::measure_headers(&options),
            Self::Governance(options) => governance::run(&options),
            Self::Handlers(options) => handlers::run(&options),
            Self::HandlersSubject(options) => handlers::serve(&options).map(|()| ExitCode::SUCCESS),
            Self::Console(options) => console::run(&options),
            Self::Gateway(options) => gateway::run(&options),
            Self::GatewayServer(options) => gateway::serve(&options).map(|()| ExitCode::SUCCESS),
            Self::Stream(options) => stream::run(&options),
            Self::StreamServer => stream::serve().map(|()| ExitCode::SUCCESS),
            Self::StreamClient(options) => stream::call(&options).map(|()| ExitCode::SUCCESS),
            Self::Overload(options) => overload::run(&options),
            Self::OverloadServer(options) => overload::serve(&options).map(|()| ExitCode::SUCCESS),
            Self::OverloadCaller(options) => overload::run_caller(&options).map(|()| ExitCode::SUCCESS),
            Self::Server(options) => process::serve(&options).map(|()| ExitCode::SUCCESS),
            Self::Client(options) => process::call(&options).map(|()| ExitCode::SUCCESS),
        }
    }
}
