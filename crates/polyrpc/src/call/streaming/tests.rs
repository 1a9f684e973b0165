use polyrpc_core::Code;

use super::*;

#[tokio::test]
async fn stream_ends_after_its_first_error() {
    let mut messages =
        Streaming::from_stream(stream::iter([Ok(1), Err(Status::not_found("two").into()), Ok(3)]));
    assert_eq!(messages.message().await.unwrap(), Some(1));
    assert_eq!(messages.message().await.unwrap_err().code(), Code::NotFound);
    assert_eq!(messages.message().await.unwrap(), None);
}

#[tokio::test]
async fn sender_waits_for_capacity() {
    let (sender, mut messages) = Streaming::channel(1);
    sender.send(1).await.unwrap();
    let mut second = Box::pin(sender.send(2));
    let mut idle = Context::from_waker(std::task::Waker::noop());
    assert!(second.as_mut().poll(&mut idle).is_pending());
    assert_eq!(messages.message().await.unwrap(), Some(1));
    second.await.unwrap();
}

#[tokio::test]
async fn sender_fails_once_the_receiver_is_dropped() {
    let (sender, messages) = Streaming::channel(1);
    assert!(!sender.is_closed());
    drop(messages);
    assert!(sender.is_closed());
    assert_eq!(sender.send(1).await.unwrap_err().code(), Code::Cancelled);
}

#[tokio::test]
async fn sender_can_fail_the_stream() {
    let (sender, mut messages) = Streaming::<i32>::channel(1);
    sender.fail(Status::not_found("nothing")).await;
    assert_eq!(messages.message().await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn producer_is_polled_only_on_demand() {
    let made = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = made.clone();
    let mut messages = Streaming::produce(|sender| async move {
        for n in 0..100 {
            counted.store(n, std::sync::atomic::Ordering::Relaxed);
            sender.send(n).await?;
        }
        Ok(())
    });
    assert_eq!(messages.message().await.unwrap(), Some(0));
    assert_eq!(messages.message().await.unwrap(), Some(1));
    assert!(made.load(std::sync::atomic::Ordering::Relaxed) <= 3);
}

#[tokio::test]
async fn producer_error_follows_its_messages() {
    let mut messages = Streaming::produce(|sender| async move {
        sender.send(1).await?;
        Err(Status::not_found("two").into())
    });
    assert_eq!(messages.message().await.unwrap(), Some(1));
    assert_eq!(messages.message().await.unwrap_err().code(), Code::NotFound);
    assert_eq!(messages.message().await.unwrap(), None);
}
