//! A service without the generated server.

#[polyrpc::service]
trait Greeter {
    async fn greet(&self, name: String) -> polyrpc::Result<String>;
}

struct Polite;

impl Greeter for Polite {
    async fn greet(&self, name: String) -> polyrpc::Result<String> {
        Ok(name)
    }
}

fn main() {
    let _ = polyrpc::Server::new().service(Polite);
}
