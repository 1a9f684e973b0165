//! The functions, called as clients call them.

use polyrpc::Client;
use {{crate}}::Person;

#[tokio::test]
async fn functions_answer_over_every_protocol() {
    let server = {{crate}}::server().bind("127.0.0.1:0").await.unwrap().start();
    for protocol in ["baidu-std", "rpcx", "grpc", "http"] {
        let client = Client::new(&format!("{protocol}://{}", server.address())).unwrap();
        let ann = Person { name: "Ann".into(), age: 34 };
        let greeting: String = client.call("hello", &ann).await.unwrap();
        let sum: i64 = client.call("add", &(1, 2)).await.unwrap();
        assert_eq!((greeting.as_str(), sum), ("Hello, Ann", 3), "{protocol}");
    }
}

#[tokio::test]
async fn empty_name_is_rejected() {
    let server = {{crate}}::server().bind("127.0.0.1:0").await.unwrap().start();
    let client = Client::new(&format!("http://{}", server.address())).unwrap();
    let nobody = Person { name: String::new(), age: 0 };
    let error = client.call::<String>("hello", &nobody).await.unwrap_err();
    assert!(error.to_string().contains("there is no name"), "{error}");
}
