//! Methods for the tests with Go's `net/rpc`: a struct with structs, lists, maps and pointers in it.

use std::collections::BTreeMap;

use polyrpc::codec::Serde;
use polyrpc::payload::gob::{BigInt, NetipAddr, Own, Url};
use polyrpc::service::ServiceBuilder;
use polyrpc::{Context, Result, Status};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Point {
    x: i32,
    y: i32,
}

/// Lists and maps may be missing, as Go's are when they are nil.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Shape {
    name: String,
    visible: bool,
    sides: u16,
    area: f64,
    scale: f32,
    offset: i64,
    origin: Point,
    corners: Option<Vec<Point>>,
    tags: Option<Vec<String>>,
    grid: Option<Vec<Vec<i64>>>,
    labels: Option<BTreeMap<String, String>>,
    named: Option<BTreeMap<String, Point>>,
    center: Option<Point>,
    absent: Option<Point>,
    parent: Option<Box<Self>>,
}

/// Of types that encode themselves in Go.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Transfer {
    amount: Own<BigInt>,
    fee: Option<Own<BigInt>>,
    from: Own<NetipAddr>,
    page: Own<Url>,
}

/// Answers with the same shape, with the length of a text, or with what holds nothing.
pub(super) fn service() -> ServiceBuilder {
    ServiceBuilder::new("Shapes")
        .method::<Serde, Shape, Shape, _, _>("Echo", same)
        .method::<Serde, Transfer, Transfer, _, _>("Transfer", back)
        .method::<Serde, String, i64, _, _>("Length", length)
        .method::<Serde, String, Vec<String>, _, _>("Names", nothing)
        .method::<Serde, String, BTreeMap<String, String>, _, _>("Labels", nothing)
        .method::<Serde, String, Vec<Vec<i64>>, _, _>("Grid", empty_row)
}

async fn same(cx: Context, shape: Shape) -> (Context, Result<Shape>) {
    (cx, Ok(shape))
}

async fn back(cx: Context, transfer: Transfer) -> (Context, Result<Transfer>) {
    let amount = i128::try_from(&transfer.amount);
    let back = amount.map(|amount| Transfer { amount: amount.wrapping_neg().into(), ..transfer });
    (cx, back.map_err(|error| Status::out_of_range(error.to_string()).into()))
}

async fn length(cx: Context, text: String) -> (Context, Result<i64>) {
    (cx, Ok(text.len() as i64))
}

async fn nothing<T: Default>(cx: Context, _: String) -> (Context, Result<T>) {
    (cx, Ok(T::default()))
}

async fn empty_row(cx: Context, _: String) -> (Context, Result<Vec<Vec<i64>>>) {
    (cx, Ok(vec![Vec::new()]))
}
