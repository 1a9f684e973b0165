//! Allocations of a call of the suite `fb`: a line of JSON for each kind of message and size. A separate program, since
//! the counting allocator would slow the other suites down.

#[path = "../messages.rs"]
mod messages;

use std::alloc::System;

use polyrpc::codec::{Body, Codec, FlatBuffers, Protobuf};
use polyrpc::flatbuffers::Message;
use polyrpc::{Client, Format, Protocol, Server};
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::messages::{fbs, pb};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SIZES: [usize; 3] = [0, 1024, 8192];
const CALLS: usize = 2_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> polyrpc::Result<()> {
    for size in SIZES {
        let text = "A".repeat(size);
        let protobuf = protobuf(&text).await?;
        let flatbuffers = flatbuffers(&text).await?;
        for (messages, (a_call, reading)) in [("protobuf", protobuf), ("flatbuffers", flatbuffers)] {
            println!(
                "{}",
                json!({ "messages": messages, "size": size, "a_call": a_call, "reading": reading })
            );
        }
    }
    Ok(())
}

async fn protobuf(text: &str) -> polyrpc::Result<(f64, f64)> {
    let server = bind(Server::new().service(pb::BenchmarkServiceServer::new(pb::Echo))).await?;
    let stub = pb::BenchmarkServiceClient::new(connect(&server, Protocol::BaiduStd)?);
    let call = async || stub.test(pb::request(text)).await.map(|reply| assert!(pb::is_right(&reply, text)));
    let encoded = Protobuf::encode(&pb::request(text), Format::Protobuf, None)?;
    let read = || {
        <Protobuf as Codec<pb::BenchmarkRequest>>::decode(Body::new(Format::Protobuf, encoded.clone()), None)
    };
    Ok((measure_call(call).await?, measure_reading(read)?))
}

async fn flatbuffers(text: &str) -> polyrpc::Result<(f64, f64)> {
    let server = bind(Server::new().service(fbs::BenchmarkServiceServer::new(fbs::Echo))).await?;
    let stub = fbs::BenchmarkServiceClient::new(connect(&server, Protocol::FbRpc)?);
    let call = async || stub.test(fbs::request(text)).await.map(|reply| assert!(fbs::is_right(&reply, text)));
    let encoded = fbs::request(text).into_bytes();
    let read = || -> Result<Message<fbs::BenchmarkRequest>, _> {
        FlatBuffers::decode(Body::new(Format::FlatBuffers, encoded.clone()), None)
    };
    Ok((measure_call(call).await?, measure_reading(read)?))
}

async fn bind(server: Server) -> polyrpc::Result<polyrpc::server::ServerHandle> {
    let bound = server.bind("127.0.0.1:0").await;
    Ok(bound.map_err(|error| polyrpc::Status::unavailable(error.to_string()))?.start())
}

fn connect(server: &polyrpc::server::ServerHandle, protocol: Protocol) -> polyrpc::client::Result<Client> {
    Client::new(&format!("{}://{}", protocol.as_str(), server.address()))
}

/// Allocations of one call, client and server together, after warm-up.
async fn measure_call(call: impl AsyncFn() -> polyrpc::client::Result<()>) -> polyrpc::Result<f64> {
    for _ in 0..100 {
        call().await?;
    }
    let region = Region::new(ALLOCATOR);
    for _ in 0..CALLS {
        call().await?;
    }
    Ok(allocations_per_call(&region))
}

/// Allocations of reading one request whose buffer is already shared.
fn measure_reading<T>(read: impl Fn() -> Result<T, polyrpc::Status>) -> polyrpc::Result<f64> {
    read()?;
    let region = Region::new(ALLOCATOR);
    for _ in 0..CALLS {
        read()?;
    }
    Ok(allocations_per_call(&region))
}

fn allocations_per_call(region: &Region<'_, System>) -> f64 {
    let change = region.change();
    (change.allocations + change.reallocations) as f64 / CALLS as f64
}
