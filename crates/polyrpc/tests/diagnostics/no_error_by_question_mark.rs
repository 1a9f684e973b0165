//! A handler that fails with a value that is not an error.

struct Trouble;

fn handler() -> polyrpc::Result<i32> {
    Err(Trouble)?
}

fn main() {
    let _ = handler();
}
