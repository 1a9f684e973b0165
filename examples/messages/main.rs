//! How messages of a `.proto` look in Rust: a field of every kind. docs/guides/messages.md explains them.

// build.rs wrote it from shop.proto.
#[allow(warnings)]
mod shop {
    polyrpc::include_proto!("shop");
}

use std::collections::HashMap;
use std::time::Duration;

use polyrpc::protobuf::well_known::{self, Empty, Struct};
use polyrpc::protobuf::{EnumValue, Message, MessageField};
use polyrpc::{Context, Result, Status, Streaming};

use crate::shop::order::item::Size;
use crate::shop::order::{Item, Payment};
use crate::shop::{Card, Order, Shop, ShopServer, State};

fn main() {
    let order = write();
    read(&order);

    let bytes = order.encode_to_vec();
    let again = Order::decode_from_slice(&bytes).expect("what was encoded can be decoded");
    println!("the same after {} bytes: {}", bytes.len(), again == order);

    // Served by `Server::new().service(…)`.
    let _service = ShopServer::new(Counter);
}

fn write() -> Order {
    let stock: HashMap<String, i64> = HashMap::from([("red".to_owned(), 3), ("blue".to_owned(), 0)]);
    Order {
        id: "7".into(),
        parcels: 2,
        price: 9.5,
        paid: true,
        signature: vec![1, 2, 3],
        note: Some("ring twice".into()),
        state: State::STATE_OPEN.into(),
        tags: vec!["new".into()],
        items: vec![Item { name: "pen".into(), size: Size::SIZE_SMALL.into(), ..Default::default() }],
        stock,
        shelves: HashMap::from([(4, Item::default())]),
        gift: MessageField::some(Item { name: "card".into(), ..Default::default() }),
        payment: Some(Payment::Card(Box::new(Card { number: "4242".into(), ..Default::default() }))),
        created: well_known::Timestamp::from_unix_secs(1_700_000_000).into(),
        reserved_for: well_known::Duration::from_secs(60).into(),
        extra: Struct::from_fields([("source", "web")]).into(),
        limit: well_known::Int64Value::from(5).into(),
        r#type: "parcel".into(),
        // The fields that are not named, and room for those that this program does not know.
        ..Default::default()
    }
}

fn read(order: &Order) {
    println!(
        "{} for {} at {}, {}",
        order.id,
        order.r#type,
        order.price,
        order.note.as_deref().unwrap_or("-")
    );

    // An enum field holds any number: a newer peer may send one that has no name here.
    match order.state.as_known() {
        Some(State::STATE_OPEN) => println!("open"),
        Some(other) => println!("{other:?}"),
        None => println!("a state unknown here: {}", order.state.to_i32()),
    }

    // A message field reads as a default message where it is not set.
    println!("gift {:?}, replaces {:?}", order.gift.name, order.replaces.id);
    if let Some(created) = order.created.as_option() {
        println!("created at {} s", created.seconds);
    }
    println!("replaces none: {}", order.replaces.is_unset());

    match &order.payment {
        Some(Payment::Card(card)) => println!("card {}", card.number),
        Some(Payment::Invoice(to)) => println!("invoice to {to}"),
        None => println!("not paid"),
    }

    println!("red: {:?}", order.stock.get("red"));
    let reserved = order.reserved_for.clone().into_option().and_then(|time| Duration::try_from(time).ok());
    println!("reserved for {reserved:?}");
}

/// A method of every kind.
struct Counter;

impl Shop for Counter {
    async fn buy(&self, _: &mut Context, mut order: Order) -> Result<Order> {
        if order.items.is_empty() {
            return Err(Status::invalid_argument("nothing was ordered"))?;
        }
        order.state = EnumValue::from(State::STATE_SENT);
        Ok(order)
    }

    async fn watch(&self, _: &mut Context, _: Empty) -> Result<Streaming<Order>> {
        Ok(Streaming::from_iter([Order::default()]))
    }

    async fn fill(&self, _: &mut Context, mut items: Streaming<Item>) -> Result<Order> {
        let mut order = Order::default();
        while let Some(item) = items.message().await? {
            order.items.push(item);
        }
        Ok(order)
    }

    async fn chat(&self, _: &mut Context, orders: Streaming<Order>) -> Result<Streaming<Order>> {
        Ok(orders)
    }
}
