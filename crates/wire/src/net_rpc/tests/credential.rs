//! Credentials of the rpcx of 2016.

use polyrpc_core::Credential;

use super::*;

#[test]
fn credential_is_sent_within_the_method_name() {
    for codec in Codec::ALL {
        let credential = Some(Bytes::from_static(b"Bearer 0b79"));
        let config = ClientConfig { codec, credential: credential.clone(), ..Default::default() };
        let mut pair = Pair::new(Client::new(config), server(codec));
        let mut call = call(codec, "Arith", "Mul");
        pair.call(CallId(0), &call, |recorded| {
            assert_eq!((recorded.service, recorded.method), ("Arith", "Mul"));
            assert_eq!(recorded.credential, Credential::Call(credential.clone()));
            Reply::message(codec.format(), body(codec))
        });
        call.credential = Credential::Call(Some(Bytes::from_static(b"of the call")));
        pair.call(CallId(0), &call, |recorded| {
            assert_eq!(recorded.credential, call.credential);
            Reply::message(codec.format(), body(codec))
        });
    }
}

#[test]
fn response_does_not_repeat_the_credential() {
    let config = ClientConfig { credential: Some("Bearer 0b79".into()), ..Default::default() };
    let (mut client, mut out) =
        (Client::new(ClientConfig { codec: Codec::MessagePack, ..config }), Outbox::new());
    client
        .send(CallId(0), call(Codec::MessagePack, "Arith", "Mul"), &mut out)
        .expect("the protocol can express it");
    let request = out.take();
    let signed = b"Arith.Mul\x1f0b79\x1fBearer";
    assert!(request.windows(signed.len()).any(|part| part == signed));
    let mut server = server(Codec::MessagePack);
    let ticket = sole_call(&mut server, &mut BytesMut::from(&request[..]), &mut out);
    server.reply(ticket, Reply::message(Format::MessagePack, body(Codec::MessagePack)), &mut out);
    assert_bytes(
        out.take(),
        hex("83a54572726f72a0a353657100ad536572766963654d6574686f64a941726974682e4d756c82a14107a14208"),
    );
}

#[test]
fn rejected_call_is_answered_and_the_connection_closed() {
    for (credential, want) in
        [(Some("Bearer wrong"), "Authorization failed "), (None, "wrong authorization format for Arith.Mul")]
    {
        let credential = credential.map(Bytes::from);
        let config = ClientConfig { codec: Codec::Json, credential, ..Default::default() };
        let (mut client, mut server, mut out) = (Client::new(config), server(Codec::Json), Outbox::new());
        client
            .send(CallId(3), call(Codec::Json, "Arith", "Mul"), &mut out)
            .expect("the protocol can express it");
        let mut inbox = BytesMut::from(&out.take()[..]);
        let ticket = sole_call(&mut server, &mut inbox, &mut out);
        assert!(server.reject(ticket, Status::unauthenticated("Authorization failed "), &mut out));
        let mut inbox = BytesMut::from(&out.take()[..]);
        let answer = client.next_event(&mut inbox, &mut out).expect("understood").expect("an answer");
        assert_eq!(sole_reply(vec![answer]).1.result.expect_err("a refusal").message(), want);
    }
}
