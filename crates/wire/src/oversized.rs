//! Messages that exceed the limit: the call fails, the rest of its frame is discarded, and the connection goes on.

use bytes::{Buf, BytesMut};
use polyrpc_core::session::{RefusalCause, Refusals, UnreportedRefusals};
use polyrpc_core::status::texts::TOO_LARGE;
use polyrpc_core::{Fault, Retry, Status, Violation};

/// Largest frame that is discarded: waiting for the end of a longer one would delay the other calls too long, and its
/// length is more likely wrong than true.
pub(crate) const MAX_DISCARDED: usize = 1 << 30;

/// The rest of a frame that is removed as it arrives, without being held.
#[derive(Debug, Default)]
pub(crate) struct Discarding {
    left: usize,
}

impl Discarding {
    /// Discards this many further bytes.
    pub(crate) fn start(&mut self, bytes: usize) {
        self.left = bytes;
    }

    /// Whether the rest of a frame is still to come. A further call would wait for it: for ever, if its length is wrong.
    pub(crate) fn is_active(&self) -> bool {
        self.left > 0
    }

    /// Removes what has arrived of the frame. Returns whether that was all.
    #[inline]
    pub(crate) fn take(&mut self, inbox: &mut BytesMut) -> bool {
        self.left == 0 || self.take_some(inbox)
    }

    #[cold]
    fn take_some(&mut self, inbox: &mut BytesMut) -> bool {
        let here = self.left.min(inbox.len());
        inbox.advance(here);
        self.left -= here;
        self.left == 0
    }
}

/// Requests that exceed the limit of a server's session. Takes one word until there is one.
#[derive(Debug, Default)]
pub(crate) struct OversizedRequests(Option<Box<RejectedRequests>>);

#[derive(Debug, Default)]
struct RejectedRequests {
    discarding: Discarding,
    refusals: UnreportedRefusals,
}

impl OversizedRequests {
    /// Counts a rejected request, and discards its rest of this many bytes.
    #[cold]
    pub(crate) fn reject(&mut self, rest: usize) {
        let rejected = self.0.get_or_insert_default();
        rejected.discarding.start(rest);
        rejected.refusals.record(RefusalCause::TooLarge);
    }

    /// Removes what has arrived of a rejected request. Returns whether that was all.
    #[inline]
    pub(crate) fn discard(&mut self, inbox: &mut BytesMut) -> bool {
        self.0.as_mut().is_none_or(|rejected| rejected.discarding.take(inbox))
    }

    /// Whether the rest of a rejected request is still to come.
    pub(crate) fn is_discarding(&self) -> bool {
        self.0.as_ref().is_some_and(|rejected| rejected.discarding.is_active())
    }

    /// Returns the number of requests rejected since the last call.
    pub(crate) fn take_refusals(&mut self) -> Option<Refusals> {
        self.0.as_mut()?.refusals.take()
    }
}

/// Returns the failure of a call whose request exceeds a limit of this side.
#[cold]
pub(crate) fn request_too_large(violation: &Violation) -> Status {
    Status::resource_exhausted(format!("{TOO_LARGE}{violation}"))
        .with_fault(Fault::Caller)
        .with_retry(Retry::Never)
}

/// Returns the failure of a call whose response exceeds the limit of this side. The call was processed, and would be
/// answered so again.
#[cold]
pub(crate) fn response_too_long(length: usize, limit: usize) -> Status {
    too_long(format!("the response is too long: {length} bytes where {limit} are allowed"))
}

/// Returns the same failure with another text.
#[cold]
pub(crate) fn too_long(text: String) -> Status {
    Status::resource_exhausted(text).with_fault(Fault::Us).with_retry(Retry::Never)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use polyrpc_core::session::{Client, ClientEvent, Server, ServerEvent, ViolationKind};
    use polyrpc_core::{Call, CallId, Code, Format, Limits, Outbox, Reply, Violation};

    use super::*;
    use crate::net_rpc::Codec;
    use crate::{baidu_std, fb_rpc, net_rpc, rest_rpc, rpcx};

    const LIMIT: usize = 1024;

    fn limits() -> Limits {
        Limits { message: LIMIT, ..Limits::default() }
    }

    /// Results of two calls, of which the first is answered by `large`, and why the connection ended. The answers arrive
    /// in small pieces, of which the client never holds more than its limit.
    fn results(
        mut client: impl Client,
        mut server: impl Server,
        call: &Call<'_>,
        large: &Bytes,
    ) -> (Vec<(u64, Result<Bytes, Status>)>, Option<Violation>) {
        let mut answers = Vec::new();
        for (id, body) in [(1, large), (2, &call.body)] {
            let (mut out, mut replied) = (Outbox::new(), Outbox::new());
            client.send(CallId(id), call.clone(), &mut out).expect("it can be sent");
            let mut request = BytesMut::from(&out.take()[..]);
            let ticket = match server.next_event(&mut request, &mut replied) {
                Ok(Some(ServerEvent::Call(_, ticket))) => ticket,
                other => panic!("expected a call, got {}", other.is_ok()),
            };
            server.reply(ticket, Reply::message(call.head.format, body.clone()), &mut replied);
            answers.extend_from_slice(&replied.take());
        }
        let (mut inbox, mut out, mut results) = (BytesMut::new(), Outbox::new(), Vec::new());
        for piece in answers.chunks(97) {
            inbox.extend_from_slice(piece);
            loop {
                match client.next_event(&mut inbox, &mut out) {
                    Ok(Some(ClientEvent::Reply(id, reply))) => results.push((id.0, reply.result)),
                    Ok(Some(other)) => panic!("expected a reply, got {other:?}"),
                    Ok(None) => break,
                    Err(violation) => return (results, Some(violation)),
                }
            }
            assert!(inbox.len() <= LIMIT, "{} bytes are held", inbox.len());
        }
        (results, None)
    }

    /// Results of two calls, of which the first has the `large` request. The requests arrive in small pieces, of which
    /// the server never holds more than its limit.
    fn results_of_requests(
        mut client: impl Client,
        mut server: impl Server,
        call: &Call<'_>,
        large: &Bytes,
    ) -> Vec<(u64, Result<Bytes, Status>)> {
        let mut out = Outbox::new();
        for (id, body) in [(1, large), (2, &call.body)] {
            let call = Call { body: body.clone(), ..call.clone() };
            client.send(CallId(id), call, &mut out).expect("it can be sent");
        }
        let (requests, mut inbox, mut replied) = (out.take(), BytesMut::new(), Outbox::new());
        for piece in requests.chunks(97) {
            inbox.extend_from_slice(piece);
            while let Some(event) = server.next_event(&mut inbox, &mut replied).expect("it goes on") {
                let (ticket, reply) = match event {
                    ServerEvent::Call(Call { malformed: Some(status), .. }, ticket) => {
                        (ticket, Reply::failure(status))
                    }
                    ServerEvent::Call(call, ticket) => (ticket, Reply::message(call.head.format, call.body)),
                    _ => panic!("expected a call"),
                };
                server.reply(ticket, reply, &mut replied);
            }
            assert!(inbox.len() <= LIMIT, "{} bytes are held", inbox.len());
        }
        assert!(server.incomplete(&inbox).is_none());
        assert_eq!(server.take_refusals().map(|refusals| refusals.too_large), Some(1));
        let (mut inbox, mut results) = (BytesMut::from(&replied.take()[..]), Vec::new());
        while let Some(event) = client.next_event(&mut inbox, &mut Outbox::new()).expect("it goes on") {
            let ClientEvent::Reply(id, reply) = event else { panic!("expected a reply, got {event:?}") };
            results.push((id.0, reply.result));
        }
        results
    }

    #[track_caller]
    fn assert_is_answered(
        case: &str,
        client: impl Client,
        server: impl Server,
        call: &Call<'_>,
        large: &Bytes,
    ) {
        let results = results_of_requests(client, server, call, large);
        let [(1, Err(status)), (2, Ok(_))] = &results[..] else { panic!("{case}: {results:?}") };
        assert!(status.message().contains("the request is too large: "), "{case}: {status}");
        assert!(status.message().contains("1024"), "{case}: {status}");
        assert_eq!(status.retry(), Retry::Never, "{case}: {status}");
    }

    #[test]
    fn oversized_request_is_answered_and_not_held() {
        let (small, large) = (Bytes::from_static(b"small"), fill(b"", b""));

        let config = rpcx::ServerConfig { limits: limits(), ..<_>::default() };
        let client = rpcx::Client::new(<_>::default());
        let call = Call::new("Service", "Method", Format::Raw, small);
        assert_is_answered("rpcx", client, rpcx::Server::new(Arc::new(config)), &call, &large);

        for (codec, (small, large)) in net_rpc_bodies() {
            let config = net_rpc::ServerConfig { limits: limits(), codec: Some(codec) };
            let client = net_rpc::Client::new(net_rpc::ClientConfig { codec, ..<_>::default() });
            let call = Call::new("Service", "Method", codec.format(), small);
            let server = net_rpc::Server::new(Arc::new(config));
            assert_is_answered(codec.as_str(), client, server, &call, &large);
        }
    }

    #[track_caller]
    fn assert_is_too_long(case: &str, result: Option<&(u64, Result<Bytes, Status>)>) {
        let Some((1, Err(status))) = result else { panic!("{case}: {result:?}") };
        assert_eq!((status.code(), status.retry()), (Code::ResourceExhausted, Retry::Never), "{case}");
        assert!(status.message().contains("1024"), "{case}: {status}");
    }

    #[track_caller]
    fn assert_goes_on(case: &str, client: impl Client, server: impl Server, call: &Call<'_>, large: &Bytes) {
        let (results, violation) = results(client, server, call, large);
        assert_eq!(violation, None, "{case}");
        assert_is_too_long(case, results.first());
        assert!(matches!(results[1..], [(2, Ok(_))]), "{case}: {results:?}");
    }

    fn fill(head: &[u8], tail: &[u8]) -> Bytes {
        [head, &[b'x'; 20_000], tail].concat().into()
    }

    #[test]
    fn oversized_response_fails_its_call_only_and_is_not_held() {
        let large = fill(b"", b"");
        let small = || Bytes::from_static(b"small");

        let config = baidu_std::ClientConfig { limits: limits(), ..<_>::default() };
        let server = baidu_std::Server::new(Arc::new(<_>::default()));
        let call = Call::new("a.Service", "Method", Format::Protobuf, small());
        assert_goes_on("baidu_std", baidu_std::Client::new(config), server, &call, &large);

        let config = rpcx::ClientConfig { limits: limits(), ..<_>::default() };
        let server = rpcx::Server::new(Arc::new(<_>::default()));
        let call = Call::new("Service", "Method", Format::Raw, small());
        assert_goes_on("rpcx", rpcx::Client::new(config), server, &call, &large);

        let config = fb_rpc::ClientConfig { limits: limits(), ..<_>::default() };
        let server = fb_rpc::Server::new(Arc::new(<_>::default()));
        let call = Call::new("#1", "#0", Format::FlatBuffers, small());
        assert_goes_on("fb_rpc", fb_rpc::Client::new(config), server, &call, &large);
    }

    #[test]
    fn oversized_response_of_rest_rpc_fails_its_call_only() {
        for (version, format) in [
            (rest_rpc::Version::default(), Format::RestRpc),
            (rest_rpc::Version::V0_20, Format::MessagePackArray),
        ] {
            let mut functions = rest_rpc::Functions::default();
            functions.add("", "add");
            let config = rest_rpc::ServerConfig { limits: Limits::default(), functions };
            let server = rest_rpc::Server::new(Arc::new(config), version);
            let client = rest_rpc::Client::new(rest_rpc::ClientConfig { limits: limits(), version });
            let mut call = Call::new("", "add", format, Bytes::from_static(&[0x92, 7, 8]));
            call.head.positional = true;
            assert_goes_on(&format!("{version:?}"), client, server, &call, &fill(b"", b""));
        }
    }

    fn net_rpc(codec: Codec) -> (net_rpc::Client, net_rpc::Server) {
        let config = net_rpc::ClientConfig { limits: limits(), codec, ..<_>::default() };
        let server = net_rpc::ServerConfig { codec: Some(codec), ..<_>::default() };
        (net_rpc::Client::new(config), net_rpc::Server::new(Arc::new(server)))
    }

    /// A small and a large body of each codec in which the end of a large one can be told.
    fn net_rpc_bodies() -> [(Codec, (Bytes, Bytes)); 6] {
        let plain = (Bytes::from_static(b"small"), fill(b"", b""));
        let gob = (
            Bytes::from_static(b"\x08\x0c\x00\x05small"),
            fill(&[0xfe, 0x4e, 0x25, 0x0c, 0, 0xfe, 0x4e, 0x20], b""),
        );
        let bson = (Bytes::from_static(b"\x05\0\0\0\0"), fill(b"\x2d\x4e\0\0\x02a\0\x21\x4e\0\0", b"\0\0"));
        let json = (Bytes::from_static(b"\"small\""), fill(b"\"", b"\""));
        [
            (Codec::Json, json),
            (Codec::Protobuf, plain.clone()),
            (Codec::Gencode, plain.clone()),
            (Codec::Colfer, plain),
            (Codec::Gob, gob),
            (Codec::Bson, bson),
        ]
    }

    #[test]
    fn oversized_response_of_net_rpc_fails_its_call_only_if_its_end_can_be_told() {
        for (codec, (small, large)) in net_rpc_bodies() {
            let (client, server) = net_rpc(codec);
            let call = Call::new("Service", "Method", codec.format(), small);
            assert_goes_on(codec.as_str(), client, server, &call, &large);
        }
    }

    #[test]
    fn call_is_told_even_if_the_connection_ends_after_its_oversized_response() {
        let (client, server) = net_rpc(Codec::MessagePack);
        let small = Bytes::from_static(&[0xc0]);
        let call = Call::new("Service", "Method", Codec::MessagePack.format(), small);
        let (results, violation) = results(client, server, &call, &fill(&[0xda, 0x4e, 0x20], b""));
        assert_is_too_long("MessagePack", results.first());
        assert_eq!(results.len(), 1);
        assert_eq!(violation.expect("its end is unknown").kind(), ViolationKind::TooLarge);
    }

    #[test]
    fn response_of_an_absurd_length_ends_the_connection() {
        let header = [&b"PRPC"[..], &u32::MAX.to_be_bytes(), &[0; 4]].concat();
        let mut client = baidu_std::Client::new(baidu_std::ClientConfig::default());
        let violation = client.next_event(&mut BytesMut::from(&header[..]), &mut Outbox::new());
        assert_eq!(violation.expect_err("nobody waits for it").kind(), ViolationKind::TooLarge);
    }
}
