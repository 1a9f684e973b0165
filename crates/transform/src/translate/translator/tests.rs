//! Known answers, refusals and properties of translations between all formats.

use polyrpc::payload::schema::Pool;
use polyrpc::payload::transcode;
use protox::Compiler;
use protox::file::{File, FileResolver};

use super::*;
use crate::{SchemaSource, Schemas};

struct Source;

impl FileResolver for Source {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match name {
            "shop.proto" => File::from_source(name, SHOP),
            _ => protox::file::GoogleFileResolver::new().open_file(name),
        }
    }
}

const SHOP: &str = r#"
    syntax = "proto3";
    package shop;
    enum Colour { RED = 0; GREEN = 1; }
    message Item { string name = 1; int32 price = 2; Colour colour = 3; bytes image = 4; }
    message Order { int64 id = 1; repeated Item items = 2; double weight = 3; string note = 4; }
    message Receipt { int64 total = 1; }
    message Pair { int32 a = 1; int32 b = 2; }
    message Sum { int32 value = 1; }
    message Flag { bool on = 1; }
    service Shop { rpc Buy(Order) returns (Receipt); }
    service Calc { rpc add(Pair) returns (Sum); rpc invert(Flag) returns (Flag); }
"#;

const SHOP_FBS: &str = r#"
    namespace shop;
    enum Colour : byte { RED = 0, GREEN = 1 }
    table Item { name: string; price: int; colour: Colour; image: [ubyte]; }
    table Order { id: long; items: [Item]; weight: double; }
    table Receipt { total: long; }
    rpc_service Shop { Buy(Order): Receipt; }
"#;

/// The order `{id: 7, items: [{name: "tea", price: -3, colour: GREEN, image: [1, 2]}], weight: 0.5}`.
const ORDER: &[u8] =
    b"\x08\x07\x12\x16\x0a\x03tea\x10\xfd\xff\xff\xff\xff\xff\xff\xff\xff\x01\x18\x01\x22\x02\x01\x02\x19\0\0\0\0\0\0\xe0\x3f";

fn schemas() -> Schemas {
    schemas_with(SHOP_FBS)
}

fn schemas_with(shop_fbs: &str) -> Schemas {
    let mut compiler = Compiler::with_file_resolver(Source);
    compiler.include_imports(true).open_file("shop.proto").unwrap();
    let mut schemas = Schemas::new();
    schemas.add_proto(SchemaSource::new(&compiler.encode_file_descriptor_set(), "shop.proto").unwrap());
    schemas.add_fbs_text("shop.fbs", shop_fbs).unwrap();
    schemas.add_function("add(int32, int32) -> int32").unwrap();
    schemas.add_function("invert(bool) -> bool").unwrap();
    schemas
}

fn pool() -> Pool {
    let mut compiler = Compiler::with_file_resolver(Source);
    compiler.open_file("shop.proto").unwrap();
    Pool::decode(&compiler.encode_file_descriptor_set()).unwrap()
}

fn translator(direction: Direction, from: Format, to: Format, target: &str) -> Translator {
    Translator::new(direction, from, to, &schemas().method(target, false), Options::default()).unwrap()
}

fn translate(direction: Direction, from: Format, to: Format, target: &str, bytes: &[u8]) -> Body {
    let body = Body::new(from, bytes.to_vec());
    translator(direction, from, to, target).translate(body).unwrap().body
}

const JSON: Format = Format::Json(Json::Proto3);
const BRPC: Format = Format::Json(Json::Brpc);

#[test]
fn equal_formats_share_the_bytes() {
    for format in [
        Format::Protobuf,
        JSON,
        Format::Gob,
        Format::RestRpc,
        Format::FlatBuffers,
        Format::Raw,
        Format::Other(4),
    ] {
        let none = MethodSchema::default();
        let translator =
            Translator::new(Direction::Request, format, format, &none, Options::default()).unwrap();
        assert!(translator.is_identity());
        let bytes = Bytes::from_static(b"\xffnot a message");
        let body = translator.translate(Body::new(format, bytes.clone())).unwrap().body;
        assert_eq!(body.bytes.as_ptr(), bytes.as_ptr(), "{format:?}");
    }
}

#[test]
fn order_reads_the_same_in_every_format() {
    let json =
        r#"{"id":"7","items":[{"name":"tea","price":-3,"colour":"GREEN","image":"AQI="}],"weight":0.5}"#;
    let written = translate(Direction::Request, Format::Protobuf, JSON, "Shop/Buy", ORDER);
    assert_eq!(std::str::from_utf8(&written.bytes), Ok(json));
    let formats = [
        JSON,
        BRPC,
        Format::Json(Json::Go),
        Format::ProtoText,
        Format::MessagePack,
        Format::Gob,
        Format::FlatBuffers,
    ];
    for there in formats {
        let one = translate(Direction::Request, Format::Protobuf, there, "Shop/Buy", ORDER);
        assert_eq!(one.format, there);
        for back in formats {
            // Plain FlatBuffers and JSON follow flatc, which has no base64.
            if [there, back].contains(&Format::FlatBuffers) && there != back {
                continue;
            }
            let two = translate(Direction::Request, there, back, "Shop/Buy", &one.bytes);
            let home = translate(Direction::Request, back, Format::Protobuf, "Shop/Buy", &two.bytes);
            assert_eq!(home.bytes, ORDER, "{there:?} {back:?}");
        }
    }
}

#[test]
fn flatbuffers_become_the_json_of_flatc() {
    let json = r#"{"id":7,"items":[{"name":"tea","price":-3,"colour":"GREEN","image":[1,2]}],"weight":0.5}"#;
    let message = translate(Direction::Request, JSON, Format::FlatBuffers, "Shop/Buy", json.as_bytes());
    let back = translate(Direction::Request, Format::FlatBuffers, BRPC, "Shop/Buy", &message.bytes);
    assert_eq!(std::str::from_utf8(&back.bytes), Ok(json));
    let protobuf =
        translate(Direction::Request, Format::FlatBuffers, Format::Protobuf, "Shop/Buy", &message.bytes);
    assert_eq!(protobuf.bytes, ORDER);
}

#[test]
fn arguments_of_functions_are_fields_in_order() {
    let (request, response) = (Direction::Request, Direction::Response);
    let pair = translate(request, Format::Protobuf, Format::RestRpc, "Calc/add", b"\x08\x07\x10\x08");
    assert_eq!(&pair.bytes[..], b"\x8c\x90\x45\x40\x07\0\0\0\x08\0\0\0");
    assert!(pair.positional);
    let pair = translate(request, Format::RestRpc, Format::Protobuf, "Calc/add", &pair.bytes);
    assert_eq!(&pair.bytes[..], b"\x08\x07\x10\x08");
    let sum = translate(response, Format::RestRpc, Format::Protobuf, "Calc/add", b"15");
    assert_eq!(&sum.bytes[..], b"\x08\x0f");
    let sum = translate(response, Format::Protobuf, Format::RestRpc, "Calc/add", b"\x08\x0f");
    assert_eq!(&sum.bytes[..], b"15");
    // A field that is not set is zero.
    let pair = translate(request, Format::Protobuf, Format::MessagePackArray, "Calc/add", b"\x10\x08");
    assert_eq!(&pair.bytes[..], b"\x92\x00\x08");
    let pair = translate(request, JSON, Format::MessagePackArray, "add", b"[7, 8]");
    assert_eq!(&pair.bytes[..], b"\x92\x07\x08");
    let pair = translate(request, Format::MessagePackArray, Format::RestRpc, "add", &pair.bytes);
    assert_eq!(&pair.bytes[..], b"\x8c\x90\x45\x40\x07\0\0\0\x08\0\0\0");
    let wrong = translator(request, JSON, Format::RestRpc, "add").translate(Body::new(JSON, &b"[7]"[..]));
    assert_eq!(wrong.unwrap_err().to_string(), "the function takes a list of 2 arguments");
}

#[test]
fn list_of_other_length_than_the_arguments_is_refused() {
    let array = Format::MessagePackArray;
    for (target, to) in [("Calc/add", Format::Protobuf), ("Calc/add", JSON), ("add", JSON)] {
        let translator = translator(Direction::Request, array, to, target);
        for (sent, count) in [(&b""[..], 0), (b"\x90", 0), (b"\x91\x07", 1), (b"\x93\x07\x08\x09", 3)] {
            let refused = translator.translate(Body::new(array, sent)).unwrap_err().to_string();
            let wanted = format!("the function takes a list of 2 arguments, not of {count}");
            assert_eq!(refused, wanted, "{target} {to:?}");
        }
        assert!(translator.translate(Body::new(array, &b"\x92\x07\x08"[..])).is_ok(), "{target} {to:?}");
    }
}

#[test]
fn boolean_of_rest_rpc_is_a_number_in_text() {
    let (request, response) = (Direction::Request, Direction::Response);
    for (json, text) in [("true", "1"), ("false", "0")] {
        let list = format!("[{json}]");
        for (direction, json) in [(request, list.as_str()), (response, json)] {
            let there = translate(direction, JSON, Format::RestRpc, "invert", json.as_bytes());
            assert_eq!(there.bytes, text, "{direction:?} {json}");
            let back = translate(direction, Format::RestRpc, JSON, "invert", &there.bytes);
            assert_eq!(back.bytes, json, "{direction:?} {json}");
        }
    }
    for direction in [request, response] {
        let flag = translate(direction, Format::RestRpc, Format::Protobuf, "Calc/invert", b"1");
        assert_eq!(&flag.bytes[..], b"\x08\x01", "{direction:?}");
        let text = translate(direction, Format::Protobuf, Format::RestRpc, "Calc/invert", &flag.bytes);
        assert_eq!(text.bytes, "1", "{direction:?}");
        let wrong = translator(direction, Format::RestRpc, Format::Protobuf, "Calc/invert");
        assert!(wrong.translate(Body::new(Format::RestRpc, &b"2"[..])).is_err(), "{direction:?}");
    }
}

#[test]
fn names_of_a_proto_are_arguments_in_every_format() {
    let mut schemas = schemas();
    let calc = "namespace shop; table Pair { a: int; b: int; } table Sum { value: int; } rpc_service Calc { add(Pair): Sum; }";
    schemas.add_fbs_text("calc.fbs", calc).unwrap();
    let schema = || schemas.method("Calc/add", false);
    let translate = |direction, from, to, bytes: &[u8]| {
        let translator = Translator::new(direction, from, to, &schema(), Options::default()).unwrap();
        translator.translate(Body::new(from, bytes.to_vec())).unwrap().body.bytes
    };
    let (pair, sum) = (&b"\x08\x07\x10\x08"[..], &b"\x08\x0f"[..]);
    let (request, response) = (Direction::Request, Direction::Response);
    for named in [JSON, Format::Json(Json::Go), Format::MessagePack, Format::Gob, Format::FlatBuffers] {
        for list in [Format::MessagePackArray, Format::RestRpc, Format::StructPack] {
            let sent = translate(request, Format::Protobuf, named, pair);
            let arguments = translate(request, named, list, &sent);
            assert_eq!(translate(request, list, Format::Protobuf, &arguments), pair, "{named:?} {list:?}");
            assert_eq!(translate(request, list, named, &arguments), sent, "{named:?} {list:?}");
            let result = translate(response, Format::Protobuf, list, sum);
            let answer = translate(response, list, named, &result);
            assert_eq!(translate(response, named, Format::Protobuf, &answer), sum, "{named:?} {list:?}");
        }
    }
    // Lists still need no names.
    assert_eq!(&translate(request, JSON, Format::MessagePackArray, b" [7, 8]")[..], b"\x92\x07\x08");
    assert_eq!(
        &translate(request, Format::MessagePack, Format::RestRpc, b"\x92\x07\x08")[..],
        b"\x8c\x90\x45\x40\x07\0\0\0\x08\0\0\0"
    );
}

#[test]
fn impossible_pairs_are_refused_with_what_is_missing() {
    let schemas = schemas();
    let reason = |from, to, target: &str| {
        let schema = schemas.method(target, false);
        Translator::new(Direction::Request, from, to, &schema, Options::default())
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    let (gob, msgpack, array) = (Format::Gob, Format::MessagePack, Format::MessagePackArray);
    for (from, to, target, text) in [
        (
            JSON,
            Format::Protobuf,
            "No/Such",
            "json cannot become protobuf without a .proto that declares the method",
        ),
        (JSON, gob, "No/Such", "json cannot become gob without a .proto that declares the method"),
        (
            Format::Protobuf,
            msgpack,
            "No/Such",
            "protobuf cannot become msgpack without a .proto that declares the method",
        ),
        (
            Format::FlatBuffers,
            JSON,
            "No/Such",
            "flatbuffers cannot become json without a .fbs that declares the method",
        ),
        (
            JSON,
            array,
            "No/Such",
            "json cannot become msgpack-array without the declared types of the function",
        ),
        (gob, array, "add", "gob cannot become msgpack-array without a .proto that declares the method"),
        (
            Format::FlatBuffers,
            Format::RestRpc,
            "Shop/Buy",
            "flatbuffers cannot become rest_rpc without the declared types of the function",
        ),
        (Format::Raw, JSON, "Shop/Buy", "raw cannot become json"),
        (Format::Protobuf, Format::Other(4), "Shop/Buy", "protobuf cannot become other"),
    ] {
        assert_eq!(reason(from, to, target), text);
    }
}

#[test]
fn schemas_that_differ_are_refused() {
    let mut schemas = schemas();
    schemas.add_function("Buy(int32) -> int32").unwrap();
    let other = "namespace calc; table Pair { a: string; } table Sum { value: int; } rpc_service Calc { add(Pair): Sum; }";
    schemas.add_fbs_text("calc.fbs", other).unwrap();
    let refused = |from, to, target: &str| {
        let schema = schemas.method(target, false);
        Translator::new(Direction::Request, from, to, &schema, Options::default()).unwrap_err().reason
    };
    let different = "calc.Pair.a and shop.Pair.a have different types".to_owned();
    assert_eq!(refused(Format::Protobuf, Format::FlatBuffers, "Calc/add"), Reason::Mismatch(different));
    let count = "shop.Order has 4 fields, and the function 1 arguments".to_owned();
    assert_eq!(refused(Format::Protobuf, Format::RestRpc, "Shop/Buy"), Reason::Mismatch(count));
}

#[test]
fn defaults_that_differ_are_refused() {
    let (protobuf, table) = (Format::Protobuf, Format::FlatBuffers);
    for (declared, changed, refused) in [
        ("id: long", "id: long = 0", None),
        ("id: long", "id: long = null", None),
        ("id: long", "id: long = 7", Some("shop.Order.id")),
        ("weight: double", "weight: double = 0.0", None),
        ("weight: double", "weight: double = 1.5", Some("shop.Order.weight")),
        ("colour: Colour", "colour: Colour = RED", None),
        ("colour: Colour", "colour: Colour = GREEN", Some("shop.Item.colour")),
        ("name: string", "name: string = \"x\"", Some("shop.Item.name")),
    ] {
        let schemas = schemas_with(&SHOP_FBS.replace(declared, changed));
        for (from, to) in [(protobuf, table), (table, protobuf)] {
            let schema = schemas.method("Shop/Buy", false);
            let planned = Translator::new(Direction::Request, from, to, &schema, Options::default());
            let reason = planned.err().map(|error| error.reason);
            let different =
                |field: &str| Reason::Mismatch(format!("{field} and {field} have different defaults"));
            assert_eq!(reason, refused.map(different), "{changed}");
        }
        // Without a .proto the defaults are those of the .fbs on both sides.
        let schema = schemas.method("Shop/Buy", false);
        assert!(Translator::new(Direction::Request, JSON, table, &schema, Options::default()).is_ok());
    }
}

#[test]
fn losses_are_refused_or_counted() {
    let schemas = schemas();
    let unknown_field = [ORDER, b"\x98\x06\x01"].concat();
    let wide = br#"{"id":1,"more":2,"items":[{"name":"x","size":3}]}"#;
    for (from, to, bytes) in [
        (Format::Protobuf, JSON, &unknown_field[..]),
        (JSON, Format::Protobuf, wide),
        (JSON, Format::FlatBuffers, wide),
        (Format::Protobuf, Format::FlatBuffers, &b"\x22\x01x"[..]),
    ] {
        let schema = schemas.method("Shop/Buy", false);
        let with = |on_loss| {
            let options = Options { on_loss, ..Options::default() };
            let translator = Translator::new(Direction::Request, from, to, &schema, options).unwrap();
            translator.translate(Body::new(from, bytes.to_vec()))
        };
        assert!(with(OnLoss::Reject).is_err(), "{from:?} {to:?}");
        let lost = with(OnLoss::Count).unwrap().lost;
        assert_eq!(lost, if bytes == wide { 2 } else { 1 }, "{from:?} {to:?}");
    }
    // The text says which one is the first.
    let refused = translator(Direction::Request, JSON, Format::Protobuf, "Shop/Buy")
        .translate(Body::new(JSON, wide.to_vec()));
    let text = refused.unwrap_err().to_string();
    assert!(text.starts_with("2 parts of the message cannot be expressed in protobuf: "), "{text}");
    assert!(text.contains("`more`"), "{text}");
    let none = MethodSchema::default();
    let plain =
        Translator::new(Direction::Request, Format::MessagePack, JSON, &none, Options::default()).unwrap();
    for extension in [&b"\xd4\x05\x00"[..], b"\xa1\xff", b"\xcb\x7f\xf0\0\0\0\0\0\0"] {
        let refused = plain.translate(Body::new(Format::MessagePack, extension)).unwrap_err();
        assert_eq!(refused.to_string(), "1 part of the message cannot be expressed in json");
    }
    let range = translator(Direction::Request, JSON, Format::FlatBuffers, "Shop/Buy")
        .translate(Body::new(JSON, &br#"{"items":[{"price":3000000000}]}"#[..]));
    assert!(range.unwrap_err().to_string().contains("items[0].price: 3000000000 is not a valid i32"));
}

#[test]
fn results_are_bounded() {
    // 100,000 empty items take 200 kB; in MessagePack each has all its fields.
    let items: Vec<u8> = b"\x12\x00".repeat(100_000);
    let schema = schemas().method("Shop/Buy", false);
    let options = Options { max_size: 1 << 20, ..Options::default() };
    let translator =
        Translator::new(Direction::Request, Format::Protobuf, Format::MessagePack, &schema, options).unwrap();
    let refused = translator.translate(Body::new(Format::Protobuf, items)).unwrap_err();
    assert_eq!(refused.to_string(), "the translated message is larger than 1048576 bytes");
}

/// Numbers of a small generator (Knuth's MMIX).
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn text(&mut self) -> String {
        let letters: Vec<char> = "ab\"\\/\u{7}é漢\u{10ffff}".chars().collect();
        (0..self.below(6)).map(|_| letters[self.below(letters.len() as u64) as usize]).collect()
    }

    fn order(&mut self) -> Value {
        let items: Vec<_> = (0..self.below(4))
            .map(|_| {
                let colour = ["RED", "GREEN"][self.below(2) as usize];
                let image = ["", "AQI=", "/w=="][self.below(3) as usize];
                let price = self.below(1 << 31) as i64 - (1 << 30);
                serde_json::json!({ "name": self.text(), "price": price, "colour": colour, "image": image })
            })
            .collect();
        let weight = self.below(1 << 30) as f64 / 7.0;
        serde_json::json!({ "id": self.below(u64::MAX / 4) as i64, "items": items, "weight": weight })
    }
}

#[test]
fn random_orders_survive_every_round_trip() {
    let (pool, mut random) = (pool(), Random(1));
    let order = pool.message("shop.Order").unwrap();
    let formats = [
        JSON,
        BRPC,
        Format::Json(Json::Go),
        Format::ProtoText,
        Format::MessagePack,
        Format::Gob,
        Format::FlatBuffers,
    ];
    let pairs: Vec<_> = formats
        .into_iter()
        .map(|format| {
            let there = translator(Direction::Request, Format::Protobuf, format, "Shop/Buy");
            (there, translator(Direction::Request, format, Format::Protobuf, "Shop/Buy"))
        })
        .collect();
    for _ in 0..500 {
        let json = random.order().to_string();
        let protobuf = transcode::to_protobuf(&order, BRPC, json.as_bytes()).unwrap();
        for (there, back) in &pairs {
            let there = there.translate(Body::new(Format::Protobuf, protobuf.clone())).unwrap();
            let back = back.translate(there.body).unwrap();
            // The order of the fields may differ.
            let read = |bytes: &[u8]| transcode::from_protobuf(&order, BRPC, bytes).unwrap();
            assert_eq!(read(&back.body.bytes), read(&protobuf), "{json}");
        }
    }
}

#[test]
fn damaged_messages_never_panic() {
    let mut random = Random(7);
    let formats =
        [Format::Protobuf, JSON, Format::ProtoText, Format::MessagePack, Format::Gob, Format::FlatBuffers];
    for from in formats {
        let whole = translate(Direction::Request, Format::Protobuf, from, "Shop/Buy", ORDER).bytes;
        let others: Vec<_> = formats.map(|to| translator(Direction::Request, from, to, "Shop/Buy")).into();
        for _ in 0..300 {
            let mut bytes = whole.to_vec();
            bytes.truncate(1 + random.below(bytes.len() as u64) as usize);
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.below(256) as u8;
            }
            for other in &others {
                // Either is right, as long as it ends.
                let _ = other.translate(Body::new(from, bytes.clone()));
            }
        }
    }
}
