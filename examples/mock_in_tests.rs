//! Tests of code that makes calls: with a client that is answered by a closure, or by the real server in the
//! same process.
//!
//!     cargo test -p polyrpc-examples --bin mock_in_tests

use polyrpc::{Client, Protocol, Result, Server};

/// The code under test.
async fn greeting(client: &Client, name: &str) -> Result<String> {
    let language: String = client.call("Users/Language", name).await?;
    Ok(match language.as_str() {
        "zh" => format!("你好，{name}"),
        _ => format!("Hello, {name}"),
    })
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = server().bind("127.0.0.1:0").await?.start();
    let client = server.client(Protocol::Rpcx)?;
    println!("{}", greeting(&client, "Li").await?);
    Ok(())
}

fn server() -> Server {
    Server::new().function("Users/Language", |name: String| async move {
        (if name == "Li" { "zh" } else { "en" }).to_owned()
    })
}

#[cfg(test)]
mod tests {
    use polyrpc::codec::Serde;
    use polyrpc::{Code, Status};

    use super::*;

    #[tokio::test]
    async fn greeting_is_in_the_language_of_the_user() {
        let client = Client::mock(|call| {
            assert_eq!((call.service, call.method), ("Users", "Language"));
            assert_eq!(call.decode::<Serde, String>()?, "Li");
            call.encode_reply::<Serde, _>(&"zh".to_owned())
        });
        assert_eq!(greeting(&client, "Li").await.unwrap(), "你好，Li");
    }

    #[tokio::test]
    async fn failure_reaches_the_caller() {
        let client = Client::mock(|_| Err(Status::not_found("no such user"))?);
        assert_eq!(greeting(&client, "?").await.unwrap_err().code(), Code::NotFound);
    }

    #[tokio::test]
    async fn real_server_answers_in_the_same_process() {
        // Its calls take every step except the network.
        let server = server().bind("127.0.0.1:0").await.unwrap().start();
        let client = server.client(Protocol::BaiduStd).unwrap();
        assert_eq!(greeting(&client, "Ann").await.unwrap(), "Hello, Ann");
    }
}
