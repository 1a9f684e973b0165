//! A function that is not async.

fn main() {
    let _ = polyrpc::Server::new().function("add", |a: i32, b: i32| a + b);
}
