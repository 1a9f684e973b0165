//! A function whose error type is not an error.

struct Trouble;

fn main() {
    let _ = polyrpc::Server::new().function("fail", || async { Err::<i32, _>(Trouble) });
}
