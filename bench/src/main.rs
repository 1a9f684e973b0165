//! What a call costs: the floor of the machine, PolyRPC, and the bars between them.
//!
//! One binary plays every part. `polyrpc-bench core` is the parent: it starts a server and a client as
//! processes of their own for every run, floor and PolyRPC in turn, and judges what they report.
//!
//! In the order in which a measurement goes:
//!
//! 1. [`core`] lists the workloads of `./dev bench core` and their bars; [`suite`] measures such a list. [`grpc`] is a
//!    suite of its own, beside the servers of others, and so are [`floods`], beside attackers, [`fb`], FlatBuffers beside protobuf,
//!    [`rest_rpc`] beside baidu_std, [`governance`], a client of several servers beside one of one, [`stream`], with a slow reader, and [`overload`], with more callers than can be
//!    answered.
//! 2. [`rounds`] repeats a workload, floor and PolyRPC in turn.
//! 3. [`run`] is one of those runs, [`idle`] the one that counts memory instead of calls.
//! 4. [`process`] is how the parent and the processes it started talk.
//! 5. [`subject`] is who is measured: which server and which client a process becomes.
//! 6. [`floor`] holds the servers and the client that do nothing but move bytes; [`load`] what makes
//!    calls and times them; [`exchange`] the bytes of one call in each protocol.
//! 7. [`measure`] reads the clocks and the memory of a process and pins it to a core.
//! 8. [`bar`] judges, [`report`] prints.

mod core;
mod fb;
mod floods;
mod governance;
mod grpc;
mod overload;
mod rest_rpc;
mod stream;
mod suite;

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

/// Every part runs on it, the floor too, which allocates nothing for a call.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures what a call costs, and the floor below which it cannot go on this machine.
#[derive(Debug, Parser)]
#[command(version)]
enum Command {
    /// The bars of the core: floor and PolyRPC in turn, and the ratios between them.
    Core(suite::Options),
    /// FlatBuffers over fb_rpc beside protobuf over baidu_std.
    Fb(fb::Options),
    /// rest_rpc beside baidu_std, as its own benchmark has it.
    RestRpc(rest_rpc::Options),
    /// The bars of gRPC: ours beside tonic, grpc-go and gRPC C++, under the same clients.
    Grpc(grpc::Options),
    /// A good client beside an attacker, for every attack on HTTP/2 that is known, and what it costs.
    Floods(floods::Options),
    /// What a client pays that finds and chooses its servers and may try again, beside a bare one.
    Governance(governance::Options),
    /// A GiB through one stream, and what a slow reader costs in memory.
    Stream(stream::Options),
    /// A method of known cost, called more often than it can answer.
    Overload(overload::Options),
    /// Serves until its standard input ends; started by the parent, or by hand to look closer.
    Server(subject::ServerOptions),
    /// Makes calls in a window that its standard input opens; started by the parent, or by hand.
    Client(subject::ClientOptions),
    /// The server of the suite of FlatBuffers; started by the parent, or by hand.
    FbServer(fb::ServerOptions),
    /// The client of the suite of FlatBuffers; started by the parent, or by hand.
    FbClient(fb::ClientOptions),
    /// The server of the suite of rest_rpc; started by the parent, or by hand.
    RestRpcServer(rest_rpc::ServerOptions),
    /// The client of the suite of rest_rpc; started by the parent, or by hand.
    RestRpcClient(rest_rpc::ClientOptions),
    /// Our server of the gRPC suite; started by the parent, or by hand.
    GrpcServer(grpc::ServerOptions),
    /// Our load client of the gRPC suite; started by the parent, or by hand.
    GrpcClient(grpc::ClientOptions),
    /// The attacker of the suite of floods; started by the parent, or by hand.
    FloodsAttacker(floods::AttackerOptions),
    /// The good client of the suite of floods; started by the parent, or by hand.
    FloodsVictim(floods::VictimOptions),
    /// The server of the stream; started by the parent, or by hand.
    StreamServer,
    /// The slow reader of the stream; started by the parent, or by hand.
    StreamClient(stream::ClientOptions),
    /// The server of the overload; started by the parent, or by hand.
    OverloadServer(overload::ServerOptions),
    /// The callers of the overload; started by the parent, or by hand.
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
            Self::FloodsAttacker(options) => floods::attack(&options).map(|()| ExitCode::SUCCESS),
            Self::FloodsVictim(options) => floods::be_victim(&options).map(|()| ExitCode::SUCCESS),
            Self::Governance(options) => governance::run(&options),
            Self::Stream(options) => stream::run(&options),
            Self::StreamServer => stream::serve().map(|()| ExitCode::SUCCESS),
            Self::StreamClient(options) => stream::call(&options).map(|()| ExitCode::SUCCESS),
            Self::Overload(options) => overload::run(&options),
            Self::OverloadServer(options) => overload::serve(&options).map(|()| ExitCode::SUCCESS),
            Self::OverloadCaller(options) => overload::call(&options).map(|()| ExitCode::SUCCESS),
            Self::Server(options) => process::serve(&options).map(|()| ExitCode::SUCCESS),
            Self::Client(options) => process::call(&options).map(|()| ExitCode::SUCCESS),
        }
    }
}
