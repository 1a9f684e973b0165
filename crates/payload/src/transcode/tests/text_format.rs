use super::*;

const TEXT: Format = Format::ProtoText;

#[test]
fn text_captured_from_brpc_round_trips() {
    let pool =
        pool("syntax = \"proto2\"; package example; message EchoRequest { required string message = 1; }");
    let echo = pool.message("example.EchoRequest").unwrap();
    // vectors/baidu_std/content_proto_text.json and http/post_proto_text.txt
    for text in ["message: \"ctype text\"\n", "message: \"pt\"\n"] {
        assert_eq!(again(&echo, TEXT, text).as_deref(), Ok(text));
    }
    let missing = to(&echo, TEXT, "").unwrap_err();
    assert_eq!(missing.to_string(), "Missing required field: example.EchoRequest.message");
}

#[test]
fn message_is_written_one_field_per_line_by_number() {
    let pool = pool(RICH);
    let rich = pool.message("rich.Rich").unwrap();
    let text = r#"scalars {
  f_double: 1e+21
  f_float: 0.1
  f_int64: -5
  f_bool: true
  f_string: "\303\251\n\'\"\\"
  f_color: BLUE
}
child {
  child {
  }
}
children {
}
children {
  asked: 0
}
r_int32: 1
r_int32: 2
r_color: RED
r_color: 7
m_string {
  key: "a"
  value: 1
}
m_message {
  key: 5
  value {
    asked: 1
  }
}
"#;
    assert_eq!(again(&rich, TEXT, text).as_deref(), Ok(text));
}

#[test]
fn every_value_form_is_read() {
    let pool = pool(RICH);
    let rich = pool.message("rich.Rich").unwrap();
    let canonical = |text: &str| {
        again(&rich, TEXT, text).map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    for (text, expected) in [
        ("asked: 0x1F", "asked: 31"),
        ("asked: 017", "asked: 15"),
        ("asked: - 5", "asked: -5"),
        ("asked:1;asked_string:'x',", "asked: 1 asked_string: \"x\""),
        ("asked_string: 'a' \"b\" # comment\n 'c'", "asked_string: \"abc\""),
        (
            r#"asked_string: "\x41\101\u00e9\U0001F600\a\?""#,
            r#"asked_string: "AA\303\251\360\237\230\200\007?""#,
        ),
        (r#"asked_string: "\ud83d\ude00""#, r#"asked_string: "\360\237\230\200""#),
        ("scalars: { f_float: 1.5f }", "scalars { f_float: 1.5 }"),
        ("scalars < f_double: -inf >", "scalars { f_double: -inf }"),
        ("scalars { f_double: NaN }", "scalars { f_double: nan }"),
        ("scalars { f_double: 1e-7 f_float: 3 }", "scalars { f_double: 1e-07 f_float: 3 }"),
        ("scalars { f_double: .5 f_float: 3F }", "scalars { f_double: 0.5 f_float: 3 }"),
        ("scalars { f_bool: t } asked: 1", "scalars { f_bool: true } asked: 1"),
        ("scalars { f_color: -3 }", "scalars { f_color: BLUE }"),
        ("r_int32: [1, 2] r_int32: 3 r_int32: []", "r_int32: 1 r_int32: 2 r_int32: 3"),
        ("children [ { asked: 1 }, < > ]", "children { asked: 1 } children { }"),
        ("m_string { key: 'a' }", "m_string { key: \"a\" value: 0 }"),
        ("m_string: [{ key: 'a' value: 2 }]", "m_string { key: \"a\" value: 2 }"),
        ("# only a comment", ""),
    ] {
        assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn parse_error_names_its_position() {
    let pool = pool(RICH);
    let rich = pool.message("rich.Rich").unwrap();
    for (text, error) in [
        ("\n nobody: 1", "2:8: Message type \"rich.Rich\" has no field named \"nobody\"."),
        ("asked 1", "1:7: Expected \":\"."),
        ("asked: 1 asked: 2", "1:15: Non-repeated field \"asked\" is specified multiple times."),
        ("scalars { f_color: PINK }", "1:25: Unknown enumeration value of \"PINK\" for field \"f_color\"."),
        ("asked: 2147483648", "1:18: Integer out of range (2147483648)"),
    ] {
        assert_eq!(to(&rich, TEXT, text).unwrap_err().to_string(), error);
    }
    for text in [
        "asked: 1.0",
        "asked: 08",
        "asked: '1'",
        "asked: ",
        "asked: --1",
        "asked: 1 }",
        "scalars {",
        "scalars { >",
        "scalars: 1",
        "asked_string: x",
        "asked_string: 'x",
        "asked_string: 'x\n'",
        r"asked_string: '\q'",
        r"asked_string: '\ud800'",
        r"asked_string: '\377'",
        "scalars { f_bool: yes }",
        "scalars { f_float: 0x1 }",
        "scalars { f_double: 1.5.5 }",
        "c_int: 1 c_string: 'x'",
        "r_int32: [1 2]",
        "r_int32: [1",
        "[x.y]: 1",
        "[x.y",
        "536870911: 1",
    ] {
        assert!(to(&rich, TEXT, text).is_err(), "{text}");
    }
}

#[test]
fn groups_extensions_and_any_are_supported() {
    let pool = pool(
        "syntax = \"proto2\"; package p; import \"google/protobuf/any.proto\";
         message M { optional group Grp = 1 { optional int32 x = 1; } optional google.protobuf.Any any = 2; extensions 10 to 20; }
         extend M { optional int32 ext = 10; }",
    );
    let m = pool.message("p.M").unwrap();
    let text = "Grp {\n  x: 1\n}\n[p.ext]: 3\n";
    assert_eq!(again(&m, TEXT, text).as_deref(), Ok(text));
    assert_eq!(to(&m, TEXT, "grp { x: 1 }"), to(&m, TEXT, "Grp { x: 1 }"));
    assert_eq!(
        again(&m, TEXT, "any { [type.googleapis.com/p.M]: { Grp { x: 2 } } }").unwrap(),
        "any {\n  type_url: \"type.googleapis.com/p.M\"\n  value: \"\\013\\010\\002\\014\"\n}\n"
    );
    assert!(to(&m, TEXT, "any { [x/nobody] {} }").is_err());
}
