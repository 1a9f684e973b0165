//! A function that returns a borrowed text.

fn main() {
    let _ = polyrpc::Server::new().function("greet", || async { "hello" });
}
