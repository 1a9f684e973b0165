use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use polyrpc_core::testing::{assert_bytes, hex};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::*;

mod captured;
mod hostile;
mod random;
mod rust_types;

/// A struct with a member of every kind, as in the peers' vectors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Mixed {
    number: i32,
    list: Vec<i32>,
    map: BTreeMap<String, i32>,
    optional: Option<i32>,
    array: [i16; 2],
}

impl Mixed {
    fn new(list: Vec<i32>) -> Self {
        let map = BTreeMap::from([("k".to_owned(), 5)]);
        Self { number: 7, list, map, optional: Some(9), array: [3, 4] }
    }
}

/// A struct that is encoded as its memory image.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Plain {
    number: i32,
    letter: u8,
    double: f64,
}

/// A struct that contains itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Node {
    value: i32,
    next: Option<Box<Self>>,
}

impl Node {
    fn chain(length: usize) -> Self {
        (0..length).fold(Self { value: 0, next: None }, |next, _| Self { value: 1, next: Some(next.into()) })
    }
}

/// An enum that contains itself before its last alternative.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Tree {
    Fork(Box<Self>, Box<Self>),
    Named { name: String, below: Vec<Self> },
    Leaf(i32),
    Nothing,
}

/// An enum of unit variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
enum Color {
    Red,
    Green,
    Blue,
}

fn ty(name: &str) -> Type {
    name.parse().unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn plan(name: &str) -> Plan {
    Plan::new(ty(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the encoded value after the message header.
fn payload<T: Serialize + serde::de::DeserializeOwned + 'static>(value: &T) -> Vec<u8> {
    let bytes = to_vec(value).expect("a value that can be written");
    head::read(&bytes).expect("a head").rest.to_vec()
}
