//! Functions as tools of the Model Context Protocol, and as an OpenAPI document.
//!
//! With an address as its argument it keeps running: `… --bin tools_for_agents 127.0.0.1:8000`, for an agent.

use std::time::Duration;

use polyrpc::{Server, Status, signal};
use polyrpc_describe::{OpenApi, OpenApiPage};
use polyrpc_mcp::Mcp;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Order {
    article: String,
    count: u32,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1);
    let server = Server::new()
        .function("Shop/Price", |order: Order| async move {
            match order.article.as_str() {
                "tea" => Ok(3 * order.count),
                other => Err(Status::not_found(format!("there is no {other}"))),
            }
        })
        .function("Shop/Close", || async {});

    let tools = Mcp::builder(["Shop/Price"]).instructions("Prices are in cents.").build()?;
    let page = OpenApiPage::new(OpenApi::new("Shop"), vec!["Shop/Price".parse()?]);
    let server = page.serve(tools.serve(server));
    let running = server.bind(address.as_deref().unwrap_or("127.0.0.1:0")).await?.start();
    let offered = tools.start(&running)?;
    page.start(&running)?;

    for tool in offered.all() {
        println!("{} is a tool: {}", tool.target(), tool.name());
    }
    if address.is_some() {
        println!("tools: http://{}{}", running.address(), tools.path());
        println!("document: http://{}/openapi.json", running.address());
        signal::shutdown().await;
    }
    running.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
