//! Tests that deep nesting in a received message does not exhaust the stack, whatever its format.

use ::serde::de::{DeserializeOwned, IgnoredAny};
use ::serde::{Deserialize, Serialize};
use bytes::Bytes;
use polyrpc_core::{Format, Json};
use serde_json::Value;

use super::{
    Body, Codec, Serde, decode_argument, decode_arguments, decode_no_arguments, decode_plain,
    decode_published,
};

/// Depth that exhausts every stack.
const DEPTH: usize = 100_000;

/// Half of the stack of a runtime's thread: tests are not optimized, and a handler needs some, too.
const STACK: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Tree {
    list: Vec<Self>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Term {
    Zero,
    Next(Box<Self>),
}

/// In struct_pack an enum may not contain itself directly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Fork {
    Leaf,
    Both(Box<Self>, Box<Self>),
}

/// A type without recursion, whose unknown fields are skipped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Flat {
    list: Vec<u8>,
}

fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(STACK).spawn(test).expect("a thread").join().expect("success");
}

/// Decodes a body in every way; returns whether it is a `T`.
fn decodes_as<T: DeserializeOwned + Serialize + 'static>(format: Format, bytes: &[u8]) -> bool {
    let bytes = Bytes::copy_from_slice(bytes);
    for positional in [false, true] {
        let body = Body { positional, ..Body::new(format, bytes.clone()) };
        let _ = <Serde as Codec<T>>::decode(body.clone(), None);
        let _ = decode_argument::<T>(&body);
        let _ = decode_arguments::<(T, T)>(&body, 2);
        let _ = decode_arguments::<(T, IgnoredAny)>(&body, 2);
        let _ = decode_no_arguments(&body);
        let _ = decode_published::<T>(&bytes);
    }
    decode_plain::<T>(&Body::new(format, bytes)).is_ok()
}

fn nest(level: &[u8], depth: usize, innermost: &[u8], end: &[u8]) -> Vec<u8> {
    [level.repeat(depth), innermost.to_vec(), end.repeat(depth)].concat()
}

/// Encodes a value and returns all but its last byte.
fn start_of<T: Serialize + DeserializeOwned + 'static>(value: &T, format: Format) -> Vec<u8> {
    let bytes = <Serde as Codec<T>>::encode(value, format, None).expect("a small value");
    bytes.split_last().expect("not empty").1.to_vec()
}

const LEAF: Tree = Tree { list: Vec::new() };
const JSON: Format = Format::Json(Json::Proto3);

/// A tree of this many levels.
fn tree(format: Format, depth: usize) -> Vec<u8> {
    match format {
        Format::Json(_) => nest(b"{\"list\":[", depth, b"{\"list\":[]}", b"]}"),
        Format::MessagePack => nest(b"\x81\xa4list\x91", depth, b"\x81\xa4list\x90", b""),
        Format::MessagePackArray => nest(b"\x91\x91", depth, b"\x91\x90", b""),
        // The type, then the length of each list.
        Format::StructPack | Format::RestRpc => [start_of(&LEAF, format), vec![1; depth], vec![0]].concat(),
        Format::Gob => {
            let leaf = <Serde as Codec<Tree>>::encode(&LEAF, format, None).expect("a leaf");
            // The definitions of types, then the length, the type's number and an empty value.
            let (definitions, value) = leaf.split_at(leaf.len() - 4);
            let value = [&value[1..3], &nest(b"\x01\x01", depth, b"", b"\0"), b"\0"].concat();
            let length = u32::try_from(value.len()).expect("short").to_be_bytes();
            [definitions, &[0xfc], &length, &value].concat()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn deeply_nested_values_of_plain_types_are_rejected() {
    const FORMATS: [Format; 6] = [
        JSON,
        Format::MessagePack,
        Format::MessagePackArray,
        Format::StructPack,
        Format::RestRpc,
        Format::Gob,
    ];
    on_a_small_stack(|| {
        for format in FORMATS {
            for depth in [0, 1, 3, 30] {
                assert!(decodes_as::<Tree>(format, &tree(format, depth)), "{format:?}, {depth} levels");
            }
            for depth in [1000, DEPTH] {
                assert!(!decodes_as::<Tree>(format, &tree(format, depth)), "{format:?}, {depth} levels");
                // Other types than that of the message.
                decodes_as::<Flat>(format, &tree(format, depth));
                decodes_as::<Term>(format, &tree(format, depth));
                decodes_as::<String>(format, &tree(format, depth));
                decodes_as::<Value>(format, &tree(format, depth));
            }
        }
    });
}

#[test]
fn deeply_nested_enums_are_rejected() {
    on_a_small_stack(|| {
        let messages = |depth| {
            [
                (JSON, nest(b"{\"Next\":", depth, b"\"Zero\"", b"}")),
                (Format::MessagePack, nest(b"\x81\xa4Next", depth, b"\xa4Zero", b"")),
                (Format::MessagePackArray, nest(b"\x81\x01", depth, b"\x00", b"")),
            ]
        };
        for (format, bytes) in messages(50) {
            assert!(decodes_as::<Term>(format, &bytes), "{format:?}");
        }
        for (format, bytes) in messages(1000).into_iter().chain(messages(DEPTH)) {
            assert!(!decodes_as::<Term>(format, &bytes), "{format:?}");
        }
        for format in [Format::StructPack, Format::RestRpc] {
            let fork = |depth| [start_of(&Fork::Leaf, format), vec![1; depth], vec![0; depth + 1]].concat();
            assert!(decodes_as::<Fork>(format, &fork(30)), "{format:?}");
            assert!(!decodes_as::<Fork>(format, &fork(DEPTH)), "{format:?}");
        }
    });
}

#[test]
fn deeply_nested_arguments_and_unknown_fields_do_not_exhaust_the_stack() {
    on_a_small_stack(|| {
        let lists = |list: &[u8], end: &[u8]| nest(list, DEPTH, b"", end);
        let message_pack = lists(b"\x91", b"");
        for (format, bytes) in [
            (JSON, lists(b"[", b"]")),
            (JSON, lists(b"[", b"")),
            (JSON, lists(b"{\"a\":", b"")),
            (JSON, [b"{\"list\":[],\"a\":", &lists(b"[", b"]")[..], b"}"].concat()),
            (Format::MessagePack, message_pack.clone()),
            (Format::MessagePack, lists(b"\x81\xa1a", b"")),
            (Format::MessagePack, lists(b"\x92\x01", b"")),
            (Format::MessagePack, lists(b"\x81\x91", b"")),
            // Two arguments, and an unknown field, all of them whole.
            (Format::MessagePack, [b"\x92", &message_pack[..], b"\x01\x01"].concat()),
            (Format::MessagePack, [b"\x82\xa4list\x90\xa1a", &message_pack[..], b"\x01"].concat()),
            (Format::MessagePackArray, [b"\x92\x90", &message_pack[..], b"\x01"].concat()),
        ] {
            decodes_as::<Flat>(format, &bytes);
            decodes_as::<(Flat, Flat)>(format, &bytes);
            decodes_as::<Tree>(format, &bytes);
            decodes_as::<i64>(format, &bytes);
            decodes_as::<Value>(format, &bytes);
        }
    });
}
