//! What a caller sees of a failure, and a layer used on both sides.

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::Arc;

use polyrpc::layer::{Call, Layer, Next, Outcome, Side};
use polyrpc::{Client, Code, Result, Server, Status};

/// Looks up a user and returns the age.
async fn age(name: String) -> Result<u32> {
    let users = HashMap::from([("ann", "34"), ("bob", "unknown")]);
    // For the caller: a code and a text.
    let found = users.get(name.as_str()).ok_or_else(|| Status::not_found(format!("no user {name}")))?;
    // Not for the caller: the text of any other error stays here.
    Ok(found.parse()?)
}

/// On a client it sends the tenant of the calls, on a server it accepts only calls of that tenant.
struct Tenant(&'static str);

impl Layer for Tenant {
    async fn call(self: Arc<Self>, mut call: Call, next: Next) -> Outcome {
        if call.side() == Side::Client {
            call.metadata_mut().insert("tenant", self.0);
        } else if call.metadata().get("tenant") != Some(self.0) {
            return Outcome::failed(Status::permission_denied("who are you?"));
        }
        next.call(call).await
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = Server::new().function("age", age).layer(Tenant("acme"));
    let server = server.bind("127.0.0.1:0").await?.start();
    // rpcx would carry the text without the code: docs/protocols lists what each protocol carries.
    let url = format!("grpc://{}", server.address());

    let client = Client::builder(&url).layer(Tenant("acme")).build()?;
    println!("ann is {}", client.call::<u32>("age", "ann").await?);

    let failure = client.call::<u32>("age", "joe").await.unwrap_err();
    assert_eq!(failure.code(), Code::NotFound);
    println!("joe: {}", failure.message());
    let failure = client.call::<u32>("age", "bob").await.unwrap_err();
    println!("bob: {}", failure.message());

    let other = Client::builder(&url).layer(Tenant("other")).build()?;
    println!("other tenant: {}", other.call::<u32>("age", "ann").await.unwrap_err().message());

    // The local cause is the source.
    let nobody = Client::new("rpcx://127.0.0.1:1")?;
    let failure = nobody.call::<u32>("age", "ann").await.unwrap_err();
    println!(
        "nobody: {:?}",
        failure.source().and_then(|cause| cause.downcast_ref()).map(std::io::Error::kind)
    );
    Ok(())
}
