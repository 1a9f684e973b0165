//! Gob, compared with Go's output.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use polyrpc_core::testing::{assert_bytes, damage, hex};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::*;

/// Returns Go's output, by the names in `vectors/netrpc`.
fn vector(file: &str, name: &str) -> Vec<u8> {
    all(file).into_iter().find(|(known, _)| known == name).expect("a vector of this name").1
}

fn all(file: &str) -> Vec<(String, Vec<u8>)> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "vectors", "netrpc", file].iter().collect();
    let text = fs::read(path).expect("a readable file");
    let vectors: Vec<serde_json::Value> = serde_json::from_slice(&text).expect("vectors");
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    vectors.iter().map(|vector| (text(&vector["name"]), hex(&text(&vector["hex"])).to_vec())).collect()
}

fn values() -> Vec<(String, Vec<u8>)> {
    all("gob_values.json")
}

#[derive(Serialize, Deserialize, Debug, PartialEq, Default, Clone)]
#[serde(rename_all = "PascalCase")]
struct P {
    x: i64,
    y: i64,
    name: String,
}

fn p(x: i64, y: i64, name: &str) -> P {
    P { x, y, name: name.into() }
}

#[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
#[serde(rename_all = "PascalCase")]
struct Args {
    a: i64,
    b: i64,
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
#[serde(rename_all = "PascalCase")]
struct Reply {
    c: i32,
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
enum Held {
    #[serde(rename = "main.P")]
    P(P),
    #[serde(rename = "int")]
    Int(i64),
    #[serde(rename = "string")]
    Text(String),
    #[serde(rename = "[]float64")]
    Floats(Vec<f64>),
    #[serde(rename = "main.Q")]
    Q(Q),
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
#[serde(rename_all = "PascalCase")]
struct Q {
    a: i64,
    l: Vec<String>,
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
#[serde(rename_all = "PascalCase")]
struct W {
    v: Option<Held>,
    s: Vec<Option<Held>>,
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
#[serde(rename_all = "PascalCase")]
struct Every {
    b: bool,
    i: i64,
    i8: i8,
    u: u64,
    u64: u64,
    f: f64,
    f32: f32,
    c: Complex,
    s: String,
    by: Vec<u8>,
    sl: Vec<i64>,
    ss: Vec<String>,
    ar: [i64; 3],
    m: BTreeMap<String, i64>,
    n: P,
    #[serde(rename = "PP")]
    pp: Option<Box<P>>,
    #[serde(rename = "LP")]
    lp: Vec<P>,
    #[serde(rename = "MP")]
    mp: BTreeMap<String, P>,
    ifc: Option<Held>,
}

fn every() -> Every {
    Every {
        b: true,
        i: -5,
        i8: 9,
        u: 200,
        u64: 1 << 40,
        f: 2.5,
        f32: 0.5,
        c: Complex { re: 1.0, im: -1.0 },
        s: "s".into(),
        by: b"by".to_vec(),
        sl: vec![1, 2],
        ss: vec!["x".into()],
        ar: [0, 0, 9],
        m: [("m".into(), 1)].into(),
        n: p(1, 2, "n"),
        pp: Some(Box::new(p(3, 4, "pp"))),
        lp: vec![p(5, 6, "lp")],
        mp: [("q".into(), p(7, 8, "mp"))].into(),
        ifc: Some(Held::P(p(9, 9, "ifc"))),
    }
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
#[serde(rename_all = "PascalCase")]
struct Rec {
    v: i64,
    next: Option<Box<Self>>,
}

fn reads<T: DeserializeOwned + PartialEq + Debug>(name: &str, want: T) {
    let bytes = vector("gob_values.json", name);
    assert_eq!(from_slice::<T>(&bytes).as_ref(), Ok(&want), "{name}");
    let value = Reader::new(Limits::default()).next(&mut BytesMut::from(&bytes[..]));
    let value = value.expect("a stream").expect("a value");
    assert_eq!(value.decode::<T>().as_ref(), Ok(&want), "{name}");
    assert_eq!(from_slice::<T>(&value.into_bytes()).as_ref(), Ok(&want), "{name}");
}

/// Decodes it, and encodes it exactly like Go, except for the numbers of its types.
fn both_ways<T>(name: &str, want: T)
where
    T: Serialize + DeserializeOwned + PartialEq + Debug + 'static,
{
    let written = to_vec(&want).expect("a value that can be sent");
    reads(name, want);
    let theirs = vector("gob_values.json", name);
    let (mut ours, mut expected) = (Vec::new(), Vec::new());
    Writer::new().value(&written, &mut ours).expect("what was written just now");
    Writer::new().value(&theirs, &mut expected).expect("what Go wrote");
    assert_bytes(&ours, &expected);
}

#[test]
fn basic_values_are_encoded_as_in_go() {
    both_ways("gob_bool_true", true);
    both_ways("gob_int_0", 0i32);
    both_ways("gob_int_7", 7i8);
    both_ways("gob_int_-129", -129i16);
    both_ways("gob_int_minint64", i64::MIN);
    both_ways("gob_int_maxint64", i64::MAX);
    both_ways("gob_uint_127", 127u8);
    both_ways("gob_uint_128", 128u8);
    both_ways("gob_uint_256", 256u16);
    both_ways("gob_uint_max", u64::MAX);
    both_ways("gob_float_17", 17.0);
    both_ways("gob_float_pi", std::f64::consts::PI);
    both_ways("gob_float32_1_5", 1.5f32);
    both_ways("gob_complex", Complex { re: 1.0, im: 2.0 });
    both_ways("gob_string", "hello".to_owned());
    both_ways("gob_string_empty", String::new());
    both_ways("gob_bytes", vec![1u8, 2, 3]);
}

#[test]
fn lists_maps_and_structs_are_encoded_as_in_go() {
    both_ways("gob_slice_int", vec![1i64, 2, 3]);
    both_ways("gob_slice_string", vec!["a".to_owned(), "bc".to_owned()]);
    both_ways("gob_array_int", [4i64, 5, 6]);
    both_ways("gob_map", HashMap::from([("k".to_owned(), 5i64)]));
    both_ways("gob_struct_P", p(22, 33, "pt"));
    both_ways("gob_struct_zero", P::default());
    both_ways("gob_struct_ptr", Some(p(22, 33, "pt")));
    both_ways("gob_args", Args { a: 7, b: 8 });
    both_ways("gob_reply", Reply { c: 56 });
    // Go has a name for this list, which is not significant.
    reads("gob_slice_struct", vec![p(1, 0, ""), p(0, 0, "")]);
    both_ways("gob_recursive", Rec { v: 1, next: Some(Box::new(Rec { v: 2, next: None })) });
}

#[test]
fn every_field_kind_is_decoded() {
    reads("gob_all", every());
    let zero = Every {
        b: false,
        i: 1,
        i8: 0,
        u: 0,
        u64: 0,
        f: 0.0,
        f32: 0.0,
        c: Complex::default(),
        s: String::new(),
        by: Vec::new(),
        sl: Vec::new(),
        ss: Vec::new(),
        ar: [0; 3],
        m: BTreeMap::new(),
        n: P::default(),
        pp: None,
        lp: Vec::new(),
        mp: BTreeMap::new(),
        ifc: None,
    };
    reads("gob_all_nil_interface", zero);
}

#[test]
fn every_field_kind_round_trips() {
    let bytes = to_vec(&every()).expect("a value");
    assert_eq!(from_slice::<Every>(&bytes), Ok(every()));
    let plain = to_vec_plain(&every()).expect("a value");
    assert_eq!(from_slice::<Every>(&plain), Ok(every()));
}

#[test]
fn interfaces_hold_enum_variants_by_registered_name() {
    let want = W {
        v: Some(Held::Q(Q { a: 5, l: vec!["x".into()] })),
        s: vec![Some(Held::Int(7)), Some(Held::Text("s".into())), None, Some(Held::Floats(vec![1.5]))],
    };
    let bytes = to_vec(&want).expect("a value");
    assert_eq!(from_slice::<W>(&bytes).as_ref(), Ok(&want));
    assert_eq!(from_slice::<W>(&to_vec_plain(&want).expect("a value")).as_ref(), Ok(&want));
    reads("gob_interface_split", want);
}

#[test]
fn type_is_defined_once_per_stream() {
    let bytes = vector("gob_values.json", "gob_struct_P_twice");
    let (mut reader, mut inbox) = (Reader::new(Limits::default()), BytesMut::from(&bytes[..]));
    let mut next = || reader.next(&mut inbox).expect("a stream").expect("a value");
    let (one, other) = (next(), next());
    assert_eq!(one.decode::<P>(), Ok(p(1, 2, "a")));
    assert_eq!(other.decode::<P>(), Ok(p(0, 0, "b")));

    let (mut ours, mut theirs, mut typed) = (Vec::new(), Vec::new(), Vec::new());
    let mut writer = Writer::new();
    writer.encode(&p(1, 2, "a"), &mut ours).expect("a value");
    writer.encode(&p(0, 0, "b"), &mut ours).expect("a value");
    let mut writer = Writer::new();
    writer.value(&one.into_bytes(), &mut theirs).expect("a value");
    writer.value(&other.clone().into_bytes(), &mut theirs).expect("a value");
    assert_bytes(&ours, &theirs);
    let mut writer = Writer::new();
    writer.encode(&p(1, 2, "a"), &mut typed).expect("a value");
    writer.value(&other.into_bytes(), &mut typed).expect("a value");
    assert_bytes(&typed, &ours);
}

#[test]
fn nested_interface_length_depends_on_its_type_ids() {
    let want = json!([[["deep"]], {"a": [1]}]);
    let body = to_vec(&want).expect("a value");
    for first in [64, 128, 40_000] {
        let mut out = Vec::new();
        Writer::starting_at(first).value(&body, &mut out).expect("a value");
        assert_eq!(from_slice::<serde_json::Value>(&out).as_ref(), Ok(&want), "{first}");
    }
}

#[test]
fn integer_in_an_interface_is_int_unless_it_needs_uint() {
    for (value, name) in
        [(json!(5), &b"\x03int"[..]), (json!(-5), b"\x03int"), (json!(u64::MAX), b"\x04uint")]
    {
        let bytes = to_vec(&json!({"v": value})).expect("a value");
        assert!(bytes.windows(name.len()).any(|window| window == name), "{value}: {bytes:?}");
        assert_eq!(from_slice::<serde_json::Value>(&bytes), Ok(json!({"v": value})));
    }
}

#[test]
fn top_level_interface_keeps_its_type_on_every_send() {
    let mut writer = Writer::starting_at(100);
    let (mut stream, body) = (BytesMut::new(), to_vec(&Held::Floats(vec![1.5])).expect("a value"));
    for _ in 0..3 {
        let mut out = Vec::new();
        writer.value(&body, &mut out).expect("a value");
        stream.extend_from_slice(&out);
    }
    let mut reader = Reader::new(Limits::default());
    for _ in 0..3 {
        let value = reader.next(&mut stream).expect("a stream").expect("a value");
        assert_eq!(value.decode(), Ok(Held::Floats(vec![1.5])));
    }
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
#[serde(rename_all = "PascalCase")]
struct Request {
    service_method: String,
    seq: u64,
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
#[serde(rename_all = "PascalCase")]
struct Response {
    service_method: String,
    seq: u64,
    error: String,
}

#[test]
fn net_rpc_call_equals_that_of_go_byte_for_byte() {
    let mut writer = Writer::new();
    let mut out = Vec::new();
    let request = Request { service_method: "Arith.Mul".into(), seq: 0 };
    writer.encode(&request, &mut out).expect("a header");
    let body = to_vec(&Args { a: 7, b: 8 }).expect("a body");
    writer.value(&body, &mut out).expect("a body");
    assert_bytes(&out, vector("gob_mul.json", "netrpc_gob_mul_c2s"));

    let (mut writer, mut out) = (Writer::new(), Vec::new());
    let header = Response { service_method: "Arith.Mul".into(), seq: 0, error: String::new() };
    writer.encode(&header, &mut out).expect("a header");
    writer.encode(&Reply { c: 56 }, &mut out).expect("a body");
    assert_bytes(&out, vector("gob_mul.json", "netrpc_gob_mul_s2c"));

    let (mut writer, mut out) = (Writer::new(), Vec::new());
    let header = Response { service_method: "Arith.Error".into(), seq: 0, error: "boom".into() };
    writer.encode(&header, &mut out).expect("a header");
    writer.encode(&(), &mut out).expect("a body");
    // In Go, the type of another reply has the number between the two.
    let theirs = vector("gob_error.json", "netrpc_gob_error_s2c");
    let (mut reader, mut inbox, mut again) =
        (Reader::new(Limits::default()), BytesMut::from(&theirs[..]), Vec::new());
    let mut writer = Writer::new();
    while let Some(value) = reader.next(&mut inbox).expect("a stream") {
        writer.value(&value.into_bytes(), &mut again).expect("a value");
    }
    assert_bytes(&out, &again);
}

#[test]
fn any_split_yields_the_same_values() {
    let stream: Vec<u8> = ["gob_all", "gob_interface_split", "gob_recursive", "gob_string"]
        .into_iter()
        .map(|name| restream(&vector("gob_values.json", name), name.len() as i32))
        .collect::<Vec<_>>()
        .concat();
    let whole = heard(&[&stream]);
    assert_eq!(whole.len(), 4);
    for at in 0..stream.len() {
        let (one, other) = stream.split_at(at);
        assert_eq!(heard(&[one, other]), whole, "split at {at}");
    }
    let bytes: Vec<_> = stream.chunks(1).collect();
    assert_eq!(heard(&bytes), whole);
}

/// Returns the same value as from another process: its types have other numbers.
fn restream(bytes: &[u8], by: i32) -> Vec<u8> {
    let (mut writer, mut out) = (Writer::starting_at(64 + 100 * by), Vec::new());
    writer.value(bytes, &mut out).expect("a value");
    out
}

/// Each value is of another type, which no definition describes.
#[test]
fn values_of_undefined_types_hold_a_bounded_amount_of_memory() {
    let (mut reader, mut inbox) = (Reader::new(Limits::default()), BytesMut::new());
    for id in 0..100_000 {
        let mut message = Vec::new();
        number::put_int(&mut message, 1_000 + id);
        message.push(0);
        inbox.extend_from_slice(&[u8::try_from(message.len()).expect("a short message")]);
        inbox.extend_from_slice(&message);
        assert!(reader.next(&mut inbox).expect("a stream").is_some());
    }
    let held = reader.held();
    assert!((1..256 << 10).contains(&held), "{held}");
}

/// Returns the values of a stream that arrives in these pieces.
fn heard(pieces: &[&[u8]]) -> Vec<Bytes> {
    let (mut reader, mut inbox) = (Reader::new(Limits::default()), BytesMut::new());
    let mut values = Vec::new();
    for piece in pieces {
        inbox.extend_from_slice(piece);
        while let Some(value) = reader.next(&mut inbox).expect("a stream") {
            values.push(value.into_bytes());
        }
        let wanted = reader.wanted();
        assert!(wanted == 0 || wanted > inbox.len(), "wants {wanted} bytes and has {}", inbox.len());
    }
    assert!(!reader.is_mid_value() && inbox.is_empty());
    values
}

#[test]
fn integers_keep_their_sign_and_their_range() {
    #[derive(Deserialize, Debug, PartialEq)]
    struct Unsigned {
        #[serde(rename = "A")]
        _a: u64,
    }
    #[derive(Deserialize, Debug, PartialEq)]
    struct Small {
        #[serde(rename = "A")]
        _a: i8,
    }
    let bytes = to_vec(&Args { a: 300, b: 0 }).expect("a value");
    let error = |error: Error| error.to_string();
    assert_eq!(
        from_slice::<Unsigned>(&bytes).map_err(error),
        Err("wrong type (u64) for received field A (int)".into())
    );
    assert_eq!(from_slice::<Small>(&bytes).map_err(error), Err("value for \"A\" out of range".into()));
    // Even if it is zero and was not sent.
    let zero = to_vec(&Args { a: 0, b: 1 }).expect("a value");
    assert!(from_slice::<Unsigned>(&zero).is_err());
    assert!(from_slice::<f32>(&to_vec(&1e39).expect("a value")).is_err());
    assert_eq!(from_slice::<f32>(&to_vec(&f64::INFINITY).expect("a value")), Ok(f32::INFINITY));
    assert!(from_slice::<String>(&to_vec(&vec![1u8]).expect("a value")).is_err());
    assert!(from_slice::<Vec<u8>>(&to_vec(&"text".to_owned()).expect("a value")).is_err());
}

#[test]
fn unknown_fields_are_skipped_and_missing_fields_are_zero() {
    #[derive(Deserialize, Debug, PartialEq)]
    #[serde(rename_all = "PascalCase")]
    struct Few {
        ifc: Option<IgnoredAnyway>,
        new: Vec<String>,
        u: u32,
        more: Option<P>,
        other: P,
    }
    #[derive(Deserialize, Debug, PartialEq)]
    struct IgnoredAnyway {}
    let bytes = vector("gob_values.json", "gob_all");
    let few = Few { ifc: Some(IgnoredAnyway {}), new: vec![], u: 200, more: None, other: P::default() };
    assert_eq!(from_slice::<Few>(&bytes), Ok(few));
    assert!(from_slice::<IgnoredAny>(&bytes).is_ok());
    assert!(from_slice::<()>(&bytes).is_ok());
    let error = from_slice::<Reply>(&vector("gob_values.json", "gob_args")).unwrap_err();
    assert_eq!(error.to_string(), "type mismatch: no fields matched compiling decoder");
}

#[test]
fn library_types_are_inferred_by_trial_deserialization() {
    #[derive(Serialize, Deserialize, Debug, PartialEq)]
    enum Colour {
        Red,
        Green,
    }
    #[derive(Serialize, Deserialize, Debug, PartialEq)]
    enum Tree {
        Leaf,
        Node(Box<Self>, Box<Self>),
        Named { name: String, of: Vec<Self> },
    }
    #[derive(Serialize, Deserialize, Debug, PartialEq)]
    struct Odd {
        address: IpAddr,
        port: std::num::NonZeroU16,
        colours: Vec<Colour>,
        tree: Tree,
        pair: (String, i64),
        unit: (),
        letter: char,
        any: serde_json::Value,
        after: Option<std::time::Duration>,
        set: std::collections::BTreeSet<u32>,
        time: Time,
        sixteen: [u8; 16],
        nested: Vec<Vec<Option<String>>>,
        map: BTreeMap<i8, Vec<P>>,
    }
    let odd = Odd {
        address: "::2".parse().expect("an address"),
        port: 80.try_into().expect("not zero"),
        colours: vec![Colour::Green, Colour::Red],
        tree: Tree::Node(
            Box::new(Tree::Leaf),
            Box::new(Tree::Named { name: "x".into(), of: vec![Tree::Leaf, Tree::Leaf] }),
        ),
        pair: ("a".into(), -1),
        unit: (),
        letter: 'ß',
        any: json!({"a": [1, "x", null, true, 1.5], "b": {}}),
        after: Some(std::time::Duration::new(1, 2)),
        set: [3, 1].into(),
        time: Time::utc(1_700_000_000, 5),
        sixteen: [200; 16],
        nested: vec![vec![], vec![Some("y".into())]],
        map: [(-3, vec![p(1, 2, "3")])].into(),
    };
    let bytes = to_vec(&odd).expect("a value");
    assert_eq!(from_slice::<Odd>(&bytes).as_ref(), Ok(&odd));
    let mut out = Vec::new();
    Writer::new().encode(&odd, &mut out).expect("a value");
    assert_eq!(from_slice::<Odd>(&out).as_ref(), Ok(&odd));
    assert_eq!(from_slice::<Odd>(&to_vec_plain(&odd).expect("a value")).as_ref(), Ok(&odd));
}

#[test]
fn types_without_a_go_equivalent_are_errors() {
    let missing = to_vec(&vec![Some(1), None]).unwrap_err();
    assert_eq!(missing.to_string(), "encodeArray: nil element");
    assert!(to_vec(&1u128).is_err());
    let mut writer = Writer::new();
    let mut out = b"before".to_vec();
    assert!(writer.encode(&vec![Some(1), None], &mut out).is_err());
    assert!(writer.value(b"\x05\xff\x80\x00\x01", &mut out).is_err());
    assert!(writer.value(b"", &mut out).is_err());
    assert_bytes(&out, b"before");
}

#[test]
fn times_equal_those_of_go() {
    for text in [
        "2023-11-14T22:13:20.000000005Z",
        "1969-12-31T23:59:59.5Z",
        "2024-02-29T12:00:00+05:30",
        "1900-03-01T00:00:00-11:00",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999999Z",
        "-4517-05-08T19:12:17.4Z",
        "123456-05-08T00:00:00Z",
    ] {
        let time: Time = text.parse().expect("a time");
        assert_eq!(time.to_string(), text);
        assert_eq!(from_slice::<Time>(&to_vec(&time).expect("a value")), Ok(time));
        assert_eq!(from_slice::<String>(&to_vec(&time).expect("a value")), Ok(text.into()));
    }
    for text in [
        "",
        "2023-02-29T00:00:00Z",
        "2023-01-01T24:00:00Z",
        "2023-01-01",
        "x",
        "2023-01-01T00:00:00+1:00",
        "999999999999-01-01T00:00:00Z",
        "0-0-0T0:0:0Z",
    ] {
        assert!(text.parse::<Time>().is_err(), "{text}");
    }
}

#[test]
fn bytes_and_times_are_read_into_untyped_values() {
    #[derive(Serialize, Deserialize)]
    enum Any {
        #[serde(rename = "[]uint8")]
        Bytes(Vec<u8>),
        #[serde(rename = "time.Time")]
        Time(Time),
    }

    let time = "2023-11-14T22:13:20.000000005Z";
    let held = vec![Any::Bytes(vec![1, 2, 255]), Any::Time(time.parse().expect("a time"))];
    let bytes = to_vec(&held).expect("a value");
    assert_eq!(from_slice(&bytes), Ok(json!([[1, 2, 255], time])));
}

#[test]
fn values_are_printed_as_json_as_in_go() {
    for (name, want) in [
        ("gob_args", r#"{"A":7,"B":8}"#),
        ("gob_struct_zero", r#"{"X":0,"Y":0,"Name":""}"#),
        ("gob_map", r#"{"k":5}"#),
        ("gob_bytes", r#""AQID""#),
        ("gob_float_17", "17"),
        ("gob_interface_split", r#"{"V":{"A":5,"L":["x"]},"S":[7,"s",null,[1.5]]}"#),
        ("gob_recursive", r#"{"V":1,"Next":{"V":2,"Next":null}}"#),
    ] {
        assert_eq!(to_json(&vector("gob_values.json", name)).as_deref(), Ok(want), "{name}");
    }
    for (value, want) in
        [(f64::NAN, r#""NaN""#), (f64::INFINITY, r#""+Inf""#), (f64::NEG_INFINITY, r#""-Inf""#)]
    {
        assert_eq!(to_json(&to_vec(&value).expect("a value")).as_deref(), Ok(want), "{value}");
    }
}

#[test]
fn json_is_encoded_as_gob() {
    let args = from_json(br#"{"A":7,"B":8}"#).expect("a value");
    assert_eq!(from_slice::<Args>(&args), Ok(Args { a: 7, b: 8 }));
    for text in [
        "7",
        "\"x\"",
        "true",
        "[1,2]",
        "[1.5,2]",
        "[1,null]",
        r#"[{"A":1,"B":"x"},{"A":0,"B":""}]"#,
        r#"{"A":[1,"x",{"k":[null,18446744073709551615]}],"B":{"C":[[1],[2]]}}"#,
        r#"{"U":18446744073709551615}"#,
    ] {
        let bytes = from_json(text.as_bytes()).expect(text);
        assert_eq!(to_json(&bytes).as_deref(), Ok(text));
    }
    assert!(from_json(b"null").is_err());
    assert!(from_json(b"{").is_err());
}

#[test]
fn invalid_type_definitions_are_rejected() {
    for (stream, why) in [
        // A number that is in use, or reserved.
        ("0b 7f 0201 02 ff80 00 0104 0000  0b 7f 0201 02 ff80 00 0104 0000", "duplicate type received"),
        ("04 05 0201 00", "duplicate type received"),
        // Two kinds at once, and none.
        ("14 7f 01 0102ff8000 0104 00 01 0102ff8000 0104 00 00", "a type definition defines two types"),
        ("02 7f 00", "a type definition is empty"),
        ("02 7f 09", "bad data: field numbers out of bounds"),
        // More fields than bytes.
        ("07 7f 03 02 ff ff 01 00", "length exceeds input size"),
        // Extra bytes after the definition.
        ("0c 7f 0201 02ff8000 0104 0000 00", "extra data in buffer"),
        ("00", "unexpected EOF"),
        ("f7 00 00 00 00 00 00 00 00 00", "encoded unsigned integer out of range"),
        ("f8 7f ff ff ff ff ff ff ff", "a message of 9223372036854775807 bytes"),
    ] {
        let mut inbox = BytesMut::from(&hex(stream)[..]);
        let mut reader = Reader::new(Limits::default());
        let error = loop {
            match reader.next(&mut inbox) {
                Ok(Some(_)) => {}
                Ok(None) => panic!("{stream} is taken"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.to_string(), why, "{stream}");
    }
}

#[test]
fn unreadable_value_does_not_break_the_stream() {
    // An unknown type, a truncated struct, then a valid one.
    let stream = hex("03 ff8800  04 04 00 fe 05  04 04 00 0e ff  08 0c 00 05 68656c6c6f");
    let (mut reader, mut inbox) = (Reader::new(Limits::default()), BytesMut::from(&stream[..]));
    let mut next = || reader.next(&mut inbox).expect("a stream").expect("a value");
    let unknown = next();
    assert_eq!(unknown.decode::<P>(), Err(Error::unknown_type()));
    assert_eq!(from_slice::<P>(&unknown.into_bytes()), Err(Error::unknown_type()));
    assert_eq!(next().decode::<i64>(), Err(Error::truncated()));
    // Like Go, bytes after a value in its message are ignored.
    assert_eq!(next().decode::<i64>(), Ok(7));
    assert_eq!(next().decode::<String>(), Ok("hello".into()));
}

#[test]
fn announced_sizes_and_counts_are_limited() {
    let limits = Limits { message: 64, types: 2, definitions: 64, depth: 3 };
    let refuses = |bytes: &[u8]| {
        let mut reader = Reader::new(limits.clone());
        let mut inbox = BytesMut::from(bytes);
        loop {
            match reader.next(&mut inbox) {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(error) => return Some(error.to_string()),
            }
        }
    };
    assert_eq!(refuses(&[65]), Some("a message of 65 bytes".into()));
    assert_eq!(refuses(&[64]), None);
    let slice = |id: i32| {
        let mut out = Vec::new();
        types::define(&mut out, id, "", &types::Shape::Slice { elem: id });
        out
    };
    let three: Vec<u8> = (64..67).flat_map(slice).collect();
    assert_eq!(refuses(&three), Some("more than 2 types".into()));
    let mut long = Vec::new();
    types::define(&mut long, 64, &"x".repeat(50), &types::Shape::Slice { elem: 64 });
    assert_eq!(
        refuses(&[&long[..], &slice(65)].concat()),
        Some("definitions of types take more than 64 bytes".into())
    );

    // A list of lists of lists that contains itself.
    let mut body = hex("ff8000").to_vec();
    body.extend([1; 200]);
    body.push(0);
    let mut deep = slice(64);
    number::put_bytes(&mut deep, &body);
    assert_eq!(from_slice::<IgnoredAny>(&deep), Err(Error::too_deep()));
    assert_eq!(to_json(&deep), Err(Error::too_deep()));
}

/// Each defined type is visited a few times per value at most, however the types refer to each other.
#[test]
fn cost_of_type_definitions_is_linear_in_their_length() {
    let chain = |ids: &mut dyn Iterator<Item = i32>, last: i32| -> Vec<u8> {
        let ids: Vec<i32> = ids.chain([last]).collect();
        let mut out = Vec::new();
        for pair in ids.windows(2) {
            types::define(&mut out, pair[0], "", &types::Shape::Slice { elem: pair[1] });
        }
        out
    };
    // From the last number to the first, with an interface at the end.
    let definitions = chain(&mut (100..4000).rev(), types::id::INTERFACE);
    let mut empty = Vec::new();
    number::put_bytes(&mut empty, &[&hex("fe1f3e")[..], &[0, 0]].concat());
    let (mut reader, mut inbox) = (Reader::new(Limits::default()), BytesMut::from(&definitions[..]));
    let begun = Instant::now();
    for _ in 0..2_000 {
        inbox.extend_from_slice(&empty);
        assert!(reader.next(&mut inbox).expect("a stream").is_some());
    }
    // Chains of two thousand each, which differ in their last part only.
    let mut writer = Writer::new();
    let mut out = Vec::new();
    for last in [types::id::INT, types::id::STRING] {
        let mut body = chain(&mut (64..2000), last);
        number::put_bytes(&mut body, &[&hex("ff80")[..], &[0, 0]].concat());
        writer.value(&body, &mut out).expect("a value");
    }
    // A fraction of a second; minutes if it were quadratic.
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn damaged_stream_never_panics() {
    for (_, bytes) in values() {
        damage(&bytes, |damaged| {
            let _ = from_slice::<Every>(damaged);
            let _ = from_slice::<W>(damaged);
            let _ = from_slice::<serde_json::Value>(damaged);
        });
    }
}

#[test]
fn every_vector_is_decoded_printed_and_encoded() {
    for (name, bytes) in values() {
        let (mut reader, mut inbox) = (Reader::new(Limits::default()), BytesMut::from(&bytes[..]));
        let (mut writer, mut sent, mut shown) = (Writer::new(), BytesMut::new(), Vec::new());
        while let Some(value) = reader.next(&mut inbox).expect(&name) {
            value.decode::<IgnoredAny>().expect(&name);
            let body = value.into_bytes();
            shown.push(to_json(&body).expect(&name));
            let mut out = Vec::new();
            writer.value(&body, &mut out).expect(&name);
            sent.extend_from_slice(&out);
        }
        assert!(inbox.is_empty() && !shown.is_empty(), "{name}");
        let mut reader = Reader::new(Limits::default());
        for shown in shown {
            let value = reader.next(&mut sent).expect(&name).expect(&name);
            assert_eq!(to_json(&value.into_bytes()), Ok(shown), "{name}");
        }
    }
}

#[test]
fn self_encoded_values_equal_those_of_go() {
    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    #[serde(rename_all = "PascalCase")]
    struct Transfer {
        amount: SelfEncoded<BigInt>,
        from: SelfEncoded<NetipAddr>,
        page: SelfEncoded<Url>,
        note: String,
        peer: Option<SelfEncoded<BigInt>>,
    }

    let transfer = Transfer {
        amount: (-123_456_789_012_345_678_901_234_567_890).into(),
        from: IpAddr::from([192, 0, 2, 7]).into(),
        page: "http://a.example/b?c=d".into(),
        note: "n".to_owned(),
        peer: Some(7.into()),
    };
    // Written by Go 1.24: struct { Amount big.Int; From netip.Addr; Page url.URL; Note string; Peer *big.Int }.
    let theirs = hex(
        "487f030101085472616e7366657201ff800001050106416d6f756e7401ff8200010446726f6d01ff840001045061676501ff860001044e6f\
         7465010c0001045065657201ff820000000fff8105010103496e7401ff8200000010ff83060101044164647201ff840000000fff85060101\
         0355524c01ff8600000014ff870301010855736572696e666f01ff8800000038ff80010e03018ee90ff6c373e0ee4e3f0ad20104c0000207\
         0116687474703a2f2f612e6578616d706c652f623f633d6401016e0102020700",
    );
    assert_eq!(from_slice::<Transfer>(&theirs).as_ref(), Ok(&transfer));
    let written = to_vec(&transfer).expect("Go has all of these");
    let plain = to_vec_plain(&transfer).expect("and a value shows what it is");
    let (mut ours, mut learned, mut expected) = (Vec::new(), Vec::new(), Vec::new());
    Writer::new().value(&written, &mut ours).expect("what was written just now");
    Writer::new().value(&plain, &mut learned).expect("what was written just now");
    Writer::new().value(&theirs, &mut expected).expect("what Go wrote");
    // Go also defines `url.Userinfo`, of which no value follows.
    let defines_no_more = |bytes: &[u8]| bytes.windows(8).all(|part| part != b"Userinfo");
    assert!(defines_no_more(&ours));
    assert!(ours == learned || from_slice::<Transfer>(&plain).as_ref() == Ok(&transfer));
    let value = |bytes: &[u8]| bytes[bytes.len() - 0x38..].to_vec();
    assert_eq!(value(&ours), value(&expected));
    assert_eq!(from_slice::<Transfer>(&written), Ok(transfer));
}

#[test]
fn content_of_self_encoded_values_is_decoded() {
    for value in [0, 1, -1, 255, 256, i128::from(u64::MAX), i128::MAX, i128::MIN] {
        let own: SelfEncoded<BigInt> = value.into();
        assert_eq!(i128::try_from(&own), Ok(value));
    }
    assert_eq!(SelfEncoded::<BigInt>::from(7).as_bytes(), [2, 7]);
    assert_eq!(SelfEncoded::<BigInt>::from(-7).as_bytes(), [3, 7]);
    assert_eq!(SelfEncoded::<BigInt>::from(0).as_bytes(), [2]);
    assert!(i128::try_from(&SelfEncoded::<BigInt>::from_magnitude(false, &[0x80; 17])).is_err());
    assert!(SelfEncoded::<BigInt>::from_bytes([9, 1]).magnitude().is_err());
    for address in ["192.0.2.7", "2001:db8::1"] {
        let address: IpAddr = address.parse().unwrap();
        assert_eq!(SelfEncoded::<NetipAddr>::from(address).to_ip(), Ok(Some(address)));
    }
    assert_eq!(SelfEncoded::<NetipAddr>::default().to_ip(), Ok(None));
    assert_eq!(<[u8; 16]>::try_from(&SelfEncoded::<Uuid>::from([5; 16])), Ok([5; 16]));
}

#[test]
fn self_encoded_value_in_an_interface_is_named_by_an_enum() {
    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    enum Held {
        #[serde(rename = "*big.Int")]
        Int(SelfEncoded<BigInt>),
        #[serde(rename = "string")]
        Text(String),
    }

    let held = vec![Held::Int(7.into()), Held::Text("x".to_owned())];
    let written = to_vec(&held).expect("interfaces");
    assert_eq!(from_slice::<Vec<Held>>(&written), Ok(held));
    // Nothing else would identify the type for Go.
    let refused = to_vec_plain(&(vec![SelfEncoded::<BigInt>::from(7)], 1)).and_then(|_| {
        #[derive(Serialize)]
        #[serde(untagged)]
        enum Either {
            Int(SelfEncoded<BigInt>),
            Text(&'static str),
        }
        to_vec_plain(&vec![Either::Int(7.into()), Either::Text("x")])
    });
    assert!(refused.unwrap_err().to_string().contains("must be a variant of an enum"));
}

#[test]
fn unsupported_shape_error_names_the_type() {
    #[derive(Serialize, Deserialize)]
    struct Inner {
        a: i32,
    }

    #[derive(Serialize, Deserialize)]
    struct Flat {
        #[serde(flatten)]
        inner: Inner,
        b: i32,
    }

    assert_eq!(check::<Inner>(), Ok(()));
    let error = check::<Flat>().unwrap_err().to_string();
    assert!(error.contains("Flat cannot be described: "), "{error}");
    assert!(check::<i128>().is_err());
}
