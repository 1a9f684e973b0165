//! Tests that a session emits the same events however the bytes are split.

use bytes::BytesMut;

use crate::session::{Server, ServerEvent, Verdict};
use crate::{Call, Outbox, Violation};

/// Events of a server session, in a comparable form.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordedEvents {
    /// The calls as text: everything that a handler could see of them.
    pub calls: Vec<String>,
    /// Bytes that the session sent by itself.
    pub out: Vec<u8>,
    /// The session reported that the rest belongs to another protocol.
    pub foreign: bool,
    /// Violation that ended the session.
    pub violation: Option<Violation>,
}

/// Feeds `chunks` to a server session one after the other and records its events. No call is answered, except by the
/// session itself.
pub fn record_events<S: Server>(mut session: S, chunks: &[&[u8]]) -> RecordedEvents {
    let (mut recorded, mut inbox, mut out) = (RecordedEvents::default(), BytesMut::new(), Outbox::new());
    'all: for chunk in chunks {
        inbox.extend_from_slice(chunk);
        loop {
            match session.next_event(&mut inbox, &mut out) {
                Ok(None) => break,
                // Whether a head is emitted before its call depends on how the bytes are split.
                Ok(Some(ServerEvent::Head(_, stream))) => {
                    session.apply_verdict(stream, Verdict::Accepted, &mut out);
                }
                Ok(Some(ServerEvent::Call(call, _))) => {
                    recorded.calls.push(describe_call(&Call { authenticated: false, ..call }));
                }
                Ok(Some(ServerEvent::Open(call, ticket, stream))) => {
                    let call = Call { authenticated: false, ..call };
                    recorded.calls.push(describe_event(&ServerEvent::Open(call, ticket, stream)));
                }
                Ok(Some(
                    ServerEvent::Foreign
                    | ServerEvent::Connect
                    | ServerEvent::Upgrade(_)
                    | ServerEvent::WebSocket,
                )) => {
                    recorded.foreign = true;
                    break 'all;
                }
                Ok(Some(event)) => recorded.calls.push(describe_event(&event)),
                Err(violation) => {
                    recorded.violation = Some(violation);
                    break 'all;
                }
            }
        }
    }
    recorded.out = out.take();
    recorded
}

/// Formats everything a handler could see of a call.
pub fn describe_call(call: &Call<'_>) -> String {
    // `Debug` omits the credential.
    format!("{call:?} {:?}", call.credential.bytes())
}

/// Formats an event of a call that is emitted in parts.
pub fn describe_event<T>(event: &ServerEvent<'_, T>) -> String {
    match event {
        ServerEvent::Call(call, _) => describe_call(call),
        ServerEvent::Open(call, _, stream) => format!("{stream:?} opened: {}", describe_call(call)),
        ServerEvent::Message(stream, message) => format!("{stream:?}: {message:?}"),
        ServerEvent::End(stream) => format!("{stream:?} ended"),
        ServerEvent::Room(stream) => format!("{stream:?} has room"),
        ServerEvent::Cancelled(stream) => format!("{stream:?} cancelled"),
        ServerEvent::Head(head, stream) => {
            format!("{stream:?} announced: {head:?} {:?}", head.credential.bytes())
        }
        ServerEvent::Alive => "alive".to_owned(),
        ServerEvent::Pause => "others have their turn".to_owned(),
        ServerEvent::Subscribe(topic) => format!("subscribed to {topic:?}"),
        ServerEvent::Foreign => "another protocol".to_owned(),
        ServerEvent::Connect => "what CONNECT was for".to_owned(),
        ServerEvent::Upgrade(upgrade) => format!("HTTP/2 from here on: {upgrade:?}"),
        ServerEvent::WebSocket => "a WebSocket from here on".to_owned(),
    }
}

/// Asserts that a server session emits the same events for `bytes` however they are split: whole, byte by byte, and at
/// every single position.
pub fn assert_any_split<S: Server>(new: impl Fn() -> S, bytes: &[u8]) {
    let whole = record_events(new(), &[bytes]);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(record_events(new(), &single), whole, "byte by byte");
    for at in 1..bytes.len() {
        let (a, b) = bytes.split_at(at);
        assert_eq!(record_events(new(), &[a, b]), whole, "cut at {at}");
    }
}
