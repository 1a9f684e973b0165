//! A server without free descriptors.

use std::time::Duration;

use polyrpc::Client;
use tokio::net::TcpStream;

use super::cpu_time;
use crate::common::again;
use crate::{ProcessLimits, Server};

/// Descriptors that the server may have.
const DESCRIPTORS: u64 = 64;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_without_free_descriptors_keeps_its_connections_and_recovers() {
    let server =
        Server::start_with(ProcessLimits { descriptors: Some(DESCRIPTORS), ..ProcessLimits::default() });
    let early = Client::new(&format!("rpcx://{}", server.address)).unwrap();
    // The server may close one that is idle, to make room for another: then a call is repeated on a new one.
    let echo = async |client: &Client| again(|| client.call::<String>("Probe/Echo", "x")).await;
    echo(&early).await;

    // The system completes their handshakes, but the server cannot accept the last of them.
    let mut crowd = Vec::new();
    for _ in 0..2 * DESCRIPTORS {
        crowd.push(TcpStream::connect(&server.address).await.unwrap());
    }
    for _ in 0..100 {
        echo(&early).await;
    }
    let before = cpu_time(server.id());
    tokio::time::sleep(SPELL).await;
    let used = cpu_time(server.id()) - before;
    assert!(used < SPELL / 20, "{used:?} of processor time in {SPELL:?} without descriptors");
    echo(&early).await;

    drop(crowd);
    let late = Client::new(&format!("rpcx://{}", server.address)).unwrap();
    echo(&late).await;
    echo(&early).await;
}

/// Long enough that 5 % of it are many ticks of the processor's clock.
const SPELL: Duration = Duration::from_secs(4);
