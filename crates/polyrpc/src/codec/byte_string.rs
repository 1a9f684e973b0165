//! Tests of [`ByteString`] in every format.

use polyrpc_core::{Code, Format, Json};
use polyrpc_payload::ByteString;

use super::{Body, Codec, Serde, TypeSchema, arguments};

fn not_utf8() -> ByteString {
    b"\xff".to_vec().into()
}

#[test]
fn invalid_utf8_round_trips_in_the_formats_of_rest_rpc() {
    for (format, want) in [(Format::MessagePackArray, &b"\xa1\xff"[..]), (Format::RestRpc, b"\xff")] {
        let written = Serde::encode(&not_utf8(), format, None).expect("a text");
        assert_eq!(written, want, "{}", format.as_str());
        assert_eq!(arguments(&not_utf8(), format).expect("an argument").bytes, want);
        let back: ByteString = Serde::decode(Body::new(format, written), None).expect("the same");
        assert_eq!(back, not_utf8());
    }
}

#[test]
fn nested_byte_string_round_trips() {
    for format in [Format::MessagePackArray, Format::MessagePack, Format::RestRpc, Format::StructPack] {
        let value = (vec![not_utf8(), "text".into()], 5);
        let written = Serde::encode(&value, format, None).expect("a value");
        let back: (Vec<ByteString>, i32) = Serde::decode(Body::new(format, written), None).expect("the same");
        assert_eq!(back, value, "{}", format.as_str());
    }
}

#[test]
fn valid_utf8_is_a_string_in_every_format() {
    for format in [
        Format::Json(Json::Go),
        Format::MessagePack,
        Format::MessagePackArray,
        Format::StructPack,
        Format::RestRpc,
        Format::Gob,
    ] {
        let text = "h\u{e9}llo".to_owned();
        let written = Serde::encode(&ByteString::from(&*text), format, None).expect("a text");
        assert_eq!(written, Serde::encode(&text, format, None).expect("a text"), "{}", format.as_str());
        let back: ByteString = Serde::decode(Body::new(format, written), None).expect("the same");
        assert_eq!(back.as_str(), Some(&*text));
    }
    assert_eq!(<Serde as Codec<ByteString>>::type_schema(None), TypeSchema::String);
}

#[test]
fn invalid_utf8_is_an_error_in_json() {
    let format = Format::Json(Json::Go);
    let status = Serde::encode(&not_utf8(), format, None).expect_err("not UTF-8");
    assert_eq!(status.message(), "cannot write the value: the text is not UTF-8");
    let body = Body::new(format, &b"\"\xff\""[..]);
    let status = <Serde as Codec<ByteString>>::decode(body, None).expect_err("not UTF-8");
    assert_eq!(status.code(), Code::InvalidArgument);
}
