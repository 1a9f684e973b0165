use bytes::Bytes;

use super::frame::{announces, read, read_response, write_request};
use super::{Incoming, Request};

fn one(text: &str) -> Request {
    match read(&Bytes::copy_from_slice(text.as_bytes())) {
        Incoming::One(request) => request,
        other => panic!("expected a request, got {other:?}"),
    }
}

fn refusal_of(text: &[u8]) -> String {
    match read(&Bytes::copy_from_slice(text)) {
        Incoming::Refused(response) => String::from_utf8(response).expect("text"),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn members_are_found_between_any_other_members() {
    let request = one(
        " \n{ \"x\" : {\"id\":9,\"a\":[{}]} , \"params\"\t:\r\n{ \"a\" : \"}],\\\"\\\\\" } ,\"id\" : -1.5e3 ,\"jsonrpc\":\"2.0\",\"method\" : \"a.b\\u002ec\" } ",
    );
    assert_eq!(request.names(), ("a.b", "c"));
    assert_eq!(request.params, r#"{ "a" : "}],\"\\" }"#);
    assert_eq!(request.id.as_deref(), Some(&b"-1.5e3"[..]));
}

#[test]
fn keys_may_be_escaped_and_the_last_duplicate_wins() {
    let request = one(r#"{"\u006asonrpc":"2.0","method":"a","method":"b","\ud800":1}"#);
    assert_eq!((request.names(), &request.id), (("", "b"), &None));
}

#[test]
fn params_are_slices_of_the_message() {
    let message = Bytes::from_static(br#"{"jsonrpc":"2.0","method":"f","params":[1,2]}"#);
    let Incoming::One(request) = read(&message) else { panic!("expected a request") };
    assert!(message.as_ptr_range().contains(&request.params.as_ptr()));
    assert!(request.positional);
}

#[test]
fn million_brackets_are_an_error() {
    let deep = 1_000_000;
    for text in [
        "[".repeat(deep),
        "{\"a\":".repeat(deep),
        "[".repeat(deep) + &"]".repeat(deep),
        format!(
            r#"{{"jsonrpc":"2.0","method":"f","id":1,"params":{}{}}}"#,
            "[".repeat(deep),
            "]".repeat(deep)
        ),
        format!(
            r#"{{"jsonrpc":"2.0","method":"f","id":1,"params":{}1{}}}"#,
            "{\"a\":".repeat(deep),
            "}".repeat(deep)
        ),
    ] {
        assert!(refusal_of(text.as_bytes()).contains("-32700"));
    }
}

#[test]
fn brackets_in_strings_do_not_count_as_depth() {
    let text = format!(r#"{{"jsonrpc":"2.0","method":"f","params":["{}"]}}"#, "[".repeat(1000));
    assert!(one(&text).positional);
}

#[test]
fn invalid_utf8_is_a_parse_error() {
    for text in
        [&b""[..], b" ", b"\xff", b"{\"jsonrpc\":\"\xff\"}", b"{}{}", b"[1,]", b"{\"a\"}", b"nul", b"\"a"]
    {
        assert!(refusal_of(text).contains("-32700"), "{}", text.escape_ascii());
    }
}

#[test]
fn invalid_requests_have_the_codes_of_rpcx_and_in_a_batch_those_of_the_standard() {
    for (text, alone) in [
        (&b"1"[..], "-32700"),
        (b"null", "-32700"),
        (b"\"a\"", "-32700"),
        (br#"{"method":7,"id":1}"#, "-32700"),
        (br#"{"method":"a.b","id":{}}"#, "-32700"),
        (b"{}", "-32601"),
        (br#"{"jsonrpc":"2.0","id":1}"#, "-32601"),
    ] {
        assert!(refusal_of(text).contains(alone), "{}", text.escape_ascii());
        let batch = [b"[", text, b"]"].concat();
        let Incoming::Many(requests, refused) = read(&batch.into()) else { panic!("expected a batch") };
        assert!(requests.is_empty() && refused[0].windows(6).any(|code| code == b"-32600"));
    }
}

#[test]
fn version_of_a_request_is_optional() {
    assert_eq!(one(r#"{"method":"a.b","params":[],"id":1}"#).names(), ("a", "b"));
}

#[test]
fn json_rpc_is_detected_by_the_first_member() {
    assert!(announces(b" {\"jsonrpc\":"));
    assert!(announces(b"[{\"jsonrpc\":"));
    assert!(!announces(b"\"jsonrpc\""));
    assert!(!announces(b"{\"jsonrp\":1}"));
    assert!(!announces(b""));
}

#[test]
fn written_request_is_read_back() {
    for (service, method, name) in
        [("a.b", "c", ("a.b", "c")), ("", "f", ("", "f")), ("S", "\"空\"\n", ("S", "\"空\"\n"))]
    {
        let mut text = Vec::new();
        write_request(&mut text, service, method, b"[1]", Some(7));
        let Incoming::One(request) = read(&text.into()) else { panic!("expected a request") };
        assert_eq!((request.names(), &request.params[..]), (name, &b"[1]"[..]));
        assert_eq!(request.id.as_deref(), Some(&b"7"[..]));
    }
    let mut text = Vec::new();
    write_request(&mut text, "S", "M", b"", None);
    assert_eq!(text, br#"{"jsonrpc":"2.0","method":"S.M"}"#);
}

#[test]
fn valid_and_invalid_responses_are_distinguished() {
    let read = |text: &'static str| read_response(&Bytes::from_static(text.as_bytes()), 7);
    assert_eq!(
        read(r#"{"jsonrpc":"2.0","result":{"C":56},"error":null,"id":7}"#),
        Ok(Ok(Bytes::from_static(br#"{"C":56}"#)))
    );
    let failed =
        read(r#"{"error":{"code":-32602,"message":"a\"b","data":null},"id":7}"#).expect("a response");
    assert_eq!(failed.expect_err("a failure").message(), "a\"b");
    assert!(read(r#"{"error":{"code":-32700,"message":"x"},"id":null}"#).expect("a response").is_err());
    for text in [
        "",
        "[]",
        "{}",
        r#"{"result":1}"#,
        r#"{"result":1,"id":8}"#,
        r#"{"id":7}"#,
        r#"{"error":1,"id":7}"#,
        r#"{"error":{},"id":7}"#,
    ] {
        assert!(read(text).is_err(), "{text}");
    }
}

#[test]
fn request_keeps_neither_a_long_id_nor_an_unused_member() {
    let with_id =
        |length: usize| format!(r#"{{"jsonrpc":"2.0","method":"f","id":"{}"}}"#, "x".repeat(length));
    assert_eq!(one(&with_id(254)).id.map(|id| id.len()), Some(256));
    assert!(refusal_of(with_id(255).as_bytes()).contains("the id has more than 256 bytes"));

    let pad = "x".repeat(10_000);
    let message = Bytes::from(format!(r#"{{"method":"f","params":[1,2],"id":1,"pad":"{pad}"}}"#));
    let Incoming::One(request) = read(&message) else { panic!("expected a request") };
    assert_eq!(request.params, "[1,2]");
    let message = message.try_into_mut();
    assert!(message.is_ok(), "a part refers to the message");
}
