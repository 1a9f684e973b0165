//! Frames of the other protocols.

/// A baidu_std request. `compress` is the number of the compression: 1 snappy, 2 gzip.
pub(crate) fn baidu_std(service: &str, method: &str, id: u64, compress: u64, message: &[u8]) -> Vec<u8> {
    let mut frame = baidu_std_head(service, method, id, compress, message.len());
    frame.extend(message);
    frame
}

/// A baidu_std request that offers an attached stream with feedback.
pub(crate) fn baidu_std_stream(service: &str, method: &str, id: u64, message: &[u8]) -> Vec<u8> {
    let mut settings = Vec::new();
    proto_number(&mut settings, 1, id);
    proto_number(&mut settings, 2, 1);
    proto_number(&mut settings, 3, 1);
    let mut frame = baidu_std_frame(service, method, id, 0, &[(8, &settings)], message.len());
    frame.extend(message);
    frame
}

/// A baidu_std request with a credential.
pub(crate) fn baidu_std_with(
    credential: &str,
    service: &str,
    method: &str,
    id: u64,
    message: &[u8],
) -> Vec<u8> {
    let mut frame = baidu_std_frame(service, method, id, 0, &[(7, credential.as_bytes())], message.len());
    frame.extend(message);
    frame
}

/// The same without its message, only with its announced length.
pub(crate) fn baidu_std_head(service: &str, method: &str, id: u64, compress: u64, message: usize) -> Vec<u8> {
    baidu_std_frame(service, method, id, compress, &[], message)
}

fn baidu_std_frame(
    service: &str,
    method: &str,
    id: u64,
    compress: u64,
    fields: &[(u64, &[u8])],
    message: usize,
) -> Vec<u8> {
    let mut request = Vec::new();
    proto_bytes(&mut request, 1, service.as_bytes());
    proto_bytes(&mut request, 2, method.as_bytes());
    let mut meta = Vec::new();
    proto_bytes(&mut meta, 1, &request);
    proto_number(&mut meta, 3, compress);
    proto_number(&mut meta, 4, id);
    for (field, bytes) in fields {
        proto_bytes(&mut meta, *field, bytes);
    }
    let mut frame = b"PRPC".to_vec();
    frame.extend(((meta.len() + message) as u32).to_be_bytes());
    frame.extend((meta.len() as u32).to_be_bytes());
    frame.extend(meta);
    frame
}

/// An rpcx request with raw bytes as its payload.
pub(crate) fn rpcx(service: &str, method: &str, seq: u64, payload: &[u8]) -> Vec<u8> {
    rpcx_compressed(service, method, seq, false, payload)
}

/// The same, its payload compressed by gzip.
pub(crate) fn rpcx_compressed(service: &str, method: &str, seq: u64, gzip: bool, payload: &[u8]) -> Vec<u8> {
    let mut frame = rpcx_head(service, method, seq, gzip, payload.len());
    frame.extend(payload);
    frame
}

/// An rpcx request with a payload in MessagePack.
pub(crate) fn rpcx_message_pack(service: &str, method: &str, seq: u64, payload: &[u8]) -> Vec<u8> {
    let mut frame = rpcx(service, method, seq, payload);
    // The serialization, 3, in the upper half of the last byte of magic, version, flags and serialization.
    frame[3] = 3 << 4;
    frame
}

/// An rpcx request with a credential, which is metadata.
pub(crate) fn rpcx_with(credential: &str, service: &str, method: &str, seq: u64, payload: &[u8]) -> Vec<u8> {
    let mut metadata = Vec::new();
    for text in ["__AUTH", credential] {
        metadata.extend((text.len() as u32).to_be_bytes());
        metadata.extend(text.as_bytes());
    }
    let mut frame = rpcx_frame(service, method, &metadata, seq, false, payload.len());
    frame.extend(payload);
    frame
}

/// The same without its payload.
pub(crate) fn rpcx_head(service: &str, method: &str, seq: u64, gzip: bool, payload: usize) -> Vec<u8> {
    rpcx_frame(service, method, b"", seq, gzip, payload)
}

fn rpcx_frame(service: &str, method: &str, metadata: &[u8], seq: u64, gzip: bool, payload: usize) -> Vec<u8> {
    let mut blocks = Vec::new();
    for block in [service.as_bytes(), method.as_bytes(), metadata] {
        blocks.extend((block.len() as u32).to_be_bytes());
        blocks.extend(block);
    }
    blocks.extend((payload as u32).to_be_bytes());
    // Of the serialization, 0 is raw bytes.
    let mut frame = vec![0x08, 0, if gzip { 1 << 2 } else { 0 }, 0];
    frame.extend(seq.to_be_bytes());
    frame.extend(((blocks.len() + payload) as u32).to_be_bytes());
    frame.extend(blocks);
    frame
}

/// The header of a rest_rpc call (v0.20) of the function `echo`, with a body of this length.
pub(crate) fn rest_rpc_head(id: u64, body: usize) -> Vec<u8> {
    rest_rpc_head_of(ECHO_MD5, id, body)
}

/// The header of a rest_rpc call (v0.20) of the function with this number.
pub(crate) fn rest_rpc_head_of(function: u32, id: u64, body: usize) -> Vec<u8> {
    let mut frame = vec![39, 0, 0, 0];
    frame.extend((body as u32).to_le_bytes());
    frame.extend(id.to_le_bytes());
    frame.extend(function.to_le_bytes());
    frame
}

/// A complete rest_rpc call of the function with this number and one string argument.
pub(crate) fn rest_rpc(function: u32, id: u64, text: &str) -> Vec<u8> {
    // A list of one string of up to 31 bytes, in MessagePack.
    let body = [&[0x91, 0xa0 | text.len() as u8][..], text.as_bytes()].concat();
    [rest_rpc_head_of(function, id, body.len()), body].concat()
}

/// The first four bytes of the MD5 of `echo`, of `wait` and of `blob`.
pub(crate) const ECHO_MD5: u32 = 0xcbb1_1ed8;
pub(crate) const WAIT_MD5: u32 = 0x4925_6b98;
pub(crate) const BLOB_MD5: u32 = 0xee26_908b;

/// A rest_rpc subscription (v0.20) to a key, with an empty token.
pub(crate) fn rest_rpc_subscription(key: &str) -> Vec<u8> {
    let body = [&[0x92, 0xa0 | key.len() as u8][..], key.as_bytes(), &[0xa0]].concat();
    let mut frame = vec![39, 1, 0, 0];
    frame.extend((body.len() as u32).to_le_bytes());
    frame.extend(0_u64.to_le_bytes());
    // The number of the function, which servers ignore.
    frame.extend(0_u32.to_le_bytes());
    frame.extend(body);
    frame
}

/// A call of Go's net/rpc in JSON.
pub(crate) fn net_rpc(method: &str, id: u64, text: &str) -> Vec<u8> {
    format!("{{\"method\":\"{method}\",\"params\":[\"{text}\"],\"id\":{id}}}\n").into_bytes()
}

/// A call of Go's net/rpc in gob, with a string argument of up to 100 bytes: the first bytes of a connection.
pub(crate) fn gob(method: &str, text: &str) -> Vec<u8> {
    // The type of a request, as Go describes it.
    let mut bytes =
        b"\x2e\x7f\x03\x01\x01\x07Request\x01\xff\x80\x00\x01\x02\x01\x0dServiceMethod\x01\x0c\x00\
        \x01\x03Seq\x01\x06\x00\x00\x00"
            .to_vec();
    bytes.extend([5 + method.len() as u8, 0xff, 0x80, 1, method.len() as u8]);
    bytes.extend(method.as_bytes());
    bytes.push(0);
    bytes.extend([3 + text.len() as u8, 0x0c, 0, text.len() as u8]);
    bytes.extend(text.as_bytes());
    bytes
}

/// A rest_rpc call (v0.21) of the function with this number, with a string argument.
pub(crate) fn struct_pack(function: u32, text: &str) -> Vec<u8> {
    let mut frame = vec![39, 0, 0, 0];
    frame.extend(function.to_le_bytes());
    frame.extend(0_u64.to_le_bytes());
    frame.extend((text.len() as u64).to_le_bytes());
    frame.extend(0_u64.to_le_bytes());
    frame.extend(text.as_bytes());
    frame
}

/// The head of an HTTP/1.1 request in JSON.
pub(crate) fn http(path: &str, fields: &str, length: usize) -> Vec<u8> {
    http_with(path, "application/json", fields, length)
}

/// The head of an HTTP/1.1 request with a body of this content type.
pub(crate) fn http_with(path: &str, content_type: &str, fields: &str, length: usize) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\n{fields}\
         Content-Length: {length}\r\n\r\n"
    )
    .into_bytes()
}

/// The request that opens a WebSocket.
pub(crate) const WEBSOCKET: &[u8] = b"GET /_rpcx_ HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

/// A WebSocket frame with a zero mask. `first` holds its flags and its kind.
pub(crate) fn websocket(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = websocket_head(first, payload.len() as u64);
    frame.extend(payload);
    frame
}

/// The same without its payload, only with its announced length.
pub(crate) fn websocket_head(first: u8, length: u64) -> Vec<u8> {
    let mut frame = vec![first];
    match length {
        0..=125 => frame.push(0x80 | length as u8),
        126..=65_535 => {
            frame.push(0x80 | 126);
            frame.extend((length as u16).to_be_bytes());
        }
        _ => {
            frame.push(0x80 | 127);
            frame.extend(length.to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame
}

pub(crate) fn proto_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend(bytes);
}

pub(crate) fn proto_number(out: &mut Vec<u8>, field: u64, value: u64) {
    varint(out, field << 3);
    varint(out, value);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
