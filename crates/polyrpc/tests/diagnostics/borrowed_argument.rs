//! A function that takes a borrowed text.

async fn length(text: &str) -> usize {
    text.len()
}

fn main() {
    let _ = polyrpc::Server::new().function("length", length);
}
