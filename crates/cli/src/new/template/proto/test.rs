//! The service, called as clients call it.

use polyrpc::{Client, Code};
use {{crate}}::greeter::{GreeterClient, HelloRequest};

#[tokio::test]
async fn greeter_answers_over_every_protocol() {
    let server = {{crate}}::server().bind("127.0.0.1:0").await.unwrap().start();
    for protocol in ["grpc", "connect", "baidu-std", "rpcx", "http"] {
        let client = Client::new(&format!("{protocol}://{}", server.address())).unwrap();
        let request = HelloRequest { name: "Ann".into(), ..Default::default() };
        let reply = GreeterClient::new(client).hello(request).await.unwrap();
        assert_eq!(reply.message, "Hello, Ann", "{protocol}");
    }
}

#[tokio::test]
async fn empty_name_is_rejected() {
    let server = {{crate}}::server().bind("127.0.0.1:0").await.unwrap().start();
    let client = Client::new(&format!("grpc://{}", server.address())).unwrap();
    let error = GreeterClient::new(client).hello(HelloRequest::default()).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
}
