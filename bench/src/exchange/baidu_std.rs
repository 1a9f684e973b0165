//! An echo as written by brpc's client and server: no attachment, no compression, no checksum.

use super::u32_at;

/// `PRPC`, body size, meta size.
pub(super) const HEADER: usize = 12;

/// Three bytes as a varint, like the ids of a client's first two million calls.
const CORRELATION_ID: u64 = 1_000_000;

pub(super) fn request(message: &[u8]) -> Vec<u8> {
    request_with_id(CORRELATION_ID, message)
}

pub(super) fn reply(message: &[u8]) -> Vec<u8> {
    reply_with_id(CORRELATION_ID, message)
}

pub(super) fn body_len(header: &[u8]) -> Option<usize> {
    if !header.starts_with(b"PRPC") {
        return None;
    }
    u32_at(header, 4).map(|len| len as usize)
}

fn request_with_id(correlation_id: u64, message: &[u8]) -> Vec<u8> {
    let mut names = Vec::new();
    bytes_field(&mut names, 1, b"example.EchoService");
    bytes_field(&mut names, 2, b"Echo");

    let mut meta = Vec::new();
    bytes_field(&mut meta, 1, &names);
    common_fields(&mut meta, correlation_id);
    frame(&meta, message)
}

fn reply_with_id(correlation_id: u64, message: &[u8]) -> Vec<u8> {
    let mut outcome = Vec::new();
    varint_field(&mut outcome, 1, 0); // error_code: brpc's server always writes it

    let mut meta = Vec::new();
    bytes_field(&mut meta, 2, &outcome);
    common_fields(&mut meta, correlation_id);
    frame(&meta, message)
}

/// Fields that brpc writes even if zero: compress type, id, content type, checksum type and value.
fn common_fields(meta: &mut Vec<u8>, correlation_id: u64) {
    varint_field(meta, 3, 0);
    varint_field(meta, 4, correlation_id);
    varint_field(meta, 10, 0);
    varint_field(meta, 11, 0);
    bytes_field(meta, 12, b"");
}

fn frame(meta: &[u8], message: &[u8]) -> Vec<u8> {
    let mut body = meta.to_vec();
    bytes_field(&mut body, 1, message); // EchoRequest and EchoResponse: string message = 1

    let mut frame = b"PRPC".to_vec();
    frame.extend_from_slice(&be_len(body.len()));
    frame.extend_from_slice(&be_len(meta.len()));
    frame.extend_from_slice(&body);
    frame
}

fn be_len(len: usize) -> [u8; 4] {
    u32::try_from(len).expect("a measured message is shorter than 4 GiB").to_be_bytes()
}

fn varint_field(out: &mut Vec<u8>, number: u8, value: u64) {
    out.push(number << 3);
    varint(out, value);
}

fn bytes_field(out: &mut Vec<u8>, number: u8, value: &[u8]) {
    out.push(number << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `vectors/baidu_std/plain.json`, captured from brpc 1.17.0.
    #[test]
    fn frames_equal_those_of_brpc() {
        const ID: u64 = 4_294_967_298;
        let request = b"PRPC\x00\x00\x00\x38\x00\x00\x00\x2b\x0a\x1b\x0a\x13example.EchoService\x12\x04Echo\
            \x18\x00\x20\x82\x80\x80\x80\x10\x50\x00\x58\x00\x62\x00\x0a\x0bhello world";
        let reply = b"PRPC\x00\x00\x00\x1f\x00\x00\x00\x12\x12\x02\x08\x00\
            \x18\x00\x20\x82\x80\x80\x80\x10\x50\x00\x58\x00\x62\x00\x0a\x0bhello world";

        assert_eq!(request_with_id(ID, b"hello world"), request);
        assert_eq!(reply_with_id(ID, b"hello world"), reply);
    }
}
