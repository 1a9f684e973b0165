//! brpc 1.17.0's results for the same bytes: `vectors/json2pb/observed.txt`, line by line.

use prost_reflect::{DescriptorPool, DynamicMessage};

use super::*;

const BRPC: Format = Format::Json(Json::BrpcLenient);
const OBSERVED: &str = include_str!("../../../vectors/json2pb/observed.txt");
const SCHEMA: &str = include_str!("../../../vectors/json2pb/schema.proto");

/// Messages from which the vectors were created.
const ALL: &str = r#"
    i32: -1 i64: 5000000000 u64: 18446744073709551615 f: 0.1 d: 0.1 b: true s: "a\"\n\x01中/"
    by: "Hello, World!\n" e: B ri: 1 sub { x: 1 } kv { key: "k" value: 2 } ikv { key: 3 value: 4 }
    ms { key: "z" value: 1 } mi { key: 7 value: 8 } a_Z045_b: "q" camelCase: 5 snake_case: 6 re: [A, B] o2: "oo"
"#;

/// brpc writes meaningless numbers for these; we write the words, which it accepts.
const DEVIATIONS: [(&str, &str); 3] = [
    ("nan", r#"{"d":"NaN","kv":{},"ms":{}}"#),
    ("inf", r#"{"d":"Infinity","kv":{},"ms":{}}"#),
    ("-inf", r#"{"d":"-Infinity","kv":{},"ms":{}}"#),
];

#[test]
fn every_message_is_written_as_by_brpc() {
    let pool = pool(SCHEMA);
    let m = pool.message("j.M").unwrap();
    let mut seen = 0;
    for line in OBSERVED.lines().filter_map(|line| line.strip_prefix("OUT ")) {
        let (name, result) = line.split_once("ok=").unwrap();
        let (name, (result, error)) = (name.trim(), result.split_once("err=").unwrap());
        let written = match name {
            "missing" => from(&pool.message("j.R").unwrap(), BRPC, b""),
            "all" => from(&m, BRPC, &message(&m, ALL)),
            "empty" => from(&m, BRPC, b""),
            value => from(&m, BRPC, &message(&m, &format!("d: {value}"))),
        };
        let deviation =
            DEVIATIONS.iter().find(|(deviates, _)| *deviates == name).map(|(_, instead)| *instead);
        match result.strip_prefix("1 ") {
            Some(json) => assert_eq!(written.unwrap(), deviation.unwrap_or_else(|| json.trim()), "{name}"),
            None => assert_eq!(written.unwrap_err().to_string(), error.trim(), "{name}"),
        }
        seen += 1;
    }
    assert_eq!(seen, 10);
}

/// When brpc ignores a field of the wrong type, it adds a remark that is not reported; we add none.
#[test]
fn every_text_is_read_as_by_brpc() {
    let set = compile(SCHEMA);
    let pool = Pool::decode(&set).unwrap();
    let witness = DescriptorPool::decode(set.as_slice()).unwrap();
    let mut seen = 0;
    for line in OBSERVED.lines().filter_map(|line| line.strip_prefix("IN ")) {
        let (json, result) = line.split_at(line.find("ok=").unwrap());
        let (text, error) = result.split_once("err=").unwrap();
        let name = if error.contains("j.R") { "j.R" } else { "j.M" };
        let of = pool.message(name).unwrap();
        let read = to(&of, BRPC, json.trim());
        match text.strip_prefix("ok=1 ->") {
            Some(text) => {
                let decode = |bytes: &[u8]| {
                    DynamicMessage::decode(witness.get_message_by_name(name).unwrap(), bytes).unwrap()
                };
                let (read, expected) = (decode(&read.unwrap()), decode(&message(&of, text)));
                assert_eq!(read.to_text_format(), expected.to_text_format(), "{json}");
            }
            None => assert_eq!(read.unwrap_err().to_string(), error.trim(), "{json}"),
        }
        seen += 1;
    }
    assert_eq!(seen, 41);
}

#[test]
fn last_declared_oneof_member_wins_in_any_order() {
    let pool = pool(SCHEMA);
    let m = pool.message("j.M").unwrap();
    assert_eq!(to(&m, BRPC, r#"{"o2":"x","o1":1}"#), Ok(message(&m, "o2: 'x'")));
    assert_eq!(to(&m, BRPC, r#"{"o2":5,"o1":1}"#), Ok(message(&m, "o1: 1")));
}

#[test]
fn messages_nest_as_deep_as_in_brpc() {
    let pool = pool("syntax = \"proto2\"; message M { optional M m = 1; }");
    let m = pool.message("M").unwrap();
    let nested = |depth| format!("{}{{}}{}", "{\"m\":".repeat(depth), "}".repeat(depth));
    assert!(to(&m, BRPC, &nested(100)).is_ok());
    assert_eq!(to(&m, BRPC, &nested(101)).unwrap_err().to_string(), "Exceeded maximum recursion depth");
}

#[test]
fn extensions_come_first_under_their_short_names() {
    let pool = pool(
        "syntax = \"proto2\"; package x; message M { optional int32 a = 1; map<string, int32> m = 2; extensions 10 to 20; }
         extend M { optional int32 more = 10; }",
    );
    let m = pool.message("x.M").unwrap();
    let bytes = message(&m, "a: 1 [x.more]: 2");
    assert_eq!(from(&m, BRPC, &bytes).unwrap(), r#"{"more":2,"a":1,"m":{}}"#);
    assert_eq!(to(&m, BRPC, r#"{"a":1,"more":2}"#), Ok(bytes));
}

#[test]
fn maps_are_objects_for_every_key_type() {
    let pool = pool(
        "syntax = \"proto3\"; message M { map<int32, string> by_int = 1; map<bool, string> by_bool = 2; }",
    );
    let m = pool.message("M").unwrap();
    let bytes = message(&m, "by_int { key: 1 value: \"x\" } by_bool { key: true value: \"y\" }");
    let objects = r#"{"byInt":{"1":"x"},"byBool":{"true":"y"}}"#;
    for dialect in [Json::Brpc, Json::Proto3] {
        assert_eq!(to(&m, Format::Json(dialect), objects), Ok(bytes.clone()), "{dialect:?}");
    }
    // As brpc writes them.
    let lists = r#"{"by_int":[{"key":1,"value":"x"}],"by_bool":[{"key":true,"value":"y"}]}"#;
    assert_eq!(to(&m, Format::Json(Json::Brpc), lists), Ok(bytes));
}
