//! JSON-RPC 1.0: how Go's servers and clients treat unusual input.

use polyrpc_core::testing::record_events;

use super::*;

/// Returns a server's output for these bytes when every call is answered with its own body.
fn respond(bytes: &str) -> String {
    let (mut server, mut inbox, mut out) = (server(Codec::Json), BytesMut::from(bytes), Outbox::new());
    loop {
        match server.next_event(&mut inbox, &mut out).expect("JSON") {
            Some(ServerEvent::Call(call, ticket)) => {
                let result = call.malformed.clone().map_or_else(|| Ok(call.body.clone()), Err);
                let reply = Reply { result, ..Reply::message(call.head.format, Bytes::new()) };
                server.reply(ticket, reply, &mut out);
            }
            Some(other) => panic!("{other:?}"),
            None => return String::from_utf8(out.take()).expect("a text"),
        }
    }
}

#[test]
fn id_can_be_any_json_and_is_echoed_unchanged() {
    for id in ["7", "-1.50e3", r#""a\u0041""#, "[1, {\"x\":null}]", "null", "true", "{ }"] {
        let request = format!(r#"{{"method":"S.M","params":[1],"id": {id} }}"#);
        assert_eq!(respond(&request), format!("{{\"id\":{id},\"result\":1,\"error\":null}}\n"));
    }
    assert_eq!(respond(r#"{"method":"S.M","params":[1]}"#), "{\"id\":null,\"result\":1,\"error\":null}\n");
}

#[test]
fn objects_may_be_separated_by_any_white_space_or_none() {
    let one = r#"{"method":"S.M","params":[1],"id":1}"#;
    for between in ["", "\n", " \r\n\t "] {
        let answers = respond(&format!("{between}{one}{between}{one}{between}"));
        assert_eq!(answers, "{\"id\":1,\"result\":1,\"error\":null}\n".repeat(2));
    }
}

#[test]
fn keys_match_in_any_case_and_order_and_unknown_keys_are_ignored() {
    let request = r#"{"Id":1,"x":{"method":"no"},"PARAMS":["{\"}\""],"jsonrpc":"1.0","Method":"S.M"}"#;
    assert_eq!(respond(request), "{\"id\":1,\"result\":\"{\\\"}\\\"\",\"error\":null}\n");
}

#[test]
fn params_are_an_array_of_one_and_missing_ones_are_answered_as_by_go() {
    let failed = |params: &str| respond(&format!(r#"{{"method":"S.M"{params},"id":1}}"#));
    for none in ["", r#","params":null"#] {
        assert!(failed(none).contains(r#""result":null,"error":"jsonrpc: request body missing params"}"#));
    }
    for (no_list, what) in [(r#"{"A":1}"#, "object"), ("7", "number"), (r#""x""#, "string"), ("true", "bool")]
    {
        let told = failed(&format!(r#","params":{no_list}"#));
        let want = format!("json: cannot unmarshal {what} into Go value of type [1]interface {{}}");
        assert!(told.contains(&want), "{told}");
    }
    assert_eq!(failed(r#","params":[]"#), "{\"id\":1,\"result\":{},\"error\":null}\n");
    assert_eq!(failed(r#","params":[ [1, 2] ]"#), "{\"id\":1,\"result\":[1, 2],\"error\":null}\n");
    assert_eq!(failed(r#","params":[1, 2]"#), "{\"id\":1,\"result\":[1, 2],\"error\":null}\n", "all of them");
}

#[test]
fn several_params_are_passed_as_positional_arguments() {
    let request = br#"{"method":"add","params":[1,2],"id":0}"#;
    let (mut server, mut out) = (server(Codec::Json), Outbox::new());
    match server.next_event(&mut BytesMut::from(&request[..]), &mut out) {
        Ok(Some(ServerEvent::Call(call, _))) => {
            assert_eq!((call.service, call.method, call.head.positional), ("", "add", true));
            assert_bytes(&call.body, "[1,2]");
            let (mut again, mut out) = (Outbox::new(), client(Codec::Json));
            out.send(CallId(9), call, &mut again).expect("the protocol can express it");
            assert_bytes(again.take(), [&request[..], b"\n"].concat());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn escaped_name_equals_the_plain_name() {
    let request = r#"{"method":"Arith\u002eM\u0075l","params":[1],"id":1}"#;
    let recorded = record_events(server(Codec::Json), &[request.as_bytes()]);
    assert!(recorded.calls[0].contains(r#"service: "Arith", method: "Mul""#), "{:?}", recorded.calls);
}

#[test]
fn invalid_json_object_closes_the_connection() {
    for bytes in
        ["[]", "7", r#"{"method":}"#, r#"{"method":7,"params":[1],"id":1}"#, "}", "{]", r#"{"a":1,}"#]
    {
        let recorded = record_events(server(Codec::Json), &[bytes.as_bytes()]);
        assert!(recorded.violation.is_some() && recorded.calls.is_empty(), "{bytes}");
    }
}

#[test]
fn invalid_unicode_is_replaced_as_by_go() {
    let recorded =
        record_events(server(Codec::Json), &[b"{\"method\":\"Arith.M\xff\",\"params\":[\"\xff\"],\"id\":1}"]);
    assert!(recorded.violation.is_none() && recorded.calls[0].contains("M\u{fffd}"), "{recorded:?}");
}

#[test]
fn null_does_not_replace_a_repeated_method() {
    let recorded =
        record_events(server(Codec::Json), &[br#"{"method":"S.M","method":null,"params":[1],"id":1}"#]);
    assert!(recorded.calls[0].contains(r#"service: "S", method: "M""#), "{recorded:?}");
}

#[test]
fn too_deeply_nested_arguments_fail_their_call_only() {
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let good = r#"{"method":"S.M","params":[1],"id":2}"#;
    let answers = respond(&format!(r#"{{"method":"S.M","params":[{deep}],"id":1}}{good}"#));
    let want = "{\"id\":1,\"result\":null,\"error\":\"exceeded max depth\"}\n{\"id\":2,\"result\":1,\"error\":null}\n";
    assert_eq!(answers, want);
}

#[test]
fn empty_result_is_an_empty_struct_for_go_clients() {
    for nothing in ["null", ""] {
        let (mut server, mut out) = (server(Codec::Json), Outbox::new());
        let mut inbox = BytesMut::from(&br#"{"method":"S.M","params":[1],"id":1}"#[..]);
        let ticket = sole_call(&mut server, &mut inbox, &mut out);
        server.reply(ticket, Reply::message(Format::Json(Json::Go), nothing.into()), &mut out);
        assert_bytes(out.take(), "{\"id\":1,\"result\":{},\"error\":null}\n");
    }
}

#[test]
fn error_must_be_a_string_and_other_values_are_invalid() {
    for (response, want) in [
        (r#"{"id":0,"result":null,"error":"boom"}"#, Err("boom")),
        (r#"{"id":0,"error":"a\nb"}"#, Err("a\nb")),
        (r#"{"id":0,"result":1,"error":""}"#, Err("unspecified error")),
        (r#"{"id":0,"result":null,"error":{"code":1}}"#, Err(r#"invalid error {"code":1}"#)),
        (r#"{"error":null,"result":[1,2],"id":0}"#, Ok("[1,2]")),
        (r#"{"id":0,"result":null,"error":null}"#, Ok("null")),
        (r#"{"id":0}"#, Ok("null")),
    ] {
        let (mut client, mut out) = (client(Codec::Json), Outbox::new());
        client.send(CallId(4), call(Codec::Json, "S", "M"), &mut out).expect("the protocol can express it");
        let answer = client.next_event(&mut BytesMut::from(response), &mut out).expect("understood");
        let (id, reply) = sole_reply(answer.into_iter().collect());
        assert_eq!(id, CallId(4));
        let result = reply.result.as_ref().map(|body| &body[..]).map_err(|status| status.message());
        assert_eq!(result, want.map(str::as_bytes), "{response}");
    }
}

#[test]
fn response_to_an_unknown_call_is_dropped() {
    let (mut client, mut out) = (client(Codec::Json), Outbox::new());
    client.send(CallId(4), call(Codec::Json, "S", "M"), &mut out).expect("the protocol can express it");
    let mut inbox = BytesMut::from(r#"{"id":null,"error":"x"}{"id":5,"result":1}{"id":"0","result":1}"#);
    assert!(client.next_event(&mut inbox, &mut out).expect("understood").is_none());
    assert!(inbox.is_empty());
}

#[test]
fn request_keeps_neither_a_long_id_nor_an_unused_member() {
    let next = |bytes: &[u8]| {
        let (mut server, mut inbox) = (server(Codec::Json), BytesMut::from(bytes));
        match server.next_event(&mut inbox, &mut Outbox::new()) {
            Ok(Some(ServerEvent::Call(call, _))) => Ok(call.body),
            Ok(other) => panic!("expected a call, got {other:?}"),
            Err(violation) => Err(violation.to_string()),
        }
    };
    let with_id = |length: usize| {
        format!(r#"{{"method":"S.M","params":[1],"id":"{}"}}"#, "x".repeat(length)).into_bytes()
    };
    assert!(next(&with_id(254)).is_ok());
    assert!(next(&with_id(255)).unwrap_err().contains("the id has more than 256 bytes"));

    let with_member = |byte: u8, length: usize| {
        [&br#"{"method":"S.M","params":[1],"id":1,"x":""#[..], &vec![byte; length], b"\"}"].concat()
    };
    let body = next(&with_member(b'x', 10_000)).unwrap();
    assert!(body.try_into_mut().is_ok_and(|body| body.capacity() < 1_000), "it refers to the message");
    assert!(next(&with_member(0xff, 60_000)).is_ok());
    assert!(next(&with_member(0xff, 70_000)).unwrap_err().contains("a long message is not UTF-8"));
}
