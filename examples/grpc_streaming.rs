//! Streaming methods over gRPC.

use polyrpc::{Client, Result, Server, Streaming};

#[polyrpc::service]
trait Numbers {
    /// Counts up to a number.
    async fn count(&self, to: u64) -> Result<Streaming<u64>>;

    /// Returns the sum of the received numbers.
    async fn sum(&self, numbers: Streaming<u64>) -> Result<u64>;

    /// Answers each number with its square, as soon as it arrives.
    async fn square(&self, numbers: Streaming<u64>) -> Result<Streaming<u64>>;
}

struct Calculator;

impl Numbers for Calculator {
    async fn count(&self, to: u64) -> Result<Streaming<u64>> {
        Ok(Streaming::from_iter(1..=to))
    }

    async fn sum(&self, mut numbers: Streaming<u64>) -> Result<u64> {
        let mut sum = 0;
        while let Some(number) = numbers.message().await? {
            sum += number;
        }
        Ok(sum)
    }

    async fn square(&self, mut numbers: Streaming<u64>) -> Result<Streaming<u64>> {
        // It is polled only as the caller reads its messages, and is dropped with the call.
        Ok(Streaming::produce(|sender| async move {
            while let Some(number) = numbers.message().await? {
                sender.send(number * number).await?;
            }
            Ok(())
        }))
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = Server::new().service(NumbersServer::new(Calculator)).bind("127.0.0.1:0").await?.start();
    let numbers = NumbersClient::new(Client::new(&format!("grpc://{}", server.address()))?);

    let mut counted = numbers.count(3).await?;
    while let Some(number) = counted.message().await? {
        println!("counted {number}");
    }
    println!("sum {}", numbers.sum(Streaming::from_iter(1..=100)).await?);

    let (sender, requests) = Streaming::channel(1);
    let mut squares = numbers.square(requests).await?;
    for number in [3, 4] {
        sender.send(number).await?;
        println!("square {:?}", squares.message().await?);
    }
    Ok(())
}
