//! A shop, in two implementations, and its customers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::fallback::{RawRequest, RawResponse};
use polyrpc::server::ServerHandle;
use polyrpc::{Client, Error, Format, Json, Server, Status};
use polyrpc_gateway::Gateway;
use polyrpc_transform::{Direction, Options, SchemaSource, Schemas, Translator};
use serde_json::{Value, json};

/// A server of the shop.
pub(crate) struct Shop {
    handle: Option<ServerHandle>,
    pub(crate) calls: Arc<AtomicU64>,
    pub(crate) is_broken: Arc<AtomicBool>,
}

impl Shop {
    /// `surcharge`: what it adds to the price of every tenth item.
    pub(crate) async fn start(surcharge: i64) -> Self {
        let calls = Arc::<AtomicU64>::default();
        let is_broken = Arc::<AtomicBool>::default();
        let translators = Arc::new(Translators::new());
        let (counted, broken) = (calls.clone(), is_broken.clone());
        let server = Server::new().fallback(move |mut call: RawRequest| {
            let translators = translators.clone();
            counted.fetch_add(1, Ordering::Relaxed);
            let is_broken = broken.load(Ordering::Relaxed);
            async move {
                if is_broken {
                    return Err(Status::internal("the shop is on fire").into());
                }
                let body = call.body().await?;
                let format = body.format;
                let item = translators.read(body);
                let answer = translators.write(format, &offer(item["id"].as_i64().unwrap_or(0), surcharge));
                let mut response = RawResponse::message(answer.bytes);
                response.format = Some(format);
                Ok(response)
            }
        });
        Self { handle: Some(server.bind("127.0.0.1:0").await.unwrap().start()), calls, is_broken }
    }

    pub(crate) fn address(&self) -> String {
        self.handle.as_ref().unwrap().address().to_string()
    }

    /// Ends it, and all its connections.
    pub(crate) async fn stop(&mut self) {
        self.handle.take().unwrap().shutdown(Duration::ZERO).await;
    }
}

/// The time differs from call to call.
fn offer(id: i64, surcharge: i64) -> Value {
    static CLOCK: AtomicI64 = AtomicI64::new(1);
    let price = id * 3 + if id % 10 == 0 { surcharge } else { 0 };
    let time = CLOCK.fetch_add(1, Ordering::Relaxed);
    json!({ "id": id, "name": format!("item {id}"), "price": price, "time": time })
}

/// Reads and writes the shop's messages in the formats of all protocols.
struct Translators(Schemas);

impl Translators {
    fn new() -> Self {
        let mut schemas = Schemas::new();
        schemas.add_proto(SchemaSource::read_proto(&[proto().into()], &[]).unwrap());
        Self(schemas)
    }

    fn read(&self, body: Body) -> Value {
        let translated = self.translate(Direction::Request, body, Format::Json(Json::Brpc));
        serde_json::from_slice(&translated.bytes).unwrap_or_default()
    }

    fn write(&self, format: Format, offer: &Value) -> Body {
        let json = Body::new(Format::Json(Json::Brpc), offer.to_string().into_bytes());
        self.translate(Direction::Response, json, format)
    }

    fn translate(&self, direction: Direction, body: Body, to: Format) -> Body {
        let schema = self.0.method("shop.Shop/Get", false);
        let translator = Translator::new(direction, body.format, to, &schema, Options::default()).unwrap();
        translator.translate(body).unwrap().body
    }
}

pub(crate) fn proto() -> String {
    format!("{}/tests/traffic/shop.proto", env!("CARGO_MANIFEST_DIR"))
}

/// Customers who call over HTTP with JSON.
#[derive(Clone)]
pub(crate) struct Customers(Client);

impl Customers {
    pub(crate) fn new(gateway: &Gateway) -> Self {
        let url = format!("http://{}", gateway.addresses()[0]);
        Self(Client::builder(&url).timeout(Duration::from_secs(60)).build().unwrap())
    }

    pub(crate) async fn call(&self, method: &str, id: usize) -> Result<Value, Error> {
        let body = Body::new(Format::Json(Json::Brpc), json!({ "id": id }).to_string().into_bytes());
        let response = self.0.call_raw(&format!("shop.Shop/{method}"), body, CallOptions::default()).await?;
        Ok(serde_json::from_slice(&response.message.bytes).unwrap())
    }

    /// Makes this many calls, 16 at a time, of which none may fail.
    pub(crate) async fn shop(&self, calls: usize) {
        let next = Arc::new(AtomicU64::new(0));
        let mut customers = tokio::task::JoinSet::new();
        for _ in 0..16 {
            let (customer, next) = (self.clone(), next.clone());
            customers.spawn(async move {
                loop {
                    let id = next.fetch_add(1, Ordering::Relaxed) as usize;
                    if id >= calls {
                        return;
                    }
                    let offer = customer.call("Get", id).await.unwrap();
                    assert_eq!(offer["id"].as_i64().unwrap_or(0), id as i64);
                }
            });
        }
        customers.join_all().await;
    }
}

/// Reads a page of the admin listener as JSON.
pub(crate) async fn page(gateway: &Gateway, name: &str) -> Value {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let address = gateway.admin_address().unwrap().to_string();
    let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
    let request = format!("GET /{name}?format=json HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    let (_, body) = response.split_once("\r\n\r\n").unwrap();
    let mut page: Value = serde_json::from_str(body).unwrap();
    page["data"].take()
}

/// Waits until a page says what is expected.
pub(crate) async fn wait_for_page(gateway: &Gateway, name: &str, is: impl Fn(&Value) -> bool) -> Value {
    let started = Instant::now();
    loop {
        let page = page(gateway, name).await;
        if is(&page) {
            return page;
        }
        assert!(started.elapsed() < Duration::from_secs(120), "{page:#}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
