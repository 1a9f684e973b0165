//! Authentication of callers, and an alias of a service. In rpcx's examples these are `102basic/auth` and
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

    // Each protocol carries it in its own place.
    for protocol in ["rpcx", "baidu-std", "grpc", "http"] {
        let url = format!("{protocol}://{}", server.address());
        let authorized = Client::builder(&url).credential("Bearer secret").build()?;
        let product: i64 = authorized.call("Arith/Mul", &(7, 8)).await?;
        let alias: i64 = authorized.call("Old/Times", &(7, 8)).await?;
        let anonymous = Client::new(&url)?;
        let rejected = anonymous.call::<i64>("Arith/Mul", &(7, 8)).await.is_err();
        println!("{protocol}: {product}, by its alias {alias}; rejected without a token: {rejected}");
    }
    Ok(())
}
