//! An echo as written by rpcx's client and server: raw bytes, no metadata, no compression.

use super::u32_at;

/// Magic, version, flags, serialize type and seq, then the total.
pub(super) const HEADER: usize = 16;

const MAGIC: u8 = 0x08;
const REQUEST: u8 = 0x00;
const REPLY: u8 = 0x80;

pub(super) fn request(payload: &[u8]) -> Vec<u8> {
    frame(REQUEST, payload)
}

/// rpcx's server repeats the path and the method in its reply.
pub(super) fn reply(payload: &[u8]) -> Vec<u8> {
    frame(REPLY, payload)
}

pub(super) fn body_len(header: &[u8]) -> Option<usize> {
    if header.first() != Some(&MAGIC) {
        return None;
    }
    u32_at(header, 12).map(|len| len as usize)
}

fn frame(flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    block(&mut body, b"Echo");
    block(&mut body, b"Raw");
    block(&mut body, b""); // metadata
    block(&mut body, payload);

    let mut frame = vec![MAGIC, 0, flags, 0];
    frame.extend_from_slice(&0_u64.to_be_bytes()); // seq
    block(&mut frame, &body);
    frame
}

fn block(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).expect("a measured message is shorter than 4 GiB");
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `vectors/rpcx/raw.json`, captured from the Go rpcx.
    #[test]
    fn frames_equal_those_of_rpcx() {
        let rest =
            b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x26\x00\x00\x00\x04Echo\x00\x00\x00\x03Raw\
            \x00\x00\x00\x00\x00\x00\x00\x0fraw payload\x20\x00\x01\x02";
        assert_eq!(request(b"raw payload \x00\x01\x02"), [&b"\x08\x00\x00"[..], rest].concat());
        assert_eq!(reply(b"raw payload \x00\x01\x02"), [&b"\x08\x00\x80"[..], rest].concat());
    }
}
