//! Functions with which the conversations of rest_rpc were recorded, and the messages that its servers published.

use std::time::Duration;

use polyrpc::codec::ByteString;
use polyrpc::server::Publisher;
use polyrpc::{Result, Server, Status};
use serde::{Deserialize, Serialize};

/// As rest_rpc's examples have it.
#[derive(Debug, Serialize, Deserialize)]
struct Person {
    id: i32,
    name: ByteString,
    age: i32,
}

/// The server with these functions. Numbers have the types of the peer, whose struct_pack tells them apart.
pub(super) fn add_to(server: Server) -> Server {
    let sum = |a: i32, b: i32| async move { a.wrapping_add(b) };
    server
        .function("add", sum)
        .function("dummy_add", sum)
        .function("dummy::add", sum)
        .function("inc", |n: i32| async move { n.wrapping_add(1) })
        .function("half", |n: f64| async move { n / 2.0 })
        .function("zero", || async { 42_i32 })
        .function("hello", |_: ByteString| async {})
        .function("thr", |_: i32| async { Result::<i32>::Err(Status::unknown("boom").into()) })
        .function("get_person", |person: Person| async move {
            Person { age: person.age.wrapping_add(1), ..person }
        })
        .publishing()
}

/// Publishes under the recorded keys, for as long as it is polled.
pub(crate) async fn publish(publisher: Publisher) {
    let mut interval = tokio::time::interval(Duration::from_millis(100));
    loop {
        interval.tick().await;
        for (key, token, text) in [
            ("key", "", "hello from server"),
            ("key", "tok1", "for tok1"),
            ("topic1", "", "hello from server"),
        ] {
            // Encoding a text cannot fail.
            let _ = publisher.publish(key, token, text);
        }
    }
}
