//! Implementation of [`Shapes`], controlled by its messages.

use polyrpc::{Code, Context, Result, Status, Streaming};

use super::generated::test::shapes::{Failure, Order, Part, Shapes, Total};

/// Replies to each order with its parts as soon as the order arrives.
pub(crate) struct Workshop;

impl Shapes for Workshop {
    async fn one(&self, _: &mut Context, order: Order) -> Result<Part> {
        check(&order)?;
        Ok(part(order.part_sizes.iter().sum()))
    }

    async fn collect(&self, _: &mut Context, mut parts: Streaming<Part>) -> Result<Total> {
        let mut total_size = 0;
        while let Some(part) = parts.message().await? {
            total_size += i32::try_from(part.body.len()).unwrap();
        }
        Ok(Total { total_size, ..Total::default() })
    }

    async fn expand(&self, _: &mut Context, order: Order) -> Result<Streaming<Part>> {
        Ok(parts(Streaming::once(order)))
    }

    async fn converse(&self, _: &mut Context, orders: Streaming<Order>) -> Result<Streaming<Part>> {
        Ok(parts(orders))
    }
}

fn parts(mut orders: Streaming<Order>) -> Streaming<Part> {
    Streaming::produce(|sender| async move {
        while let Some(order) = orders.message().await? {
            check(&order)?;
            for size in order.part_sizes {
                sender.send(part(size)).await?;
            }
        }
        Ok(())
    })
}

fn part(size: i32) -> Part {
    Part { body: vec![0; usize::try_from(size).unwrap()], ..Part::default() }
}

fn check(order: &Order) -> Result<(), Status> {
    match order.failure.as_option() {
        None => Ok(()),
        Some(Failure { code, message, .. }) => {
            let code = Code::ALL.into_iter().find(|known| *known as i32 == *code).unwrap();
            Err(Status::new(code, message.clone()))
        }
    }
}
