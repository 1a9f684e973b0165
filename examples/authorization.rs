//! Callers that prove who they are, and a service by another name. In rpcx's examples these are `102basic/auth` and
//! `alias`.

use polyrpc::layers::auth;
use polyrpc::server::Listen;
use polyrpc::{Client, Result, Server};

#[tokio::main]
async fn main() -> Result<()> {
    let server = Server::new()
        .function("Arith/Mul", |a: i64, b: i64| async move { a * b })
        // Callers of the old name need not change.
        .alias("a.b.c.D", "Arith")
        .alias_method("Old/Times", "Arith/Mul")
        .bind(Listen::on("127.0.0.1:0").authenticate(auth::token("secret")))
        .await?
        .start();

    // It travels where each protocol has its place for it.
    for protocol in ["rpcx", "baidu-std", "grpc", "http"] {
        let url = format!("{protocol}://{}", server.address());
        let known = Client::builder(&url).credential("Bearer secret").build()?;
        let product: i64 = known.call("Arith/Mul", &(7, 8)).await?;
        let alias: i64 = known.call("Old/Times", &(7, 8)).await?;
        let stranger = Client::new(&url)?;
        let refused = stranger.call::<i64>("Arith/Mul", &(7, 8)).await.is_err();
        println!("{protocol}: {product}, by another name {alias}; a stranger is refused: {refused}");
    }
    Ok(())
}
