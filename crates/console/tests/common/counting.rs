//! A service with streams of every shape.

use polyrpc::{Result, Status, Streaming};

#[polyrpc::service]
trait Counting {
    async fn count(&self, to: u32) -> Result<Streaming<u32>>;
    async fn sum(&self, numbers: Streaming<u32>) -> Result<u32>;
    async fn double(&self, numbers: Streaming<u32>) -> Result<Streaming<u32>>;
    async fn stall(&self, text: String) -> Result<Streaming<String>>;
}

struct Counter;

pub(crate) fn counting_service() -> impl polyrpc::service::Service {
    CountingServer::new(Counter)
}

impl Counting for Counter {
    async fn count(&self, to: u32) -> Result<Streaming<u32>> {
        Ok(Streaming::produce(move |sender| async move {
            for number in 1..=to {
                sender.send(number).await?;
            }
            Ok(())
        }))
    }

    async fn sum(&self, mut numbers: Streaming<u32>) -> Result<u32> {
        let mut sum = 0;
        while let Some(number) = numbers.message().await? {
            sum += number;
        }
        Ok(sum)
    }

    async fn double(&self, mut numbers: Streaming<u32>) -> Result<Streaming<u32>> {
        Ok(Streaming::produce(move |sender| async move {
            while let Some(number) = numbers.message().await? {
                sender.send(number * 2).await?;
            }
            Err(Status::data_loss("that is all").into())
        }))
    }

    /// Sends one message, and then nothing for as long as the call lasts.
    async fn stall(&self, text: String) -> Result<Streaming<String>> {
        Ok(Streaming::produce(move |sender| async move {
            sender.send(text).await?;
            std::future::pending::<()>().await;
            Ok(())
        }))
    }
}
