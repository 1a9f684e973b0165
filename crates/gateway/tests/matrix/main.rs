//! Calls every family of upstreams through the gateway, by callers of every family. The table in `docs/gateway-matrix.md` is
//! what this test finds; `UPDATE=1` writes it.

mod backend;
mod caller;
mod table;

use std::path::PathBuf;

use polyrpc_gateway::{Config, Gateway};

use backend::Backend;
use caller::Caller;
use table::Table;

/// Families of protocols: name, and what follows the address in a client's URL.
const FAMILIES: [(&str, &str, &str); 10] = [
    ("baidu_std", "baidu-std", ""),
    ("rpcx", "rpcx", ""),
    ("gRPC", "grpc", ""),
    ("gRPC-Web", "grpc-web", ""),
    ("Connect", "connect", ""),
    ("HTTP JSON", "http", ""),
    ("JSON-RPC", "http", "?dialect=json-rpc"),
    ("net/rpc", "net-rpc", ""),
    ("rest_rpc", "rest-rpc", ""),
    ("fb_rpc", "fb-rpc", ""),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_pair_of_protocols_gives_the_result_or_the_refusal_of_the_table() {
    let backend = Backend::start().await;
    let mut table = Table::new(FAMILIES.map(|(name, ..)| name));
    for (column, (_, scheme, query)) in FAMILIES.iter().enumerate() {
        let gateway = Gateway::start(config(&format!("{scheme}://{}{query}", backend.address()), scheme))
            .await
            .unwrap();
        let address = gateway.addresses()[0].to_string();
        for (row, (_, scheme, query)) in FAMILIES.iter().enumerate() {
            let caller = Caller::new(scheme, &address, query);
            for (case, cell) in caller.cases(&backend).await {
                table.set(case, row, column, cell);
            }
        }
        gateway.shutdown().await;
    }
    table.compare(&root().join("docs/gateway-matrix.md"));
}

fn config(url: &str, scheme: &str) -> Config {
    let folder = root().join("crates/gateway/tests/matrix");
    let service = if scheme == "rest-rpc" { "" } else { "test.Echo" };
    let text = format!(
        r#"
            [schema]
            proto = ["{folder}/echo.proto"]
            include = ["{folder}"]
            fbs = ["{folder}/echo.fbs"]
            functions = ["Echo(string) -> string", "Fail(string) -> string"]
            [[listen]]
            address = "127.0.0.1:0"
            [[upstream]]
            name = "backend"
            url = "{url}"
            [[route]]
            to = "backend"
            rename = {{ service = "{service}" }}
        "#,
        folder = folder.display()
    );
    Config::parse(&text).unwrap()
}

fn root() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", ".."].iter().collect()
}
