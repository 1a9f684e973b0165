//! The functions, for the server and for the tests.

use polyrpc::introspection::Health;
use polyrpc::{Result, Server, Status};
use serde::{Deserialize, Serialize};

/// A person to greet. Any serde type can be an argument or a result.
#[derive(Debug, Serialize, Deserialize)]
pub struct Person {
    pub name: String,
    pub age: u32,
}

/// Greets by name.
pub async fn hello(person: Person) -> Result<String> {
    if person.name.is_empty() {
        return Err(Status::invalid_argument("there is no name"))?;
    }
    Ok(format!("Hello, {}", person.name))
}

/// The server, with gRPC's health service.
pub fn server() -> Server {
    Server::new()
        .function("hello", hello)
        .function("add", |a: i64, b: i64| async move { a.wrapping_add(b) })
        .health(&Health::new())
}
