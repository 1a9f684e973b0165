//! rpcx's reflection: the services of a server, as the text of a Go program.

use polyrpc::{Code, Protocol, Result, Server};
use serde::{Deserialize, Serialize};

use crate::common::{ProbeServer, Prober, client, serve, soon};

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Args {
    a: i64,
    names: Vec<String>,
}

#[polyrpc::service(name = "example.Arith")]
trait Arith {
    async fn mul(&self, args: Args) -> Result<u8>;
}

struct Calculator;

impl Arith for Calculator {
    async fn mul(&self, _: Args) -> Result<u8> {
        Ok(0)
    }
}

fn server() -> Server {
    Server::new()
        .service(ArithServer::new(Calculator))
        .service(ProbeServer::new(Prober::default()))
        .reflection()
}

#[tokio::test]
async fn service_is_described_by_name_with_method_types() {
    let server = serve(server()).await;
    for protocol in [Protocol::Rpcx, Protocol::Http] {
        let client = client(protocol, &server);
        let text = soon(client.call::<String>("Reflection/GetService", "example.Arith")).await.unwrap();
        assert_eq!(
            text,
            "package example\n\ntype Arith struct{}\n\n\
             type Args struct {\n\tA int64\n\tNames []string\n}\n\n\
             type (s *Arith) Mul(ctx context.Context, arg *Args, reply *uint8) error {\n\treturn nil\n}\n"
        );
    }
    let client = client(Protocol::Rpcx, &server);
    let unknown = soon(client.call::<String>("Reflection/GetService", "Nope")).await;
    assert_eq!(unknown.unwrap_err().message(), "not found service Nope");
}

#[tokio::test]
async fn all_services_are_described_at_once() {
    let server = serve(server()).await;
    let client = client(Protocol::Rpcx, &server);
    let text = soon(client.call::<String>("Reflection/GetServices", "")).await.unwrap();
    assert_eq!(text.matches("package ").count(), 1);
    for words in [
        "type (s *Arith) Mul(",
        "type (s *Probe) Echo(ctx context.Context, arg *string, reply *string) error",
    ] {
        assert!(text.contains(words), "{text}");
    }
}

#[tokio::test]
async fn user_service_with_the_reserved_name_is_kept() {
    let server =
        Server::new().function("Reflection/GetService", |name: String| async move { name }).reflection();
    let server = serve(server).await;
    let client = client(Protocol::Rpcx, &server);
    assert_eq!(soon(client.call::<String>("Reflection/GetService", "mine")).await.unwrap(), "mine");
}

#[tokio::test]
async fn reflection_is_off_by_default() {
    let server = serve(Server::new().service(ArithServer::new(Calculator))).await;
    let client = client(Protocol::Rpcx, &server);
    let asked = soon(client.call::<String>("Reflection/GetService", "example.Arith")).await;
    assert_eq!(asked.unwrap_err().code(), Code::Unimplemented);
}
