use super::testing::{compile, pool};
use super::*;

const PROTO2: &str = r#"
    syntax = "proto2";
    package p.q;
    message M {
        required int32 id = 1;
        optional string snake_case = 2 [default = "x"];
        repeated sint64 packed = 3 [packed = true];
        repeated fixed32 plain = 4;
        map<string, M> map = 5;
        oneof choice { bool a = 6; bytes b = 7; }
        optional group G = 8 { optional E e = 1; }
        optional string a_Z045_b = 9;
        optional float far = 536870911;
        repeated KV kv = 10;
        extensions 100 to 200;
        message Inner { optional M m = 1; }
    }
    message KV { optional string key = 1; optional int32 value = 2; }
    message Free { optional string text = 1; }
    enum E { option allow_alias = true; TWO = 2; ZERO = 0; NULL = 0; MINUS = -1; }
    extend M { optional int32 ext = 100; }
    service S { rpc Call (M) returns (stream M.Inner); }
"#;

#[test]
fn message_lists_its_fields() {
    let pool = pool(PROTO2);
    let m = pool.message("p.q.M").unwrap();
    assert_eq!((m.full_name(), m.name()), ("p.q.M", "M"));

    let id = m.field(1).unwrap();
    assert_eq!((id.name(), id.full_name(), id.kind()), ("id", "p.q.M.id", Kind::Int32));
    assert!(id.is_required());
    let snake = m.field_named("snake_case").unwrap();
    assert_eq!((snake.json_name(), snake.default_value()), ("snakeCase", Some("x")));
    assert!(!snake.is_utf8_checked() && snake.has_presence());
    assert!(m.field(3).unwrap().is_packed() && !m.field(4).unwrap().is_packed());
    assert!(m.field(5).unwrap().is_map());
    assert_eq!(m.field(6).unwrap().oneof(), Some(0));
    assert!(matches!(m.field(8).unwrap().kind(), Kind::Group(_)));
    assert_eq!(m.field(536_870_911).unwrap().name(), "far");
    assert!(m.field(11).is_none() && m.field(0).is_none() && m.field(u32::MAX).is_none());
    assert!(m.field(10).unwrap().is_map_like() && !m.field(10).unwrap().is_map());

    let ext = m.field(100).unwrap();
    assert_eq!((ext.name(), ext.full_name()), ("[p.q.ext]", "p.q.ext"));
    assert!(ext.is_extension());
}

#[test]
fn field_is_found_by_every_spelling_of_its_name() {
    let pool = pool(PROTO2);
    let m = pool.message("p.q.M").unwrap();
    let find = |spelling, key: &str| {
        let index = m.index_spelled(spelling, key, usize::MAX)?;
        Some(m.fields()[index as usize].number())
    };
    assert_eq!(find(Spelling::Text, "snake_case"), Some(2));
    assert_eq!(find(Spelling::Text, "snakeCase"), None);
    assert_eq!(find(Spelling::Text, "G"), Some(8));
    assert_eq!(find(Spelling::Json, "snakeCase"), Some(2));
    assert_eq!(find(Spelling::Json, "snake_case"), Some(2));
    assert_eq!(find(Spelling::Brpc, "a-b"), Some(9));
    assert_eq!(find(Spelling::Brpc, "a_Z045_b"), None);
    assert_eq!(find(Spelling::Go, "SnakeCase"), Some(2));
    assert_eq!(find(Spelling::Go, "SNAKE_CASE"), Some(2));
    assert_eq!(find(Spelling::Go, &"x".repeat(1000)), None);
    assert_eq!(find(Spelling::Json, "[p.q.ext]"), Some(100));
}

#[test]
fn presence_and_packing_follow_the_syntax() {
    let proto3 = pool(
        "syntax = \"proto3\"; message M { int32 plain = 1; optional int32 asked = 2; M m = 3;
         repeated int32 r = 4; string s = 5; oneof o { int32 x = 6; } E e = 7; } enum E { A = 0; }",
    );
    let m = proto3.message("M").unwrap();
    let presence: Vec<_> = m.fields().iter().map(Field::has_presence).collect();
    assert_eq!(presence, [false, true, true, false, false, true, false]);
    assert!(m.field(4).unwrap().is_packed() && m.field(5).unwrap().is_utf8_checked());
    assert_eq!((m.field(2).unwrap().oneof(), m.oneofs()), (None, 1));
    let Kind::Enum(e) = m.field(7).unwrap().kind() else { panic!("not an enum") };
    assert!(!proto3.enum_type(e).is_closed());
}

#[test]
fn an_enum_maps_names_and_numbers() {
    let pool = pool(PROTO2);
    let e = pool.enums().find(|e| e.full_name() == "p.q.E").unwrap();
    assert!(e.is_closed());
    assert_eq!(e.first(), 2);
    let names: Vec<_> = [2, 0, -1, 1, 7].into_iter().map(|number| e.name(number)).collect();
    assert_eq!(names, [Some("TWO"), Some("ZERO"), Some("MINUS"), None, None]);
    assert_eq!((e.number("NULL"), e.number("null")), (Some(0), None));
}

#[test]
fn service_lists_its_methods() {
    let pool = pool(PROTO2);
    let service = pool.service("p.q.S").unwrap();
    let call = service.methods().next().unwrap();
    assert_eq!((call.name(), call.input().full_name()), ("Call", "p.q.M"));
    assert_eq!(call.output().full_name(), "p.q.M.Inner");
    assert!(call.server_streaming() && !call.client_streaming());
}

#[test]
fn missing_required_field_is_found_at_any_depth() {
    let pool = pool(PROTO2);
    let inner = pool.message("p.q.M.Inner").unwrap();
    assert!(inner.has_required() && !pool.message("p.q.Free").unwrap().has_required());
    assert_eq!(inner.check_required(b""), Ok(()));
    let missing = inner.check_required(b"\x0a\x00").unwrap_err();
    assert_eq!(missing.to_string(), "Missing required field: p.q.M.id");
    assert_eq!(inner.check_required(b"\x0a\x02\x08\x01"), Ok(()));
    // A message in two parts is one message.
    assert_eq!(inner.check_required(b"\x0a\x00\x0a\x02\x08\x01"), Ok(()));
    // The values of maps are separate messages.
    let with_map = b"\x08\x01\x2a\x02\x12\x00\x2a\x04\x12\x02\x08\x01";
    assert!(pool.message("p.q.M").unwrap().check_required(with_map).is_err());
}

#[test]
fn damaged_descriptor_set_never_panics() {
    let set = compile(PROTO2);
    for at in 0..set.len() {
        let _ = Pool::decode(&set[..at]);
        for flip in [0x01, 0x08, 0x80, 0xff] {
            let mut damaged = set.clone();
            damaged[at] ^= flip;
            if let Ok(pool) = Pool::decode(&damaged) {
                for message in pool.messages() {
                    let _ = message.check_required(&set);
                }
            }
        }
    }
}

#[test]
fn endlessly_nested_declarations_are_rejected() {
    let mut message = b"\x0a\x01a".to_vec();
    for _ in 0..1000 {
        let mut outer = b"\x0a\x01a\x1a".to_vec();
        polyrpc_core::protobuf::put_varint(&mut outer, message.len() as u64);
        outer.extend_from_slice(&message);
        message = outer;
    }
    let mut file = b"\x22".to_vec();
    polyrpc_core::protobuf::put_varint(&mut file, message.len() as u64);
    file.extend_from_slice(&message);
    let mut set = b"\x0a".to_vec();
    polyrpc_core::protobuf::put_varint(&mut set, file.len() as u64);
    set.extend_from_slice(&file);
    assert_eq!(Pool::decode(&set).unwrap_err().to_string(), "messages nest too deep");
}

#[test]
fn invalid_descriptors_are_rejected_with_a_reason() {
    let no_import = |set: &[u8]| Pool::decode(set).unwrap_err().to_string();
    assert_eq!(no_import(b"\xff"), "not a set of file descriptors");
    assert_eq!(no_import(b"\x0a\x05\x22\x03\x0a\x01-"), "a descriptor has an impossible name");
    assert_eq!(no_import(b"\x0a\x0a\x22\x03\x0a\x01a\x22\x03\x0a\x01a"), "a is declared twice");
}
