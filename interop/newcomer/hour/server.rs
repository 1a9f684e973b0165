use std::error::Error;
use std::time::Duration;

use polyrpc::introspection::Health;
use polyrpc::layers::{Metrics, auth};
use polyrpc::server::{Listen, Registration};
use polyrpc::tls::{self, Identity};
use polyrpc::{Context, Server, Status, signal};

mod shop {
    polyrpc::include_proto!("shop");
}

use shop::{PriceReply, PriceRequest, Prices, PricesServer, SlowRequest};

struct Shop;

impl Prices for Shop {
    async fn price(&self, _: &mut Context, request: PriceRequest) -> polyrpc::Result<PriceReply> {
        match request.item.as_str() {
            "tea" => Ok(PriceReply { item: request.item, cents: 250, ..Default::default() }),
            other => Err(Status::not_found(format!("no {other} today")))?,
        }
    }

    async fn slow(&self, _: &mut Context, request: SlowRequest) -> polyrpc::Result<PriceReply> {
        tokio::time::sleep(Duration::from_millis(request.millis.into())).await;
        Ok(PriceReply { item: "patience".into(), ..Default::default() })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let health = Health::new();
    let metrics = Metrics::new();
    let mut server = Server::new()
        .service(PricesServer::new(Shop))
        .health(&health)
        .metrics(&metrics)
        .reflection();
    if let Some(registry) = std::env::args().nth(1) {
        server = server.register_in(polyrpc_discovery::registrar(&registry)?, Registration::new());
    }
    let tls = tls::Server::builder(Identity::new("server.pem", "server.key")).build()?;
    let listen = Listen::on("127.0.0.1:0").tls(tls).authenticate(auth::token("secret"));
    let server = server.bind(listen).await?;
    println!("listening {}", server.address());
    server.run_until(signal::shutdown(), Duration::from_secs(10)).await;
    println!("stopped");
    Ok(())
}
