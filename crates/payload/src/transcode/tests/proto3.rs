use super::*;

const PROTO3: Format = Format::Json(Json::Proto3);

fn rich() -> (Pool, Message) {
    let pool = pool(RICH);
    let rich = pool.message("rich.Rich").unwrap();
    (pool, rich)
}

#[test]
fn message_is_written_with_json_names() {
    let (_, rich) = rich();
    let bytes = message(
        &rich,
        r#"scalars { f_int64: -5 f_uint64: 5 f_float: 0.1 f_double: 1e21 f_bytes: "\377\376" f_color: RED f_string: "é\n" }
           asked: 0 r_int32: [1, 2] m_bool { key: true value: GREEN } m_int64 { key: -1 value: "x" } custom: 1"#,
    );
    assert_eq!(
        from(&rich, PROTO3, &bytes).unwrap(),
        r#"{"scalars":{"fDouble":1e+21,"fFloat":0.1,"fInt64":"-5","fUint64":"5","fString":"é\n","fBytes":"//4=","fColor":"RED"},"asked":0,"rInt32":[1,2],"mInt64":{"-1":"x"},"mBool":{"true":"GREEN"},"@custom\"":1}"#
    );
    assert_eq!(from(&rich, PROTO3, b"").unwrap(), "{}");
}

#[test]
fn values_are_read_in_every_allowed_form() {
    let pool = pool(RICH);
    let scalars = pool.message("rich.Scalars").unwrap();
    for (json, text) in [
        (r#"{"fInt32":1}"#, "f_int32: 1"),
        (r#"{"f_int32":1}"#, "f_int32: 1"),
        (r#"{"fInt32":"1"}"#, "f_int32: 1"),
        (r#"{"fInt32":1.0}"#, "f_int32: 1"),
        (r#"{"fInt32":1e3}"#, "f_int32: 1000"),
        (r#"{"fInt32":-2147483648}"#, "f_int32: -2147483648"),
        (r#"{"fInt64":"9223372036854775807"}"#, "f_int64: 9223372036854775807"),
        (r#"{"fUint64":18446744073709551615}"#, "f_uint64: 18446744073709551615"),
        (r#"{"fDouble":"NaN"}"#, "f_double: nan"),
        (r#"{"fDouble":"-Infinity"}"#, "f_double: -inf"),
        (r#"{"fDouble":"1.5"}"#, "f_double: 1.5"),
        (r#"{"fDouble":-0}"#, "f_double: -0"),
        (r#"{"fFloat":3.4028235e38}"#, "f_float: 3.4028235e38"),
        (r#"{"fBytes":"_-8"}"#, r#"f_bytes: "\377\357""#),
        (r#"{"fBytes":"/+8="}"#, r#"f_bytes: "\377\357""#),
        (r#"{"fColor":"BLUE"}"#, "f_color: BLUE"),
        (r#"{"fColor":77}"#, "f_color: 77"),
        (r#"{"fColor":"PINK"}"#, ""),
        (r#"{"fString":null}"#, ""),
        (r#"{"unknown":{"a":[1,{"b":null}]},"fBool":true}"#, "f_bool: true"),
        (r#"{"fString":"\ud83d\ude00\u00e9\/"}"#, r#"f_string: "😀é/""#),
        (" {\n\t\"fBool\" : true } ", "f_bool: true"),
    ] {
        assert_eq!(to(&scalars, PROTO3, json).as_ref(), Ok(&message(&scalars, text)), "{json}");
    }
}

#[test]
fn mismatched_value_is_an_error() {
    let (pool, rich) = rich();
    let scalars = pool.message("rich.Scalars").unwrap();
    for json in [
        r#"{"fInt32":2147483648}"#,
        r#"{"fInt32":1.5}"#,
        r#"{"fInt32":"1 "}"#,
        r#"{"fInt32":""}"#,
        r#"{"fInt32":true}"#,
        r#"{"fUint32":-1}"#,
        r#"{"fInt64":"9223372036854775808"}"#,
        r#"{"fUint64":18446744073709551616}"#,
        r#"{"fFloat":3.5e38}"#,
        r#"{"fDouble":1e999}"#,
        r#"{"fDouble":"nan"}"#,
        r#"{"fDouble":"\"1\""}"#,
        r#"{"fBool":"true"}"#,
        r#"{"fBool":1}"#,
        r#"{"fString":1}"#,
        r#"{"fBytes":"?"}"#,
        r#"{"fInt32":1,"f_int32":2}"#,
    ] {
        assert!(to(&scalars, PROTO3, json).is_err(), "{json}");
    }
    for json in [
        r#"{"rInt32":1}"#,
        r#"{"rInt32":[null]}"#,
        r#"{"scalars":[]}"#,
        r#"{"cInt":1,"cString":"x"}"#,
        r#"{"mString":[]}"#,
        r#"{"mString":{"a":null}}"#,
        r#"{"mInt64":{"x":"y"}}"#,
        r#"{"mBool":{"1":"RED"}}"#,
    ] {
        assert!(to(&rich, PROTO3, json).is_err(), "{json}");
    }
    assert_eq!(to(&rich, PROTO3, r#"{"cInt":null,"cString":"x"}"#), Ok(message(&rich, "c_string: 'x'")));
}

#[test]
fn syntax_errors_equal_those_of_rapidjson() {
    let (_, rich) = rich();
    for (json, reason) in [
        ("", "The document is empty."),
        ("  ", "The document is empty."),
        ("{", "Missing a name for object member."),
        ("{\"a\"}", "Missing a colon after a name of object member."),
        ("{\"a\":1 \"b\":2}", "Missing a comma or } after an object member."),
        ("{\"a\":[1 2]}", "Missing a comma or ] after an array element."),
        ("{\"a\":[1,]}", "Invalid value."),
        ("{\"a\":01}", "Missing a comma or } after an object member."),
        ("{\"a\":1.}", "Miss fraction part in number."),
        ("{\"a\":1e}", "Miss exponent in number."),
        ("{\"a\":-}", "Invalid value."),
        ("{\"a\":+1}", "Invalid value."),
        ("{\"a\":nul}", "Invalid value."),
        ("{\"a\":'x'}", "Invalid value."),
        ("{\"a\":\"\n\"}", "Invalid escape character in string."),
        ("{\"a\":\"\\x\"}", "Invalid escape character in string."),
        ("{\"a\":\"x", "Missing a closing quotation mark in string."),
        ("{\"a\":\"\\u12g4\"}", "Incorrect hex digit after \\u escape in string."),
        ("{\"a\":\"\\u+123\"}", "Incorrect hex digit after \\u escape in string."),
        ("{\"a\":\"\\ud800\"}", "The surrogate pair in string is invalid."),
        ("{\"a\":\"\\udc00\\ud800\"}", "The surrogate pair in string is invalid."),
        ("{} // x", "The document root must not follow by other values."),
        ("{},", "The document root must not follow by other values."),
        ("\u{feff}{}", "Invalid value."),
    ] {
        let error = to(&rich, PROTO3, json).unwrap_err().to_string();
        assert_eq!(error, format!("Invalid json: {reason} [Rich]"), "{json}");
    }
    let not_utf8 = to_protobuf(&rich, PROTO3, b"{\"a\":\"\xff\"}").unwrap_err();
    assert_eq!(not_utf8.to_string(), "Invalid json: Invalid encoding in string. [Rich]");
}

#[test]
fn well_known_messages_have_special_forms() {
    let pool = pool(RICH);
    let of = pool.message("rich.WellKnown").unwrap();
    for json in [
        r#"{"any":{}}"#,
        r#"{"any":{"@type":"type.googleapis.com/rich.Scalars","fInt32":1}}"#,
        r#"{"any":{"@type":"type.googleapis.com/google.protobuf.Duration","value":"1.500s"}}"#,
        r#"{"any":{"@type":"x/google.protobuf.Empty","value":{}}}"#,
        r#"{"any":{"@type":"x/google.protobuf.Any","value":{"@type":"x/rich.Scalars"}}}"#,
        r#"{"duration":"-0.000000001s","empty":{},"mask":"fooBar,a.b","null":null,"time":"2023-11-14T22:13:20Z"}"#,
        r#"{"struct":{"a":null,"b":1.5,"c":"x","d":true,"e":{"f":[1,[]]},"g":[]},"value":null}"#,
        r#"{"value":{},"list":[1,null,"x",{"a":{}}]}"#,
        r#"{"int64":"-1","string":"","bytes":"AA==","double":0,"bool":false}"#,
        r#"{"double":"NaN","values":[null,1],"byName":{"a":null,"b":2},"times":["1970-01-01T00:00:00Z"]}"#,
    ] {
        let expected = json.replace(r#","null":null"#, "");
        assert_eq!(again(&of, PROTO3, json).as_deref(), Ok(expected.as_str()), "{json}");
    }
    // The type may be last.
    assert_eq!(
        again(&of, PROTO3, r#"{"any":{"fInt32":1,"@type":"a.b/rich.Scalars"}}"#).unwrap(),
        r#"{"any":{"@type":"a.b/rich.Scalars","fInt32":1}}"#
    );
    for wrong in [
        r#"{"any":{"fInt32":1}}"#,
        r#"{"any":{"@type":"x/nobody"}}"#,
        r#"{"any":{"@type":"rich.Scalars"}}"#,
        r#"{"any":{"@type":1}}"#,
        r#"{"any":{"@type":"x/google.protobuf.Duration"}}"#,
        r#"{"duration":1}"#,
        r#"{"time":"yesterday"}"#,
        r#"{"mask":"foo_bar"}"#,
        r#"{"struct":[]}"#,
        r#"{"list":{}}"#,
        r#"{"int64":"x"}"#,
    ] {
        assert!(to(&of, PROTO3, wrong).is_err(), "{wrong}");
    }
}

#[test]
fn groups_extensions_and_closed_enums_of_proto2_are_supported() {
    let pool = pool(
        "syntax = \"proto2\"; package p; enum E { ONE = 1; TWO = 2; }
         message M { optional group G = 1 { optional int32 x = 1; } optional E e = 2; repeated E re = 3 [packed = true];
                     map<string, E> me = 4; optional string s = 5; required int32 r = 6; extensions 10 to 20; }
         extend M { repeated int32 ext = 10; }",
    );
    let m = pool.message("p.M").unwrap();
    let json = r#"{"g":{"x":1},"e":"TWO","re":["ONE"],"me":{"a":"ONE"},"r":0,"[p.ext]":[1,2]}"#;
    assert_eq!(again(&m, PROTO3, json).as_deref(), Ok(json));
    assert_eq!(
        again(&m, PROTO3, r#"{"r":0,"e":9,"re":[9,1],"me":{"a":9}}"#).unwrap(),
        r#"{"re":["ONE"],"r":0}"#
    );
    // Unknown numbers on the wire count as unknown fields, and malformed UTF-8 is replaced.
    let bytes = b"\x10\x09\x1a\x03\x09\x01\x09\x22\x05\x0a\x01a\x10\x09\x2a\x01\xff\x30\x00";
    assert_eq!(from(&m, PROTO3, bytes).unwrap(), "{\"re\":[\"ONE\"],\"s\":\"\u{fffd}\",\"r\":0}");
    assert_eq!(to(&m, PROTO3, "{}").unwrap_err().to_string(), "Missing required field: p.M.r");
}

#[test]
fn scattered_repeated_and_misplaced_wire_fields_are_merged() {
    let (_, rich) = rich();
    for (bytes, json) in [
        // A message in two parts, and a scalar twice.
        (b"\x0a\x02\x18\x01\x10\x05\x0a\x04\x18\x02\x20\x03\x10\x06".as_slice(), r#"{"scalars":{"fInt32":2,"fInt64":"3"},"asked":6}"#),
        // Packed, not packed, and in several runs; a packed field that is declared not to be.
        (b"\x6a\x02\x01\x02\x68\x03\x6a\x01\x04\xa2\x01\x02\x05\x06", r#"{"rInt32":[1,2,3,4],"rUnpacked":[5,6]}"#),
        // The last member of a oneof wins; an earlier value of the same member before another one is discarded.
        (b"\xc8\x02\x01\xd2\x02\x01x", r#"{"cString":"x"}"#),
        (b"\xda\x02\x02\x18\x01\xc8\x02\x01\xda\x02\x02\x20\x01", r#"{"cMessage":{"fInt64":"1"}}"#),
        // A wrong wire type, an unknown field and an unknown group are skipped.
        (b"\x12\x01x\xb8\x06\x01\xbb\x06\x08\x01\xbc\x06\x10\x07", r#"{"asked":7}"#),
        // Entries of a map: a duplicate key, without a key, without a value.
        (b"\xfa\x01\x05\x0a\x01a\x10\x01\xfa\x01\x05\x0a\x01a\x10\x02\xfa\x01\x02\x10\x03\xfa\x01\x03\x0a\x01b", r#"{"mString":{"":3,"a":2,"b":0}}"#),
        // A redundant zero.
        (b"\x0a\x02\x18\x00", r#"{"scalars":{}}"#),
    ] {
        assert_eq!(from(&rich, PROTO3, bytes).as_deref(), Ok(json));
    }
    for broken in [
        b"\x0a".as_slice(),
        b"\x0a\x05\x18",
        b"\x00",
        b"\x0f",
        b"\x0c",
        b"\xbb\x06\x08\x01",
        b"\x6a\x01\x80",
        b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ] {
        assert!(from(&rich, PROTO3, broken).is_err(), "{broken:?}");
    }
    assert!(from(&rich, PROTO3, b"\x1a\x01\xff").is_err(), "proto3 demands UTF-8");
}

#[test]
fn value_that_truncates_to_zero_is_unset() {
    let pool = pool(RICH);
    let scalars = pool.message("rich.Scalars").unwrap();
    // 1 << 32 as f_int32, f_uint32, f_sint32 and f_color: found by the fuzzer, which saw zeros written that were
    // missing when they were read again.
    let varint = b"\x80\x80\x80\x80\x10".as_slice();
    let bytes = [b"\x18", varint, b"\x28", varint, b"\x38", varint, b"\x80\x01", varint].concat();
    assert_eq!(from(&scalars, PROTO3, &bytes).as_deref(), Ok("{}"));
    assert_eq!(from(&scalars, Format::ProtoText, &bytes).as_deref(), Ok(""));
    // As a bool, any set bit makes it true.
    assert_eq!(
        from(&scalars, Format::ProtoText, &[b"\x68", varint].concat()).as_deref(),
        Ok("f_bool: true\n")
    );
}
