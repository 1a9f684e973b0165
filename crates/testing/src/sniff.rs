//! Protocol detection.

use bytes::BytesMut;
use polyrpc_core::session::{Server, ServerEvent};
use polyrpc_core::{Detection, Outbox};
use polyrpc_wire::Protocol;
use polyrpc_wire::rest_rpc::version;
use polyrpc_wire::sniff::sniff as guess;

use super::server;

/// The first bytes of a connection; the input's first byte selects the allowed protocols.
pub fn sniff(input: &[u8]) {
    let Some((&choice, start)) = input.split_first() else { return };
    let allowed: Vec<Protocol> = (0..)
        .zip(Protocol::ALL)
        .filter(|(at, _)| choice & 1 << at != 0)
        .map(|(_, protocol)| protocol)
        .collect();
    let mut before = Detection::NeedMore;
    for end in 0..=start.len().min(MAX_PREFIX) {
        let (seen, _) = start.split_at(end);
        let now = guess(seen, &allowed);
        assert!(before == Detection::NeedMore || now == before, "{before:?} became {now:?}");
        if let Detection::Is(protocol) = now {
            assert!(allowed.contains(&protocol));
            assert_eq!(guess(seen, &[protocol]), now, "whatever else is allowed");
            assert_is_not_foreign(protocol, seen);
        }
        before = now;
    }
    assert!(before != Detection::NeedMore || start.len() < MAX_PREFIX, "{MAX_PREFIX} bytes are enough");
}

/// Length of the longest prefix needed for detection: the header of rest_rpc v0.21.
const MAX_PREFIX: usize = 32;

/// Asserts that a session accepts the bytes that it was detected by: otherwise a server would switch forever.
fn assert_is_not_foreign(protocol: Protocol, start: &[u8]) {
    let rejects = match protocol {
        Protocol::BaiduStd => rejects(server::baidu_std(), start),
        Protocol::Rpcx => rejects(server::rpcx(), start),
        Protocol::FbRpc => rejects(server::fb_rpc(), start),
        Protocol::Grpc => rejects(server::grpc(), start),
        Protocol::Http => rejects(server::http(), start),
        Protocol::RestRpc => rejects(server::rest_rpc(version(start).unwrap_or_default()), start),
        Protocol::NetRpc => rejects(server::net_rpc(None), start),
        other => panic!("there is no session of {}", other.as_str()),
    };
    assert!(!rejects, "{protocol:?} is not for its own session");
}

fn rejects(mut session: impl Server, start: &[u8]) -> bool {
    let (mut inbox, mut out) = (BytesMut::from(start), Outbox::new());
    matches!(session.next_event(&mut inbox, &mut out), Ok(Some(ServerEvent::Foreign)))
        && inbox.len() == start.len()
}
