//! Go's net/rpc by the public API.

mod common;

use std::collections::BTreeMap;

use common::serve;
use polyrpc::{Client, Server};
use serde::Deserialize;

/// A Go client that waits for a list of texts takes no other type, and gives its connection up over one; but what is
/// empty shows none.
#[tokio::test]
async fn empty_results_are_of_their_type() {
    /// What shows no type is in an interface, which an enum is read from, and nothing else.
    #[derive(Debug, Deserialize)]
    enum Interface {}

    let server = serve(
        Server::new()
            .register("names", || async { Vec::<String>::new() })
            .register("bytes", || async { Vec::<u8>::new() })
            .register("ages", || async { BTreeMap::<String, i64>::new() })
            .register("grid", || async { vec![Vec::<i64>::new()] }),
    )
    .await;
    let client = Client::new(&format!("net-rpc://{}", server.address())).unwrap();
    for (name, is) in [("names", "slice"), ("bytes", "bytes"), ("ages", "map"), ("grid", "slice")] {
        let error = client.call::<Interface>(name, &()).await.expect_err("no interface");
        let want = format!("decoding into Interface, received {is}");
        assert!(error.message().ends_with(&want), "{name}: {error}");
    }
    let grid: Vec<Vec<i64>> = client.call("grid", &()).await.unwrap();
    assert_eq!(grid, [Vec::<i64>::new()]);
}
