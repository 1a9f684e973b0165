//! Failures in protobuf and gencode, which Go's servers cannot write.

use super::*;

#[test]
fn failure_of_a_go_server_without_a_body_is_read() {
    for codec in [Codec::Protobuf, Codec::Gencode] {
        let (mut server, mut client) = (server(codec), client(codec));
        let (mut inbox, mut out) = (BytesMut::new(), Outbox::new());
        for id in 0..4 {
            client.send(CallId(id), call(codec, "S", "M"), &mut out).expect("the protocol can express it");
        }
        inbox.extend_from_slice(&out.take());
        for result in [Err("boom"), Err("bang"), Ok(body(codec)), Err("pang")] {
            let ticket = sole_call(&mut server, &mut inbox, &mut out);
            match result {
                Ok(body) => server.reply(ticket, Reply::message(codec.format(), body), &mut out),
                Err(text) => {
                    server.reply(ticket, Reply::failure(Status::unknown(text)), &mut out);
                    assert_eq!(out.buffer().pop(), Some(0), "the empty body");
                }
            }
        }
        let answers = out.take();
        for chunk in [1, answers.len()] {
            let mut inbox = BytesMut::new();
            let mut recorded = Vec::new();
            let mut client = self::client(codec);
            for id in 0..4 {
                client
                    .send(CallId(id), call(codec, "S", "M"), &mut out)
                    .expect("the protocol can express it");
            }
            for chunk in answers.chunks(chunk) {
                inbox.extend_from_slice(chunk);
                while let Some(answer) = client.next_event(&mut inbox, &mut out).expect("understood") {
                    recorded.push(
                        sole_reply(vec![answer]).1.result.map_err(|status| status.message().to_owned()),
                    );
                }
            }
            let failed = |text: &str| Err(text.to_owned());
            assert_eq!(recorded, [failed("boom"), failed("bang"), Ok(body(codec)), failed("pang")]);
        }
    }
}

#[test]
fn failure_is_reported_before_its_empty_body_arrives() {
    let mut client = client(Codec::Protobuf);
    let mut out = Outbox::new();
    client.send(CallId(5), call(Codec::Protobuf, "S", "M"), &mut out).expect("the protocol can express it");
    let mut inbox = BytesMut::from(&hex("06 1a04626f6f6d")[..]);
    let answer = client.next_event(&mut inbox, &mut out).expect("understood").expect("an answer");
    assert_eq!(sole_reply(vec![answer]).1.result, Err(Status::unknown("boom")));
}

#[test]
fn error_field_in_a_request_is_ignored() {
    // Field 3, which only a response has; the body follows as usual.
    let request = hex("0d 0a03532e4d 1a06");
    let mut inbox = BytesMut::from(&request[..]);
    inbox.extend_from_slice(b"ignore");
    inbox.extend_from_slice(&hex("02 0815"));
    let (mut server, mut out) = (server(Codec::Protobuf), Outbox::new());
    match server.next_event(&mut inbox, &mut out) {
        Ok(Some(ServerEvent::Call(call, _))) => assert_bytes(&call.body, hex("0815")),
        other => panic!("{other:?}"),
    }
    assert!(inbox.is_empty());
}
