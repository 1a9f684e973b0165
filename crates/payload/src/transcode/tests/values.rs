//! A value has the same meaning in every dialect of JSON but the lenient one, or is rejected with its path.

use super::*;

/// Dialects that ignore nothing.
const DIALECTS: [Json; 3] = [Json::Brpc, Json::Proto3, Json::Go];

fn messages() -> (Message, Message, Message) {
    let pool = pool(RICH);
    (
        pool.message("rich.Rich").unwrap(),
        pool.message("rich.Scalars").unwrap(),
        pool.message("rich.WellKnown").unwrap(),
    )
}

#[test]
fn field_is_found_by_proto_name_and_json_name() {
    let (rich, scalars, _) = messages();
    for dialect in DIALECTS {
        let read = |of: &Message, json: &str| to(of, Format::Json(dialect), json).unwrap();
        assert_eq!(read(&scalars, r#"{"fInt32":1}"#), message(&scalars, "f_int32: 1"), "{dialect:?}");
        assert_eq!(read(&scalars, r#"{"f_int32":1}"#), message(&scalars, "f_int32: 1"), "{dialect:?}");
        // A JSON name declared in the .proto.
        assert_eq!(read(&rich, r#"{"@custom\"":1}"#), message(&rich, "custom: 1"), "{dialect:?}");
    }
    let lenient = Format::Json(Json::BrpcLenient);
    assert_eq!(to(&scalars, lenient, r#"{"fInt32":1}"#).unwrap(), b"", "brpc knows one name");
}

#[test]
fn well_known_message_is_read_in_its_form_or_field_by_field() {
    let (_, _, known) = messages();
    for (own, fields, text) in [
        (r#"{"time":"1970-01-01T00:00:05Z"}"#, r#"{"time":{"seconds":5}}"#, "time { seconds: 5 }"),
        (
            r#"{"duration":"1.500s"}"#,
            r#"{"duration":{"seconds":1,"nanos":500000000}}"#,
            "duration { seconds: 1 nanos: 500000000 }",
        ),
        (
            r#"{"mask":"fooBar,a"}"#,
            r#"{"mask":{"paths":["foo_bar","a"]}}"#,
            "mask { paths: ['foo_bar', 'a'] }",
        ),
        (r#"{"int64":7}"#, r#"{"int64":{"value":7}}"#, "int64 { value: 7 }"),
        (r#"{"list":[true]}"#, r#"{"list":{"values":[true]}}"#, "list { values { bool_value: true } }"),
    ] {
        for dialect in DIALECTS {
            for json in [own, fields] {
                let read = to(&known, Format::Json(dialect), json);
                assert_eq!(read, Ok(message(&known, text)), "{dialect:?} {json}");
            }
        }
    }
    // Both are objects: ProtoJSON expects the special representation, brpc and Go the fields if the names match.
    let fields = r#"{"struct":{"fields":{"a":{"number_value":1}}}}"#;
    let own = r#"{"struct":{"a":1}}"#;
    let meant = message(&known, "struct { fields { key: 'a' value { number_value: 1 } } }");
    for dialect in [Json::Brpc, Json::Go] {
        for json in [fields, own] {
            assert_eq!(to(&known, Format::Json(dialect), json).as_ref(), Ok(&meant), "{dialect:?} {json}");
        }
    }
    assert_eq!(to(&known, Format::Json(Json::Proto3), own), Ok(meant.clone()));
    assert_ne!(to(&known, Format::Json(Json::Proto3), fields), Ok(meant));
}

#[test]
fn every_dialect_reads_its_own_output() {
    let (_, _, known) = messages();
    let bytes = to(
        &known,
        Format::Json(Json::Proto3),
        r#"{"any":{"@type":"x/rich.Scalars","fInt32":1},"time":"2023-11-14T22:13:20Z","duration":"-1.500s","mask":"a,bC","struct":{"a":[null,{"b":"x"}]},"value":[1.5,true],"list":["x"],"int64":"5","bytes":"AA==","double":0}"#,
    )
    .unwrap();
    let canonical = |bytes: &[u8]| from(&known, Format::Json(Json::Proto3), bytes).unwrap();
    for dialect in DIALECTS {
        let written = from(&known, Format::Json(dialect), &bytes).unwrap();
        let read = to(&known, Format::Json(dialect), &written).unwrap();
        assert_eq!(canonical(&read), canonical(&bytes), "{dialect:?} {written}");
    }
}

#[test]
fn wrong_value_type_is_rejected_with_its_path() {
    let (rich, scalars, known) = messages();
    for (of, json, want) in [
        (&scalars, r#"{"fInt64":"x"}"#, "f_int64: expected int64, found string"),
        (&scalars, r#"{"f_int64":true}"#, "f_int64: expected int64, found bool"),
        (&scalars, r#"{"fInt32":2147483648}"#, "f_int32: expected int32, found 2147483648"),
        (&scalars, r#"{"fInt32":1.5}"#, "f_int32: expected int32, found 1.5"),
        (&scalars, r#"{"fUint32":-1}"#, "f_uint32: expected uint32, found -1"),
        (&scalars, r#"{"fString":1}"#, "f_string: expected string, found number"),
        (&scalars, r#"{"fBool":"true"}"#, "f_bool: expected bool, found string"),
        (&scalars, r#"{"fBytes":"?"}"#, "f_bytes: expected bytes in base64, found another string"),
        (&scalars, r#"{"fBytes":[1]}"#, "f_bytes: expected bytes in base64, found array"),
        (&scalars, r#"{"fColor":true}"#, "f_color: expected enum rich.Color, found bool"),
        (&scalars, "[]", "expected object, found array"),
        (&scalars, "5", "expected object, found number"),
        (&rich, r#"{"scalars":{"f_double":{}}}"#, "scalars.f_double: expected double, found object"),
        (&rich, r#"{"scalars":[]}"#, "scalars: expected object, found array"),
        (&rich, r#"{"r_int32":[1,"x"]}"#, "r_int32[1]: expected int32, found string"),
        (&rich, r#"{"r_int32":1}"#, "r_int32: expected array, found number"),
        (&rich, r#"{"children":[{},{"asked":"x"}]}"#, "children[1].asked: expected int32, found string"),
        (&rich, r#"{"m_string":{"a":"x"}}"#, r#"m_string["a"]: expected int32, found string"#),
        (&rich, r#"{"m_string":[]}"#, "m_string: expected object, found array"),
        (&rich, r#"{"cInt":1,"cString":"x"}"#, "c_string: another member of its oneof is set too"),
        (&known, r#"{"time":5}"#, "time: expected google.protobuf.Timestamp, found number"),
        (
            &known,
            r#"{"time":"noon"}"#,
            "time: expected google.protobuf.Timestamp in its form, found another string",
        ),
        (&known, r#"{"int64":"x"}"#, "int64: expected int64, found string"),
    ] {
        for dialect in DIALECTS {
            // brpc's list of entries is a map, too.
            let read = to(of, Format::Json(dialect), json);
            if dialect == Json::Brpc && json == r#"{"m_string":[]}"# {
                assert!(read.is_ok());
                continue;
            }
            assert_eq!(read.map_err(|error| error.to_string()), Err(want.to_owned()), "{dialect:?} {json}");
        }
    }
}

#[test]
fn unknown_fields_are_counted() {
    let (rich, scalars, _) = messages();
    let unknown = |of: &Message, format: Format, bytes: &[u8]| parse(of, format, bytes).unwrap().unknown;
    for dialect in [Json::Brpc, Json::BrpcLenient, Json::Proto3, Json::Go] {
        let format = Format::Json(dialect);
        assert_eq!(unknown(&scalars, format, b"{\"f_int32\":1}"), 0, "{dialect:?}");
        assert_eq!(unknown(&scalars, format, b"{\"x\":{\"y\":1},\"z\":[]}"), 2, "{dialect:?}");
        assert_eq!(unknown(&rich, format, b"{\"children\":[{\"x\":1},{\"x\":2}]}"), 2, "{dialect:?}");
    }
    assert_eq!(unknown(&scalars, Format::Json(Json::Proto3), b"{\"f_color\":\"PINK\"}"), 1);
    assert_eq!(unknown(&scalars, Format::MessagePack, b"\x81\xa1x\x01"), 1);
}

#[test]
fn unknown_enum_value_is_rejected_except_in_canonical_json() {
    let pool = pool(
        "syntax = \"proto2\"; package p; enum E { ONE = 1; TWO = 2; }
         message M { optional E e = 1; repeated E re = 2; map<string, E> me = 3; }",
    );
    let m = pool.message("p.M").unwrap();
    for (json, want) in [
        (r#"{"e":"one"}"#, r#"e: expected enum p.E, found "one""#),
        (r#"{"re":["ONE","NINE"]}"#, r#"re[1]: expected enum p.E, found "NINE""#),
        (r#"{"me":{"a":"NINE"}}"#, r#"me["a"]: expected enum p.E, found "NINE""#),
    ] {
        for dialect in [Json::Brpc, Json::Go] {
            let read = to(&m, Format::Json(dialect), json).map_err(|error| error.to_string());
            assert_eq!(read, Err(want.to_owned()), "{dialect:?} {json}");
        }
        // protobuf's parser ignores it along with unknown fields, so that it counts as one.
        let parsed = parse(&m, Format::Json(Json::Proto3), json.as_bytes()).unwrap();
        assert_eq!(parsed.unknown, 1, "{json}");
    }
    // brpc's own parser drops an optional field with an unknown value, and fails for the others.
    let lenient = |json| to(&m, Format::Json(Json::BrpcLenient), json);
    assert_eq!(lenient(r#"{"e":"one"}"#).unwrap(), b"");
    assert!(lenient(r#"{"re":["ONE","NINE"]}"#).is_err());
    let number = to(&m, Format::Json(Json::Brpc), r#"{"e":9}"#).map_err(|error| error.to_string());
    assert_eq!(number, Err("e: expected enum p.E, found 9".to_owned()));
    let long = format!(r#"{{"e":"{}"}}"#, "x".repeat(1000));
    let long = to(&m, Format::Json(Json::Brpc), &long).map_err(|error| error.to_string());
    assert_eq!(long, Err("e: expected enum p.E, found string".to_owned()));
}
