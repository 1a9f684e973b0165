//! The generated messages, used as a program would.

use std::fmt::Debug;
use std::fs;
use std::path::Path;

use buffa::bytes::Bytes;
use buffa::{EnumValue, ExtensionSet, Message, MessageField};

use self::generated::Rootless;
use self::generated::pb::BenchmarkMessage;
use self::generated::test::rich::common::Stamp;
use self::generated::test::rich::common::deep::{Far, far};
use self::generated::test::rich::everything::{Choice, Grouped, Nested, grouped, nested};
use self::generated::test::rich::more::One;
use self::generated::test::rich::{self, EXTRA, Everything, More, Shape, Third};

#[allow(warnings)]
mod generated;

#[test]
fn benchmark_message_is_encoded_as_it_was_decoded() {
    let vector = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/benchmark_message_581.bin");
    let bytes = fs::read(vector).expect("the vector");
    assert_eq!(bytes.len(), 581);
    let message = BenchmarkMessage::decode_from_slice(&bytes).expect("the message");
    assert_eq!((message.field2, message.field3), (100_000, 100_000));
    assert_eq!(message.encode_to_vec(), bytes);
}

#[test]
fn every_field_kind_survives_a_round_trip() {
    assert_survives(everything());
}

#[test]
fn each_oneof_variant_survives_a_round_trip() {
    let choices = [
        Choice::Text("text".into()),
        Choice::Nested(Box::new(Nested::default().with_value(7))),
        Choice::Raw(vec![0, 255]),
        Choice::Kind(Shape::SHAPE_SQUARE),
    ];
    for choice in choices {
        assert_survives(Everything { choice: Some(choice), ..Everything::default() });
    }
}

#[test]
fn absent_field_differs_from_an_empty_one() {
    assert_survives(More { maybe: Some(String::new()), ..More::default() });
    assert_survives(More { one: Some(One::Empty(Box::default())), ..More::default() });
    assert_ne!(More { maybe: Some(String::new()), ..More::default() }, More::default());
    assert!(More::default().encode_to_vec().is_empty());
}

#[test]
fn unknown_enum_number_survives_a_round_trip() {
    assert_survives(More { third: EnumValue::from(77), ..More::default() });
    assert_survives(More { third: EnumValue::from(Third::ONE), ..More::default() });
    assert_eq!(Shape::SHAPE_SQUARE as i32, -7);
}

#[test]
fn unknown_fields_survive_a_round_trip() {
    let bytes = everything().encode_to_vec();
    let other = rich::Vec::decode_from_slice(&bytes).expect("any message is one without known fields");
    let back = Everything::decode_from_slice(&other.encode_to_vec()).expect("the message");
    assert_eq!(back, everything());
}

#[test]
fn bytes_field_shares_the_received_buffer_if_configured() {
    let message = Everything { some_bytes: Some(Bytes::from(vec![9; 64])), ..Everything::default() };
    let bytes = Bytes::from(message.encode_to_vec());
    let decoded = Everything::decode(&mut bytes.clone()).expect("the message");
    let field = decoded.some_bytes.expect("it was set");
    assert!(bytes.as_ptr_range().contains(&field.as_ptr()));
}

#[test]
fn extensions_are_decoded_from_the_extended_message() {
    let mut message = Everything::default();
    assert_eq!(message.extension_or_default(&EXTRA), 3);
    message.set_extension(&EXTRA, 8);
    assert_survives(message);
}

#[test]
fn truncated_messages_are_errors() {
    let bytes = Everything { choice: Some(Choice::Raw(vec![1; 9])), ..Everything::default() }.encode_to_vec();
    assert!(Everything::decode_from_slice(&bytes[..bytes.len() - 1]).is_err());
}

/// A message with every field set.
fn everything() -> Everything {
    Everything {
        name: "name".into(),
        id: -1,
        a_double: Some(f64::MIN_POSITIVE),
        a_float: Some(f32::INFINITY),
        an_int64: Some(i64::MIN),
        a_uint32: Some(u32::MAX),
        a_uint64: Some(u64::MAX),
        a_sint32: Some(i32::MIN),
        a_sint64: Some(i64::MIN),
        a_fixed32: Some(1),
        a_fixed64: Some(2),
        a_sfixed32: Some(-3),
        a_sfixed64: Some(-4),
        a_bool: Some(false),
        a_string: Some("中".into()),
        some_bytes: Some(Bytes::from_static(&[0, 255])),
        shape: Some(Shape::SHAPE_SQUARE),
        packed: vec![1, -1, i32::MAX],
        unpacked: vec![2, -2, i32::MIN],
        strings: vec![String::new(), "x".into()],
        shapes: vec![Shape::SHAPE_UNKNOWN, Shape::SHAPE_ROUND],
        children: vec![Everything { name: "child".into(), ..Everything::default() }],
        counts: [("one".to_owned(), 1), (String::new(), 0)].into_iter().collect(),
        nested_by_id: [(-1, Nested::default().with_level(nested::Level::LOW))].into_iter().collect(),
        choice: Some(Choice::Text("chosen".into())),
        grouped: MessageField::some(Grouped {
            inside: Some("a group".into()),
            inner: vec![grouped::Inner { deep: 1, ..grouped::Inner::default() }],
            ..Grouped::default()
        }),
        stamp: MessageField::some(Stamp {
            ticks: 1,
            far: MessageField::some(Far::default()),
            ..Stamp::default()
        }),
        at: MessageField::some(buffa_types::google::protobuf::Timestamp { seconds: 1, ..Default::default() }),
        boxed: MessageField::some(buffa_types::google::protobuf::StringValue {
            value: "boxed".into(),
            ..Default::default()
        }),
        rootless: MessageField::some(Rootless { name: "root".into(), ..Rootless::default() }),
        away: MessageField::some(far::Away { distance: -9, ..far::Away::default() }),
        r#type: Some(1),
        self_: Some(2),
        r#async: Some("later".into()),
        r#gen: Some(true),
        CamelCase: Some(3),
        X: Some(4),
        ..Everything::default()
    }
}

/// Asserts that a message is the same after encoding and decoding. The bounds are those that a service requires of its
/// messages.
#[track_caller]
fn assert_survives<M>(message: M)
where
    M: Message + Clone + Debug + Default + PartialEq + Send + Sync + 'static,
{
    let bytes = message.encode_to_vec();
    assert_eq!(M::decode_from_slice(&bytes).expect("it was just written"), message);
}
