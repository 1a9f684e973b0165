//! A service from a `.proto` whose `google.api.http` options say how plain HTTP calls it.

// build.rs wrote it from shelf.proto.
#[allow(warnings)]
mod shelf {
    polyrpc::include_proto!("shelf");
}

use polyrpc::{Client, Context, Result, Server, Status};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::shelf::{Book, CreateBookRequest, GetBookRequest, Shelf, ShelfClient, ShelfServer};

struct Books;

impl Shelf for Books {
    async fn get_book(&self, _: &mut Context, request: GetBookRequest) -> Result<Book> {
        match request.name.as_str() {
            "books/1" => {
                let pages = if request.with_pages { 312 } else { 0 };
                Ok(Book { name: request.name, title: "Snow Country".into(), pages, ..Default::default() })
            }
            name => Err(Status::not_found(format!("there is no {name}")))?,
        }
    }

    async fn create_book(&self, _: &mut Context, request: CreateBookRequest) -> Result<Book> {
        Ok(Book { name: "books/2".into(), title: request.book.title.clone(), ..Default::default() })
    }
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let server = Server::new().service(ShelfServer::new(Books)).bind("127.0.0.1:0").await?.start();
    let address = server.address().to_string();

    println!("{}", http(&address, "GET /v1/books/1?with_pages=true", "").await?);
    println!("{}", http(&address, "POST /v1/books", r#"{"title":"Kokoro"}"#).await?);
    println!("{}", http(&address, "GET /v1/books/9", "").await?);

    let shelf = ShelfClient::new(Client::new(&format!("grpc://{address}"))?);
    let book = shelf.get_book(GetBookRequest { name: "books/1".into(), ..Default::default() }).await?;
    println!("gRPC: {}", book.title);
    Ok(())
}

/// What `curl` does: a request, and the body of its answer.
async fn http(address: &str, request: &str, body: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!(
        "{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}",
        body.len()
    );
    stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    Ok(format!("{}: {body}", head.lines().next().unwrap_or_default()))
}
