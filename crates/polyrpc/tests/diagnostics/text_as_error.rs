//! A function whose error is a text, which serde can write as a value too.

fn main() {
    let _ = polyrpc::Server::new().function("fail", || async { Err::<i32, _>(String::from("no")) });
}
