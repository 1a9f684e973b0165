//! Go's encoding.

use bytes::BytesMut;
use polyrpc_payload::gob;
use polyrpc_payload::gob::{Limits, Reader, Writer};
use serde::de::IgnoredAny;

use super::Scenario;

/// Small limits, so that the inputs of a fuzzer reach them.
const LIMITS: Limits = Limits { message: 2048, types: 16, definitions: 1024, depth: 16 };

/// A stream of values, in pieces. Decoded values are printed, sent on in another stream, and print the same there.
pub fn gob(input: &[u8]) {
    let Some((scenario, bytes)) = Scenario::read(input) else { return };
    let (mut reader, mut inbox, mut values) = (Reader::new(LIMITS), BytesMut::new(), Vec::new());
    for piece in scenario.cut(bytes) {
        inbox.extend_from_slice(piece);
        while let Ok(Some(value)) = reader.next(&mut inbox) {
            let skipped = value.decode::<IgnoredAny>();
            let body = value.into_bytes();
            assert_eq!(skipped, gob::from_slice::<IgnoredAny>(&body));
            values.push(body);
        }
        let wanted = reader.wanted();
        assert!(wanted <= LIMITS.message + 9, "wants {wanted} bytes");
        assert!(wanted == 0 || wanted > inbox.len(), "wants {wanted} bytes and has {}", inbox.len());
    }
    send_on(&values);
    if let Ok(body) = gob::from_json(bytes) {
        gob::to_json(&body).expect("what was written can be read");
    }
}

fn send_on(values: &[bytes::Bytes]) {
    let (mut writer, mut out, mut shown) = (Writer::new(), Vec::new(), Vec::new());
    for body in values {
        let Ok(json) = gob::to_json(body) else { continue };
        writer.value(body, &mut out).expect("what was read can be sent");
        shown.push(json);
    }
    let (mut reader, mut sent) = (Reader::new(Limits::default()), BytesMut::from(&out[..]));
    for json in shown {
        let value = reader.next(&mut sent).expect("what was written is a stream");
        let body = value.expect("each value that was written").into_bytes();
        assert_eq!(gob::to_json(&body), Ok(json));
    }
    assert!(sent.is_empty());
}
