//! WebSocket frames of clients and servers.

use bytes::BytesMut;
use polyrpc_wire::http::websocket::{CloseCode, Config, Endpoint, Event, Kind, Receiver, Role};

use super::Scenario;

/// Bytes for a [`Receiver`] and for an [`Endpoint`].
///
/// # Panics
///
/// If it produces something else for another split of the same bytes, or more than there were.
pub fn websocket(input: &[u8]) {
    let Some((scenario, bytes)) = Scenario::read(input) else { return };
    let whole = ObservedEvents::receive(scenario, &[bytes]);
    let cut = ObservedEvents::receive(scenario, &scenario.cut(bytes));
    assert_eq!((&cut.messages, &cut.others, cut.failure), (&whole.messages, &whole.others, whole.failure));
    // Of an invalid text, less may have been returned.
    if whole.failure.is_none() {
        assert_eq!(cut.begun, whole.begun);
    }
    carry(scenario, bytes);
}

/// Our side is the server, so that received frames are masked.
const SERVER: u8 = 1;
/// Byte stream mode: message boundaries have no meaning.
const BYTES: u8 = 1 << 1;

fn role(scenario: Scenario) -> Role {
    if scenario.has(SERVER) { Role::Server } else { Role::Client(|| 0x5a5a_a5a5) }
}

#[derive(Debug, Default)]
struct ObservedEvents {
    messages: Vec<(Kind, Vec<u8>)>,
    begun: Vec<u8>,
    others: Vec<Event>,
    failure: Option<CloseCode>,
}

impl ObservedEvents {
    fn receive(scenario: Scenario, chunks: &[&[u8]]) -> Self {
        let config = if scenario.has(BYTES) { Config::BYTES } else { Config { message: 2048, utf8: true } };
        let mut receiver = Receiver::new(role(scenario), config);
        let (mut observed, mut raw, mut plain) = (Self::default(), BytesMut::new(), BytesMut::new());
        for chunk in chunks {
            raw.extend_from_slice(chunk);
            loop {
                match receiver.next(&mut raw, &mut plain) {
                    Ok(None) => break,
                    Ok(Some(Event::Data { kind, ended: true })) => {
                        observed.messages.push((kind, plain.split().to_vec()));
                    }
                    Ok(Some(Event::Data { ended: false, .. })) => {}
                    Ok(Some(other)) => observed.others.push(other),
                    Err(code) => observed.failure = Some(code),
                }
            }
            // A header, or a control frame.
            assert!(raw.len() < 14 + 125, "{} bytes wait", raw.len());
        }
        observed.begun = plain.to_vec();
        observed
    }
}

/// The output is valid and small.
fn carry(scenario: Scenario, bytes: &[u8]) {
    let mut endpoint = Endpoint::new(role(scenario));
    let (mut raw, mut plain, mut out) = (BytesMut::new(), BytesMut::new(), Vec::new());
    for chunk in scenario.cut(bytes) {
        raw.extend_from_slice(chunk);
        endpoint.receive(&mut raw, &mut plain);
        endpoint.answer(&mut out);
    }
    endpoint.close(CloseCode::NORMAL, &mut out);
    assert!(plain.len() <= bytes.len() && out.len() <= 3 * bytes.len() + 8);
    let peer = if scenario.has(SERVER) { Role::Client(|| 0) } else { Role::Server };
    let mut peer = Receiver::new(peer, Config::default());
    let (mut sent, mut nothing) = (BytesMut::from(&out[..]), BytesMut::new());
    let mut last = None;
    while let Some(event) = peer.next(&mut sent, &mut nothing).expect("our frames are valid") {
        last = Some(event);
    }
    assert!(matches!(last, Some(Event::Close(Some(_)))) && nothing.is_empty());
}
