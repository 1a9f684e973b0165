//! A function that is not async.

fn main() {
    let _ = polyrpc::Server::new().register("add", |a: i32, b: i32| a + b);
}
