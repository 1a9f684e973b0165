use super::*;

const GO: Format = Format::Json(Json::Go);

const ARITH: &str = r#"
    syntax = "proto3";
    message Args { int32 A = 1; int32 B = 2; }
    message Reply { int32 C = 1; }
    enum E { ZERO = 0; ONE = 1; }
    message All {
        string user_name = 1; int64 big = 2; bytes raw = 3; E e = 4; repeated int32 list = 5;
        map<int32, string> map = 6; Args args = 7; optional int32 asked = 8; bool flag = 9; double d = 10;
        uint64 u = 11; repeated Args many = 12; float f = 13; repeated string texts = 14;
    }
"#;

#[test]
fn rpcx_payloads_captured_from_go_round_trip() {
    let pool = pool(ARITH);
    let (args, reply) = (pool.message("Args").unwrap(), pool.message("Reply").unwrap());
    let request = message(&args, "A: 7 B: 8");
    let response = message(&reply, "C: 56");
    // vectors/rpcx/json.json and msgpack.json
    for (format, sent, answered) in [
        (GO, br#"{"A":7,"B":8}"#.as_slice(), br#"{"C":56}"#.as_slice()),
        (Format::MessagePack, b"\x82\xa1A\x07\xa1B\x08", b"\x81\xa1C\x38"),
    ] {
        assert_eq!(to_protobuf(&args, format, sent).as_ref(), Ok(&request));
        assert_eq!(from_protobuf(&args, format, &request).as_deref(), Ok(sent));
        assert_eq!(to_protobuf(&reply, format, answered).as_ref(), Ok(&response));
        assert_eq!(from_protobuf(&reply, format, &response).as_deref(), Ok(answered));
    }
}

#[test]
fn zero_values_are_written_and_unset_fields_are_not() {
    let pool = pool(ARITH);
    let all = pool.message("All").unwrap();
    assert_eq!(
        from(&all, GO, b"").unwrap(),
        r#"{"user_name":"","big":0,"raw":"","e":0,"flag":false,"d":0,"u":0,"f":0}"#
    );
    let bytes = message(
        &all,
        "big: 9007199254740993 e: ONE list: [1, 2] map { key: 2 value: 'b' } map { key: 1 value: 'a' } args { A: 1 }
         asked: 0 d: 1.5 user_name: '<a>' u: 18446744073709551615 f: 0.1",
    );
    assert_eq!(
        from(&all, GO, &bytes).unwrap(),
        r#"{"user_name":"\u003ca\u003e","big":9007199254740993,"raw":"","e":1,"list":[1,2],"map":{"1":"a","2":"b"},"args":{"A":1,"B":0},"asked":0,"flag":false,"d":1.5,"u":18446744073709551615,"f":0.1}"#
    );
}

#[test]
fn names_are_matched_case_insensitively() {
    let pool = pool(ARITH);
    let all = pool.message("All").unwrap();
    let expected = message(&all, "user_name: 'x'");
    for name in ["user_name", "User_Name", "UserName", "username", "USERNAME"] {
        assert_eq!(to(&all, GO, &format!("{{\"{name}\":\"x\"}}")).as_ref(), Ok(&expected), "{name}");
        let packed = [&[0x81, 0xa0 | name.len() as u8], name.as_bytes(), b"\xa1x"].concat();
        assert_eq!(to_protobuf(&all, Format::MessagePack, &packed).as_ref(), Ok(&expected), "{name}");
    }
}

#[test]
fn go_is_strict_with_numbers() {
    let pool = pool(ARITH);
    let args = pool.message("Args").unwrap();
    for wrong in [r#"{"A":1.0}"#, r#"{"A":"1"}"#, r#"{"A":2147483648}"#, r#"{"A":true}"#] {
        assert!(to(&args, GO, wrong).is_err(), "{wrong}");
    }
    assert_eq!(to(&args, GO, r#"{"A":null,"X":[{}]}"#), Ok(vec![]));
    let all = pool.message("All").unwrap();
    let nan = message(&all, "d: nan");
    assert_eq!(from(&all, GO, &nan).unwrap_err().to_string(), "json: unsupported value: NaN");
    // A client writes ProtoJSON, which has words for it.
    assert_eq!(to(&all, GO, r#"{"d":"NaN"}"#), Ok(nan));
    assert_eq!(to(&all, GO, r#"{"d":"-Infinity"}"#), Ok(message(&all, "d: -inf")));
    assert!(to(&all, GO, r#"{"d":"nan"}"#).is_err());
    assert!(to(&all, GO, r#"{"f":1e300}"#).is_err());
    assert_eq!(to(&all, GO, r#"{"e":"ONE"}"#), Ok(message(&all, "e: ONE")));
    assert_eq!(to(&all, GO, r#"{"list":[1,null]}"#).unwrap(), b"\x2a\x02\x01\x00");
}

#[test]
fn msgpack_accepts_integers_of_any_width() {
    let pool = pool(ARITH);
    let all = pool.message("All").unwrap();
    let expected = message(&all, "big: 5");
    for five in [
        b"\x05".as_slice(),
        b"\xcc\x05",
        b"\xcd\x00\x05",
        b"\xce\x00\x00\x00\x05",
        b"\xcf\x00\x00\x00\x00\x00\x00\x00\x05",
        b"\xd0\x05",
        b"\xd1\x00\x05",
        b"\xd2\x00\x00\x00\x05",
        b"\xd3\x00\x00\x00\x00\x00\x00\x00\x05",
        b"\xca\x40\xa0\x00\x00",
    ] {
        let packed = [b"\x81\xa3big", five].concat();
        assert_eq!(to_protobuf(&all, Format::MessagePack, &packed).as_ref(), Ok(&expected), "{five:?}");
    }
    let minus = [b"\x81\xa3big".as_slice(), b"\xd1\xff\xfb"].concat();
    assert_eq!(to_protobuf(&all, Format::MessagePack, &minus), Ok(message(&all, "big: -5")));
}

#[test]
fn msgpack_writes_integers_in_their_shortest_form() {
    let pool = pool("syntax = \"proto3\"; message M { optional int64 n = 1; optional uint64 u = 2; }");
    let m = pool.message("M").unwrap();
    let written = |text: &str| from_protobuf(&m, Format::MessagePack, &message(&m, text)).unwrap();
    for (value, expected) in [
        (0_i64, b"\x00".as_slice()),
        (127, b"\x7f"),
        (128, b"\xcc\x80"),
        (256, b"\xcd\x01\x00"),
        (70000, b"\xce\x00\x01\x11\x70"),
        (1 << 32, b"\xcf\x00\x00\x00\x01\x00\x00\x00\x00"),
        (-1, b"\xff"),
        (-32, b"\xe0"),
        (-33, b"\xd0\xdf"),
        (-128, b"\xd0\x80"),
        (-129, b"\xd1\xff\x7f"),
        (-32769, b"\xd2\xff\xff\x7f\xff"),
        (i64::MIN, b"\xd3\x80\x00\x00\x00\x00\x00\x00\x00"),
    ] {
        assert_eq!(written(&format!("n: {value}")), [b"\x81\xa1n", expected].concat(), "{value}");
    }
    assert_eq!(written("u: 18446744073709551615"), b"\x81\xa1u\xcf\xff\xff\xff\xff\xff\xff\xff\xff");
}

#[test]
fn msgpack_lengths_take_as_many_bytes_as_they_need() {
    let pool = pool(
        "syntax = \"proto3\"; message M { repeated bytes b = 1; map<int32, string> m = 2; repeated int32 n = 3; }",
    );
    let m = pool.message("M").unwrap();
    for length in [0, 1, 31, 32, 255, 256, 65535, 65536] {
        let mut bytes = b"\x0a".to_vec();
        polyrpc_core::protobuf::put_varint(&mut bytes, length as u64);
        bytes.resize(bytes.len() + length, b'x');
        bytes.push(0x1a);
        polyrpc_core::protobuf::put_varint(&mut bytes, length as u64);
        bytes.resize(bytes.len() + length, 1);
        if length == 0 {
            bytes.truncate(2);
        }
        let packed = from_protobuf(&m, Format::MessagePack, &bytes).unwrap();
        assert_eq!(to_protobuf(&m, Format::MessagePack, &packed).unwrap(), bytes, "{length}");
    }
}

#[test]
fn msgpack_nil_is_absent_and_strings_may_be_bytes() {
    let pool = pool(ARITH);
    let all = pool.message("All").unwrap();
    let packed = b"\x83\xa5flags\xc0\xa4args\xc0\xa9user_name\xc4\x01x";
    assert_eq!(to_protobuf(&all, Format::MessagePack, packed), Ok(message(&all, "user_name: 'x'")));
    assert_eq!(
        to_protobuf(&all, Format::MessagePack, b"\x81\xa3raw\xa2\xff\xfe").unwrap(),
        b"\x1a\x02\xff\xfe"
    );
    assert_eq!(to_protobuf(&all, Format::MessagePack, b"\xc0").unwrap(), b"");
    let extension = b"\x81\xa1x\xd7\xff\x00\x00\x00\x00\x00\x00\x00\x00";
    assert_eq!(to_protobuf(&all, Format::MessagePack, extension).unwrap(), b"");
    assert!(to_protobuf(&all, Format::MessagePack, b"\x80\x00").is_err());
}
