use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::*;
use crate::gob::{from_json, to_vec};

const GOB: Format = Format::Gob;

const ALL: &str = r#"
    syntax = "proto3";
    message Args { int32 A = 1; int32 B = 2; }
    enum E { ZERO = 0; ONE = 1; }
    message All {
        string user_name = 1; int64 big = 2; bytes raw = 3; E e = 4; repeated int32 list = 5;
        map<int32, string> map = 6; Args args = 7; optional int32 asked = 8; bool flag = 9; double d = 10;
        uint64 u = 11; repeated Args many = 12; float f = 13; repeated string texts = 14; All child = 15;
    }
"#;

fn all() -> Message {
    pool(ALL).message("All").unwrap()
}

fn gob<T: Serialize + DeserializeOwned + 'static>(value: &T) -> Vec<u8> {
    to_vec(value).unwrap()
}

#[test]
fn every_field_kind_round_trips_through_gob() {
    let rich = pool(RICH).message("rich.Rich").unwrap();
    let text = r#"
        scalars {
            f_double: -1.5 f_float: 0.25 f_int32: -7 f_int64: -70000000000 f_uint32: 4294967295
            f_uint64: 18446744073709551615 f_sint32: -1 f_sint64: -2 f_fixed32: 3 f_fixed64: 4 f_sfixed32: -5
            f_sfixed64: -6 f_bool: true f_string: "é" f_bytes: "\377\000" f_color: BLUE
        }
        asked: 5 child { far: 1 } children { custom: 2 } children {}
        r_double: 0.5 r_double: 0 r_int32: 1 r_int32: 0 r_sint64: -1 r_fixed64: 9 r_bool: false r_string: ""
        r_bytes: "x" r_color: RED r_unpacked: 300
        m_string { key: "k" value: 1 } m_int64 { key: -1 value: "v" } m_bool { key: true value: GREEN }
        m_message { key: 7 value { far: 3 } } c_string: "chosen"
    "#;
    let want = message(&rich, text);
    let stream = from_protobuf(&rich, GOB, &want).unwrap();
    let back = to_protobuf(&rich, GOB, &stream).unwrap();
    assert_eq!(from(&rich, Format::ProtoText, &back), from(&rich, Format::ProtoText, &want));
}

#[test]
fn missing_fields_are_unset() {
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Unset {
        asked: Option<i32>,
        user_name: String,
        unknown: i64,
    }

    let stream = gob(&Unset { asked: None, user_name: "x".into(), unknown: 1 });
    let read = to_protobuf(&all(), GOB, &stream).unwrap();
    assert_eq!(from(&all(), Format::ProtoText, &read).unwrap().trim(), r#"user_name: "x""#);
}

#[test]
fn nan_and_infinities_round_trip() {
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Floats {
        d: f64,
        f: f32,
    }

    for (value, want) in [
        (f64::INFINITY, "d: inf f: inf"),
        (f64::NEG_INFINITY, "d: -inf f: -inf"),
        (f64::NAN, "d: nan f: nan"),
    ] {
        let stream = gob(&Floats { d: value, f: value as f32 });
        assert_eq!(to_protobuf(&all(), GOB, &stream), Ok(message(&all(), want)));
    }
}

#[test]
fn type_mismatches_are_rejected_as_in_go() {
    let json = |text: &str| from_json(text.as_bytes()).unwrap();
    #[derive(Serialize, Deserialize, Default)]
    #[serde(rename_all = "PascalCase")]
    struct Wrong {
        big: u64,
        user_name: String,
    }
    #[derive(Serialize, Deserialize, Default)]
    #[serde(rename_all = "PascalCase")]
    struct Bytes {
        user_name: Vec<u8>,
    }
    #[derive(Serialize, Deserialize, Default)]
    #[serde(rename_all = "PascalCase")]
    struct Maps {
        args: BTreeMap<String, i32>,
    }

    for (stream, want) in [
        (json(r#"{"big":5}"#), "type mismatch: no fields matched compiling decoder for All"),
        (json("5"), "decoding into All, received int"),
        (gob(&BTreeMap::from([("Big".to_owned(), 5)])), "decoding into All, received map"),
        (json(r#"{"U":5}"#), "wrong type (uint64) for received field U (int)"),
        (gob(&Wrong { big: 5, ..Wrong::default() }), "wrong type (int64) for received field Big (uint)"),
        // A zero of an incompatible type is incompatible too, although it is not sent.
        (gob(&Wrong::default()), "wrong type (int64) for received field Big (uint)"),
        (json(r#"{"D":5}"#), "wrong type (float64) for received field D (int)"),
        (json(r#"{"Big":1.5}"#), "wrong type (int64) for received field Big (float)"),
        (json(r#"{"Raw":"AQID"}"#), "wrong type (bytes) for received field Raw (string)"),
        (gob(&Bytes { user_name: vec![65] }), "wrong type (string) for received field UserName (bytes)"),
        (json(r#"{"E":"ONE"}"#), "wrong type (int32) for received field E (string)"),
        (json(r#"{"List":["x"]}"#), "wrong type (int32) for received field List (string)"),
        (json(r#"{"List":5}"#), "wrong type (slice) for received field List (int)"),
        (json(r#"{"Map":{"1":"x"}}"#), "wrong type (map) for received field Map (struct)"),
        (gob(&Maps::default()), "wrong type (Args) for received field Args (map)"),
        (json(r#"{"Args":{"A":"x"}}"#), "wrong type (int32) for received field A (string)"),
        (json(r#"{"Child":{"Child":{"Flag":0}}}"#), "wrong type (bool) for received field Flag (int)"),
        (json(r#"{"Args":{"A":2147483648}}"#), r#"value for "A" out of range"#),
    ] {
        assert_eq!(to_protobuf(&all(), GOB, &stream), Err(Error::new(want)), "{want}");
    }
    // A nested struct without a common field is skipped, and so are fields that the message does not have.
    let stream = json(r#"{"Args":{"Z":1},"Other":[{"A":1}],"big":"x","Big":5}"#);
    assert_eq!(to_protobuf(&all(), GOB, &stream), Ok(message(&all(), "args {} big: 5")));
}

#[test]
fn type_nesting_depth_is_limited() {
    // Each struct has a separate type.
    let stream = |deep: usize| {
        let text = format!(r#"{}{{"Big":5}}{}"#, r#"{"Child":"#.repeat(deep), "}".repeat(deep));
        from_json(text.as_bytes()).unwrap()
    };
    assert!(to_protobuf(&all(), GOB, &stream(99)).is_ok());
    assert_eq!(to_protobuf(&all(), GOB, &stream(100)), Err(Error::too_deep()));
}
