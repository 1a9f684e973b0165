//! What becomes of credentials.

use std::sync::{Arc, Mutex};

use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::fallback::{RawRequest, RawResponse};
use polyrpc::server::{Listen, ServerHandle};
use polyrpc::{Bytes, Client, Format, Server};
use polyrpc_gateway::{Config, Gateway, check};

/// A server that answers with an empty message, and the credentials that it was sent.
async fn server() -> (ServerHandle, Arc<Mutex<Vec<Option<String>>>>) {
    let seen = Arc::<Mutex<Vec<_>>>::default();
    let noted = seen.clone();
    let listen = Listen::on("127.0.0.1:0").authenticate(move |credential, _| {
        let text = credential.map(|credential| String::from_utf8_lossy(credential).into_owned());
        noted.lock().unwrap().push(text);
        Ok(())
    });
    let server = Server::new().fallback(|mut call: RawRequest| async move {
        let format = call.body().await?.format;
        let mut answer = RawResponse::message(Bytes::new());
        answer.format = Some(format);
        Ok(answer)
    });
    (server.bind(listen).await.unwrap().start(), seen)
}

fn configuration(url: &str, credential: &str) -> String {
    format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"a\"\nurl = \"{url}\"\n\
         credential = {credential}\nformat = \"protobuf\"\n[[route]]\nto = \"a\"\n"
    )
}

/// Calls with a credential of the caller's own, and returns those that the server got.
async fn forward_credentials(scheme: &str, credential: &str) -> Vec<Option<String>> {
    let (server, seen) = server().await;
    let text = configuration(&format!("{scheme}://{}", server.address()), credential);
    let gateway = Gateway::start(Config::parse(&text).unwrap()).await.unwrap();
    let client = Client::builder(&format!("grpc://{}", gateway.addresses()[0])).credential("callers-own");
    let client = client.build().unwrap();
    let mut options = CallOptions::default();
    // What rpcx takes for a credential, as plain metadata of another protocol.
    options.metadata.insert("__AUTH", "smuggled");
    let smuggling = Client::new(&format!("baidu-std://{}", gateway.addresses()[0])).unwrap();
    let body = || Body::new(Format::Protobuf, Bytes::new());
    client.call_raw("a.B/C", body(), CallOptions::default()).await.unwrap();
    smuggling.call_raw("a.B/C", body(), options).await.unwrap();
    gateway.shutdown().await;
    std::mem::take(&mut seen.lock().unwrap())
}

#[tokio::test]
async fn upstream_gets_the_configured_credential_instead_of_the_callers() {
    let file = std::env::temp_dir().join(format!("polyrpc-gateway-credential-{}", std::process::id()));
    std::fs::write(&file, "of-the-gateway\n").unwrap();
    let replace = format!("{{ replace = \"file:{}\" }}", file.display());
    for scheme in ["grpc", "rpcx", "baidu-std"] {
        let credentials = forward_credentials(scheme, &replace).await;
        assert!(!credentials.is_empty());
        for credential in credentials {
            assert_eq!(credential.as_deref(), Some("of-the-gateway"), "{scheme}");
        }
    }
    std::fs::remove_file(&file).unwrap();
    // The file is read when the configuration is checked.
    let config = Config::parse(&configuration("grpc://127.0.0.1:1", &replace)).unwrap();
    let problems = check(&config).unwrap_err().to_string();
    assert!(
        problems.starts_with("line 3: cannot read ") && !problems.contains("of-the-gateway"),
        "{problems}"
    );
}

#[tokio::test]
async fn upstream_gets_no_credential_by_default() {
    for scheme in ["grpc", "rpcx", "baidu-std"] {
        let credentials = forward_credentials(scheme, "\"drop\"").await;
        assert!(credentials.iter().all(Option::is_none), "{scheme}: {credentials:?}");
    }
}

#[test]
fn credential_for_a_protocol_without_one_is_refused_when_it_is_checked() {
    let text = configuration("rest-rpc://127.0.0.1:1", "{ replace = \"env:PATH\" }")
        .replace("format = \"protobuf\"\n", "");
    let problems = check(&Config::parse(&text).unwrap()).unwrap_err().to_string();
    assert_eq!(problems, "line 3: invalid argument: rest_rpc has no credentials");
}
