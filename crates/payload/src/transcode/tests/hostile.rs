//! Damaged bytes, wrong lengths, and unlimited nesting.

use super::*;

const FORMATS: [Format; 7] = [
    Format::Protobuf,
    Format::Json(Json::Brpc),
    Format::Json(Json::Proto3),
    Format::Json(Json::Go),
    Format::ProtoText,
    Format::MessagePack,
    Format::Gob,
];

const SAMPLE: &str = r#"
    scalars { f_double: 1.5 f_float: 0.1 f_int32: -1 f_uint64: 300 f_bool: true f_string: "aé\n" f_bytes: "\377" f_color: RED }
    asked: 5 child { asked: 1 children { } } r_double: [1, 2] r_string: ["a", "b"] r_color: [RED, GREEN]
    m_string { key: "k" value: 1 } m_message { key: 7 value { asked: 2 } } c_message { f_sint32: -7 }
"#;

#[test]
fn damaged_bytes_never_panic() {
    let pool = pool(RICH);
    let rich = pool.message("rich.Rich").unwrap();
    let bytes = message(&rich, SAMPLE);
    for format in FORMATS {
        let written = from_protobuf(&rich, format, &bytes).unwrap();
        for at in 0..written.len() {
            let _ = to_protobuf(&rich, format, &written[..at]);
            for flip in [0x01, 0x10, 0x20, 0x80, 0xff] {
                let mut damaged = written.clone();
                damaged[at] ^= flip;
                let _ = to_protobuf(&rich, format, &damaged);
            }
        }
        for at in 0..bytes.len() {
            let _ = from_protobuf(&rich, format, &bytes[..at]);
            for flip in [0x01, 0x02, 0x08, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                let _ = from_protobuf(&rich, format, &damaged);
            }
        }
    }
}

#[test]
fn well_known_messages_survive_damage_too() {
    let pool = pool(RICH);
    let of = pool.message("rich.WellKnown").unwrap();
    let json = r#"{"any":{"@type":"a/google.protobuf.Duration","value":"1s"},"mask":"a.b","struct":{"a":[1,null,{}]},
                   "time":"2023-11-14T22:13:20.5Z","int64":"5","values":[true]}"#;
    let bytes = to(&of, Format::Json(Json::Proto3), json).unwrap();
    for at in 0..bytes.len() {
        for flip in 1..=255 {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            let _ = from_protobuf(&of, Format::Json(Json::Proto3), &damaged);
        }
    }
    for at in 0..json.len() {
        let mut damaged = json.as_bytes().to_vec();
        damaged[at] ^= 0x01;
        let _ = to_protobuf(&of, Format::Json(Json::Proto3), &damaged);
    }
}

/// Runs on a stack that unlimited recursion would overflow.
fn on_a_small_stack(run: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(256 << 10).spawn(run).unwrap().join().unwrap();
}

#[test]
fn endless_nesting_is_an_error_in_constant_stack() {
    on_a_small_stack(|| {
        let pool = pool_on_a_large_stack();
        let rich = pool.message("rich.Rich").unwrap();
        let well_known = pool.message("rich.WellKnown").unwrap();
        let deep = 1_000_000;
        for json in [
            "{\"child\":",
            "{\"children\":[",
            "{\"unknown\":",
            "[",
            "{\"unknown\":[",
            "{\"mMessage\":{\"1\":",
        ] {
            for dialect in [Json::Brpc, Json::BrpcLenient, Json::Proto3, Json::Go] {
                assert!(to(&rich, Format::Json(dialect), &json.repeat(deep)).is_err());
            }
        }
        for json in [
            "{\"value\":",
            "{\"value\":{\"a\":[",
            "{\"list\":[",
            "{\"any\":{\"@type\":\"a/rich.WellKnown\",\"any\":",
        ] {
            let (start, rest) = json.split_at(json.find(':').unwrap() + 1);
            let text = [start, &(if rest.is_empty() { "[" } else { rest }).repeat(deep)].concat();
            assert!(to(&well_known, Format::Json(Json::Proto3), &text).is_err());
        }
        assert!(to(&rich, Format::ProtoText, &"child {".repeat(deep)).is_err());
        assert!(to_protobuf(&rich, Format::MessagePack, &b"\x81\xa5child".repeat(deep)).is_err());
        assert!(to_protobuf(&rich, Format::MessagePack, &b"\x91".repeat(deep)).is_err());
        assert!(to_protobuf(&rich, Format::MessagePack, &b"\x81\xa1x\x91".repeat(deep)).is_err());

        let mut binary = Vec::new();
        for _ in 0..2000 {
            let mut outer = b"\x22".to_vec();
            polyrpc_core::protobuf::put_varint(&mut outer, binary.len() as u64);
            outer.append(&mut binary);
            binary = outer;
        }
        for format in FORMATS.into_iter().filter(|format| *format != Format::Protobuf) {
            assert!(from_protobuf(&rich, format, &binary).is_err(), "{format:?}");
            assert!(from_protobuf(&rich, format, &b"\xa3\x06".repeat(deep)).is_err(), "{format:?}");
        }
    });
}

#[test]
fn messages_of_maximum_depth_fit_a_small_stack() {
    on_a_small_stack(|| {
        let pool = pool_on_a_large_stack();
        let rich = pool.message("rich.Rich").unwrap();
        let json = format!("{}{{}}{}", "{\"mMessage\":{\"1\":".repeat(99), "}}".repeat(99));
        let bytes = to(&rich, Format::Json(Json::Proto3), &json).unwrap();
        // brpc treats an entry of a map with such keys as a separate message.
        for format in FORMATS.into_iter().filter(|format| *format != Format::Json(Json::Brpc)) {
            let written = from_protobuf(&rich, format, &bytes).unwrap();
            assert!(to_protobuf(&rich, format, &written).is_ok(), "{format:?}");
        }
        let json = format!("{}{{}}{}", "{\"children\":[".repeat(99), "]}".repeat(99));
        for dialect in [Json::Brpc, Json::Proto3, Json::Go] {
            assert!(again(&rich, Format::Json(dialect), &json).is_ok(), "{dialect:?}");
        }
    });
}

/// The tests' compiler needs more stack than the tested code.
fn pool_on_a_large_stack() -> Pool {
    std::thread::Builder::new().stack_size(8 << 20).spawn(|| pool(RICH)).unwrap().join().unwrap()
}

#[test]
fn lengths_beyond_the_input_are_truncated() {
    let pool = pool(RICH);
    let rich = pool.message("rich.Rich").unwrap();
    for lie in [
        b"\xdf\xff\xff\xff\xff".as_slice(),
        b"\x81\xa7r_int32\xdd\xff\xff\xff\xff",
        b"\x81\xacasked_string\xdb\xff\xff\xff\xff",
        b"\x81\xa7r_bytes\x91\xc6\xff\xff\xff\xff",
        b"\x81\xa1x\xc9\xff\xff\xff\xff\x00",
        b"\xc1",
        b"",
    ] {
        assert!(to_protobuf(&rich, Format::MessagePack, lie).is_err(), "{lie:?}");
    }
}

#[test]
fn formats_without_a_schema_are_unsupported() {
    let pool = pool(RICH);
    let rich = pool.message("rich.Rich").unwrap();
    for format in [Format::Raw, Format::Other(4)] {
        assert_eq!(to_protobuf(&rich, format, b""), Err(Error::Unsupported(format)));
        assert_eq!(from_protobuf(&rich, format, b""), Err(Error::Unsupported(format)));
    }
}

#[test]
fn records_of_millions_of_occurrences_stay_few() {
    let pool = pool(RICH);
    let rich = pool.message("rich.Rich").unwrap();
    const TIMES: usize = 1 << 20;
    // Empty values: of a string, two strings by turns, a message, a list, a map.
    let asked_string: &[u8] = b"\x1a\x00";
    let r_string: &[u8] = b"\x8a\x01\x00";
    let cases: [(&[u8], &str); 5] = [
        (asked_string, r#"{"askedString":""}"#),
        (b"\x10\x07\x1a\x00", r#"{"asked":7,"askedString":""}"#),
        (b"\x22\x00", r#"{"child":{}}"#),
        (r_string, ""),
        (b"\xfa\x01\x00", r#"{"mString":{"":0}}"#),
    ];
    for (occurrence, expected) in cases {
        let (printed, records) =
            json::print_counting(&rich, Json::Proto3, &occurrence.repeat(TIMES / occurrence.len()));
        let printed = String::from_utf8(printed.unwrap()).unwrap();
        if !expected.is_empty() {
            assert_eq!(printed, expected);
        }
        // One for each occurrence before.
        assert!(records <= 4096, "{records} records for {}", occurrence.escape_ascii());
    }
    let (printed, _) = json::print_counting(&rich, Json::Proto3, &r_string.repeat(3));
    assert_eq!(printed.unwrap(), br#"{"rString":["","",""]}"#);
}

#[test]
fn message_whose_lists_alternate_too_often_is_refused_within_a_memory_bound() {
    let pool = pool(RICH);
    let rich = pool.message("rich.Rich").unwrap();
    let alternating = b"\x8a\x01\x00\x92\x01\x00".repeat(1 << 20);
    let (printed, records) = json::print_counting(&rich, Json::Proto3, &alternating);
    assert_eq!(printed.unwrap_err().to_string(), "the fields of the message alternate too often");
    assert!(records <= alternating.len() / 2, "{records}");
    // Thousands of messages appended to each other are not too many.
    let (printed, _) = json::print_counting(&rich, Json::Proto3, &alternating[..6 * 10_000]);
    let printed = String::from_utf8(printed.unwrap()).unwrap();
    assert_eq!(printed.matches("\"\"").count(), 20_000);
}

#[test]
fn last_value_wins_after_thousands_of_others_by_turns() {
    let pool = pool(RICH);
    let rich = pool.message("rich.Rich").unwrap();
    let mut bytes = Vec::new();
    for n in 0..5_000 {
        let text = format!(
            "asked: {n} r_unpacked: {n} c_string: \"{n}\" child {{ asked: {n} }} m_int64 {{ key: {} value: \"{n}\" }}",
            n % 7
        );
        bytes.extend(message(&rich, &text));
        bytes.extend(message(&rich, &format!("c_int: {n} asked_string: \"{n}\"")));
        bytes.extend(message(&rich, &format!("c_message {{ f_int32: {n} }}")));
    }
    let printed = from(&rich, Format::Json(Json::Proto3), &bytes).unwrap();
    let value: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(value["asked"], 4_999);
    assert_eq!(value["askedString"], "4999");
    assert_eq!(value["child"]["asked"], 4_999);
    assert_eq!(
        (&value["cMessage"]["fInt32"], value.get("cInt"), value.get("cString")),
        (&4_999.into(), None, None)
    );
    let list: Vec<_> = (0..5_000).map(serde_json::Value::from).collect();
    assert_eq!(value["rUnpacked"], serde_json::Value::from(list));
    let map = value["mInt64"].as_object().unwrap();
    assert_eq!((map.len(), &map["1"]), (7, &"4999".into()));
}

#[test]
fn result_beyond_its_limit_is_refused_soon() {
    let pool = pool(RICH);
    let rich = pool.message("rich.Rich").unwrap();
    // Lists of strings, of messages, and a map.
    let parts: [&[u8]; 3] = [b"\x8a\x01\x00", b"\x2a\x00", b"\x92\x02\x06\x08\x01\x12\x02\x10\x07"];
    for part in parts {
        let bytes = part.repeat(100_000);
        for format in FORMATS.into_iter().filter(|format| *format != Format::Protobuf) {
            let whole = from_protobuf(&rich, format, &bytes).unwrap().len();
            assert_eq!(
                from_protobuf_within(&rich, format, &bytes, whole).map(|bytes| bytes.len()),
                Ok(whole)
            );
            if whole > 1_000 {
                let error = from_protobuf_within(&rich, format, &bytes, 1_000).unwrap_err();
                assert_eq!(error, Error::TooLong(1_000), "{format:?}");
            }
        }
    }
}
