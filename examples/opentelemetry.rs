//! Spans and durations of calls, sent by OTLP to a collector such as that of OpenTelemetry, or Jaeger (OTLP over gRPC).
//!
//! The first argument is the collector's address; without one it is `http://127.0.0.1:4317`.

use opentelemetry::metrics::MeterProvider;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{MetricExporter, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use polyrpc::{Client, Result, Server, Status, Streaming};
use polyrpc_otel::OpenTelemetry;

#[polyrpc::service]
trait Shop {
    /// Price of an item.
    async fn price(&self, thing: String) -> Result<u64>;

    /// All items.
    async fn things(&self) -> Result<Streaming<String>>;
}

struct Teas;

impl Shop for Teas {
    async fn price(&self, thing: String) -> Result<u64> {
        match thing.as_str() {
            "green" => Ok(3),
            "black" => Ok(4),
            _ => Err(Status::not_found(format!("no {thing} tea")).into()),
        }
    }

    async fn things(&self) -> Result<Streaming<String>> {
        Ok(Streaming::from_iter(["green", "black"].map(str::to_owned)))
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let collector = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:4317".to_owned());
    let (spans, durations) = providers(&collector)?;
    // One layer for servers and clients of every protocol.
    let telemetry = OpenTelemetry::new(spans.tracer("shop")).meter(&durations.meter("shop"));
    shop(telemetry).await?;
    // Sends what has not been sent yet. Blocks.
    tokio::task::spawn_blocking(move || spans.shutdown().and(durations.shutdown())).await??;
    Ok(())
}

/// The providers that collect spans and durations, and send them to the collector.
fn providers(collector: &str) -> Result<(SdkTracerProvider, SdkMeterProvider)> {
    let resource = Resource::builder().with_service_name("shop").build();
    let exporter = SpanExporter::builder().with_tonic().with_endpoint(collector).build()?;
    let spans = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.clone());
    let exporter = MetricExporter::builder().with_tonic().with_endpoint(collector).build()?;
    let durations = SdkMeterProvider::builder().with_periodic_exporter(exporter).with_resource(resource);
    Ok((spans.build(), durations.build()))
}

/// Price of several items.
async fn order(shop: ShopClient, thing: String, pieces: u64) -> Result<u64> {
    Ok(shop.price(thing).await? * pieces)
}

type Telemetry = OpenTelemetry<opentelemetry_sdk::trace::SdkTracer>;

/// Serves and calls.
async fn shop(telemetry: Telemetry) -> Result<()> {
    let teas = Server::new().service(ShopServer::new(Teas)).layer(telemetry.clone());
    let teas = teas.bind("127.0.0.1:0").await?.start();
    let shop = Client::builder(&format!("grpc://{}", teas.address())).layer(telemetry.clone()).build()?;
    let shop = ShopClient::new(shop);

    // Its calls are children of the call that it serves, over another protocol.
    let asked = shop.clone();
    let order = move |thing, pieces| order(asked.clone(), thing, pieces);
    let orders = Server::new().function("order", order).layer(telemetry.clone());
    let orders = orders.bind("127.0.0.1:0").await?.start();
    let till = Client::builder(&format!("rpcx://{}", orders.address())).layer(telemetry).build()?;

    let costs: u64 = till.call("order", &("green", 2)).await?;
    println!("two green teas: {costs}");
    let failure = shop.price("blue".into()).await.unwrap_err();
    println!("a blue one: {}", failure.message());
    let mut things = shop.things().await?;
    while let Some(thing) = things.message().await? {
        println!("there is {thing} tea");
    }
    Ok(())
}
