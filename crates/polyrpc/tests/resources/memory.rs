//! A server whose process may have little memory.

use std::time::Duration;

use polyrpc::{Client, Code};
use tokio::task::JoinSet;

use crate::common::soon;
use crate::{ProcessLimits, Server};

/// Bytes that the process may have in all, of which the server's budget is an eighth.
const PROCESS: u64 = 512 << 20;
const BUDGET: usize = (PROCESS / 8) as usize;
/// Bytes of a message: all of them together would be more than the process may have.
const LARGE: usize = 16 << 20;
const CALLERS: usize = 64;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_with_little_memory_rejects_what_it_cannot_hold_and_answers_the_rest() {
    let limited = ProcessLimits { memory: Some(PROCESS), budget: Some(BUDGET), ..ProcessLimits::default() };
    let server = Server::start_with(limited);
    let url = format!("rpcx://{}", server.address);
    let small = Client::builder(&url).idempotent().timeout(Duration::from_secs(60)).build().unwrap();
    soon(small.call::<String>("Probe/Echo", "x")).await.unwrap();

    let large = "x".repeat(LARGE);
    let mut calls = JoinSet::new();
    for _ in 0..CALLERS {
        // A connection each: otherwise they would wait for each other.
        let client = Client::builder(&url).timeout(Duration::from_secs(60)).build().unwrap();
        let large = large.clone();
        calls.spawn(async move { client.call::<String>("Probe/Echo", &large).await.map(|text| text.len()) });
    }
    let (mut answered, mut rejected) = (0, 0);
    let patience = tokio::time::timeout(Duration::from_secs(120), async {
        loop {
            tokio::select! {
                ended = calls.join_next() => match ended {
                    None => return,
                    Some(ended) => match ended.unwrap() {
                        Ok(length) => {
                            assert_eq!(length, LARGE);
                            answered += 1;
                        }
                        Err(error) => {
                            // Rejected, or closed while its message waited for room.
                            let expected = [Code::ResourceExhausted, Code::Unavailable];
                            assert!(expected.contains(&error.code()), "{error}");
                            rejected += 1;
                        }
                    }
                },
                // Small calls go on all the time.
                echoed = small.call::<String>("Probe/Echo", "x") => assert_eq!(echoed.unwrap(), "x"),
            }
        }
    });
    patience.await.expect("every call ends");
    assert_eq!(answered + rejected, CALLERS);
    assert!(rejected > 0, "the limit was not reached");
    soon(small.call::<String>("Probe/Echo", "x")).await.unwrap();
}
