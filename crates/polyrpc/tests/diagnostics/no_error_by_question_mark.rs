//! A handler that fails with what is no error.

struct Trouble;

fn handler() -> polyrpc::Result<i32> {
    Err(Trouble)?
}

fn main() {
    let _ = handler();
}
