//! Files of brpc's `rpc_dump`, which its `rpc_replay` reads.
//!
//! A file is a sequence of records: `PRPC`, the length of the rest and the length of the meta data (both 32 bits,
//! big-endian), the message `RpcDumpMeta`, and the request with its attachment (brpc `src/brpc/rpc_dump.cpp`). There is
//! no time, reply, user field, deadline or stream in it; a compressed message stays compressed.
//!
//! brpc renumbers its protocols after 1.17.0 (commit 881077d1): baidu_std is 1 in releases, and 2 in later builds. Both
//! are read.

use std::fmt;
use std::io::{self, Read, Write};

use bytes::Bytes;
use polyrpc_core::{Carrier, Compression, Format, Json};
use polyrpc_payload::compress;

use crate::call::{Call, Field, Message, Side};
use crate::encoding::{Fields, read};
use crate::redact::is_credential;

/// brpc's numbering of its protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Numbers {
    /// Up to brpc 1.17.0: baidu_std is 1.
    #[default]
    UpTo117,
    /// Later: baidu_std is 2.
    After117,
}

/// Why a call cannot be written to a file of brpc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnsupportedCall {
    /// The call streams.
    Stream,
    /// Its function belongs to no service.
    NoService,
    /// Its message is not protobuf.
    Format,
    /// Its body was not kept.
    NoBody,
}

impl fmt::Display for UnsupportedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stream => "rpc_dump has no streams",
            Self::NoService => "baidu_std needs a service, and the function has none",
            Self::Format => "baidu_std's messages are protobuf in rpc_dump, and this one is not",
            Self::NoBody => "the body was not recorded",
        })
    }
}

impl std::error::Error for UnsupportedCall {}

/// Appends a call for `rpc_replay`, which will send it over baidu_std.
///
/// # Errors
///
/// If `rpc_dump` cannot express the call; nothing is written then.
pub fn export(call: &Call, numbers: Numbers, mut out: impl Write) -> io::Result<Result<(), UnsupportedCall>> {
    let request = match (&call.request, call.is_unary()) {
        (_, false) => return Ok(Err(UnsupportedCall::Stream)),
        (None, true) => return Ok(Err(UnsupportedCall::NoBody)),
        (Some(request), true) => request,
    };
    let refused = match () {
        () if call.service.is_empty() => Some(UnsupportedCall::NoService),
        () if !request.omitted.is_empty() => Some(UnsupportedCall::NoBody),
        () if request.format != Some(Format::Protobuf) => Some(UnsupportedCall::Format),
        () => None,
    };
    if let Some(refused) = refused {
        return Ok(Err(refused));
    }
    let mut meta = Vec::new();
    let baidu_std = match numbers {
        Numbers::UpTo117 => 1,
        Numbers::After117 => 2,
    };
    let mut fields = Fields(&mut meta);
    fields.text(1, &call.service).text(2, &call.method).number(4, 0).number(5, baidu_std);
    fields.number(6, call.attachment.len() as u64);
    let total = meta.len() + request.body.len() + call.attachment.len();
    let Ok(total) = u32::try_from(total) else { return Ok(Err(UnsupportedCall::Format)) };
    let mut head = MAGIC.to_vec();
    head.extend_from_slice(&total.to_be_bytes());
    head.extend_from_slice(&(meta.len() as u32).to_be_bytes());
    for part in [&head[..], &meta, &request.body, &call.attachment] {
        out.write_all(part)?;
    }
    Ok(Ok(()))
}

/// Reads the calls of a file of `rpc_dump`.
///
/// Their time is unknown: each arrives a millisecond after the one before, from 1970 on. Credentials are not imported.
#[derive(Debug)]
pub struct Importer<R> {
    input: R,
    position: u64,
    read: u64,
}

/// A call, or the reason why it cannot be read.
#[derive(Debug, Clone, PartialEq)]
pub enum ImportedCall {
    /// A call.
    Call(Box<Call>),
    /// A request that cannot be imported, and the reason. The next one can be read.
    Skipped(String),
    /// The file ends within a record, or is not a file of `rpc_dump` from this position on.
    Torn {
        /// Position of the last record's end.
        offset: u64,
        /// What is wrong.
        reason: &'static str,
    },
}

impl<R: Read> Importer<R> {
    /// Starts to read.
    pub fn new(input: R) -> Self {
        Self { input, position: 0, read: 0 }
    }

    /// Returns the next call, or why it cannot be read. `None` at the end of the file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn next_call(&mut self) -> io::Result<Option<ImportedCall>> {
        let torn = |offset, reason| Ok(Some(ImportedCall::Torn { offset, reason }));
        let start = self.position;
        let head = self.take(HEAD)?;
        if head.is_empty() {
            return Ok(None);
        }
        let Some((magic, lengths)) = head.split_first_chunk::<4>() else { return torn(start, TRUNCATED) };
        if *magic != MAGIC {
            return torn(start, "it does not continue with PRPC");
        }
        let Some((total, meta)) = lengths.split_first_chunk::<4>() else { return torn(start, TRUNCATED) };
        let Ok(meta) = <[u8; 4]>::try_from(meta) else { return torn(start, TRUNCATED) };
        let (total, meta) = (u32::from_be_bytes(*total) as usize, u32::from_be_bytes(meta) as usize);
        if total > MAX_RECORD_BYTES || meta > total {
            return torn(start, "the lengths of a record are invalid");
        }
        let body = self.take(total)?;
        let Some((meta, body)) = body.split_at_checked(meta).filter(|_| body.len() == total) else {
            return torn(start, TRUNCATED);
        };
        self.read += 1;
        Ok(Some(match import(meta, body, self.read) {
            Ok(call) => ImportedCall::Call(Box::new(call)),
            Err(reason) => ImportedCall::Skipped(reason),
        }))
    }

    /// Reads up to this many bytes; memory grows only with the bytes that exist.
    fn take(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        let mut taken = Vec::new();
        self.input.by_ref().take(bytes as u64).read_to_end(&mut taken)?;
        self.position += taken.len() as u64;
        Ok(taken)
    }
}

#[derive(Default)]
struct Meta {
    service: String,
    method: String,
    compression: u64,
    protocol: u64,
    attachment: u64,
}

fn import(meta: &[u8], body: &[u8], number: u64) -> Result<Call, String> {
    let mut parsed = Meta::default();
    let read = read(meta, |field, value| {
        match field {
            1 => parsed.service = value.text()?,
            2 => parsed.method = value.text()?,
            4 => parsed.compression = value.number()?,
            5 => parsed.protocol = value.number()?,
            6 => parsed.attachment = value.number()?,
            _ => {}
        }
        Some(())
    });
    read.ok_or("its RpcDumpMeta is malformed")?;
    let call = match (parsed.protocol, looks_like_http(body)) {
        // 7 and 8 are Thrift in one numbering and HTTP in the other.
        (7 | 8, true) => http(body)?,
        (1 | 2, _) if !parsed.service.is_empty() => baidu_std(parsed, body)?,
        (protocol, _) => {
            return Err(format!("it is not of baidu_std or HTTP, but of brpc's protocol number {protocol}"));
        }
    };
    let arrival = number.saturating_mul(1_000_000);
    Ok(Call { arrival, side: Side::Import, connection: 0, weight: 1.0, ..call })
}

fn baidu_std(meta: Meta, body: &[u8]) -> Result<Call, String> {
    let attachment = usize::try_from(meta.attachment).ok().and_then(|length| body.len().checked_sub(length));
    let (body, attachment) = attachment
        .and_then(|length| body.split_at_checked(length))
        .ok_or("its attachment is longer than the record")?;
    let compression = match meta.compression {
        0 => Compression::None,
        1 => Compression::Snappy,
        2 => Compression::Gzip,
        3 => Compression::Zlib,
        other => return Err(format!("brpc's compression number {other} is not supported")),
    };
    Ok(Call {
        protocol: "baidu_std".to_owned(),
        service: meta.service,
        method: meta.method,
        request: Some(Message::new(Format::Protobuf, decompress(compression, body)?)),
        attachment: Bytes::copy_from_slice(attachment),
        ..Call::default()
    })
}

fn decompress(compression: Compression, body: &[u8]) -> Result<Bytes, String> {
    compress::decompress(compression, body, MAX_RECORD_BYTES)
        .map(Bytes::from)
        .map_err(|error| format!("its message cannot be decompressed: {error}"))
}

fn looks_like_http(body: &[u8]) -> bool {
    [&b"GET "[..], b"POST ", b"PUT ", b"DELETE ", b"PATCH ", b"HEAD "]
        .iter()
        .any(|start| body.starts_with(start))
}

/// Reads a request as brpc prints it: one field a line, and no chunks even if `Transfer-Encoding` names them.
fn http(bytes: &[u8]) -> Result<Call, String> {
    let malformed = || "its HTTP request is malformed".to_owned();
    let end = bytes.windows(4).position(|part| part == b"\r\n\r\n").ok_or_else(malformed)?;
    let (head, body) = bytes.split_at_checked(end).ok_or_else(malformed)?;
    let head = std::str::from_utf8(head).map_err(|_| malformed())?;
    let mut lines = head.split("\r\n");
    let request = lines.next().ok_or_else(malformed)?;
    let target = request.split(' ').nth(1).ok_or_else(malformed)?;
    let path = target.split('?').next().unwrap_or_default().trim_start_matches('/');
    let (service, method) =
        path.split_once('/').ok_or_else(|| format!("its path /{path} is not /Service/Method"))?;
    if method.is_empty() || method.contains('/') {
        return Err(format!("its path /{path} is not /Service/Method"));
    }
    let mut metadata = Vec::new();
    let (mut content_type, mut encoding, mut hop_by_hop) = ("", "", Vec::new());
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(malformed)?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        match name.as_str() {
            "content-type" => content_type = value,
            "content-encoding" => encoding = value,
            "connection" => hop_by_hop.extend(value.split(',').map(|name| name.trim().to_ascii_lowercase())),
            "accept" | "accept-encoding" | "user-agent" => {}
            // A replay could not send them, since they are not metadata.
            _ if Carrier::reserves(&name) || name.starts_with("content-") => {}
            _ if is_credential(&name) => {
                metadata.push(Field { name, value: Bytes::new(), removed: true });
            }
            _ => {
                metadata.push(Field { name, value: Bytes::copy_from_slice(value.as_bytes()), removed: false })
            }
        }
    }
    metadata.retain(|field: &Field| !hop_by_hop.contains(&field.name));
    let compression = match encoding.to_ascii_lowercase().as_str() {
        "" | "identity" => Compression::None,
        // brpc decompresses gzip before it dumps the request, but keeps the field (`policy/http_rpc_protocol.cpp`,
        // `ProcessHttpRequest`). Neither JSON nor protobuf starts with these bytes.
        "gzip" | "x-gzip" if !body.starts_with(b"\r\n\r\n\x1f\x8b") => Compression::None,
        "gzip" | "x-gzip" => Compression::Gzip,
        _ => return Err(format!("its content encoding is {encoding}")),
    };
    let format = match content_type.split(';').next().unwrap_or_default().trim() {
        "" | "application/json" => Format::Json(Json::Brpc),
        "application/proto" | "application/x-protobuf" | "application/protobuf" => Format::Protobuf,
        other => return Err(format!("its content type is {other}")),
    };
    let body = body.get(4..).unwrap_or_default();
    Ok(Call {
        protocol: "http".to_owned(),
        service: service.to_owned(),
        method: method.to_owned(),
        request: Some(Message::new(format, decompress(compression, body)?)),
        metadata,
        ..Call::default()
    })
}

const MAGIC: [u8; 4] = *b"PRPC";
const HEAD: usize = 12;
/// The default of brpc's `-max_body_size`.
const MAX_RECORD_BYTES: usize = 64 << 20;
const TRUNCATED: &str = "it ends within a record";

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        Call {
            service: "example.EchoService".into(),
            method: "Echo".into(),
            request: Some(Message::new(Format::Protobuf, Bytes::from_static(b"\x0a\x02hi"))),
            attachment: Bytes::from_static(b"at"),
            ..Call::default()
        }
    }

    #[test]
    fn exported_call_has_the_bytes_that_brpc_writes() {
        let mut file = Vec::new();
        export(&call(), Numbers::UpTo117, &mut file).unwrap().unwrap();
        let meta = b"\x0a\x13example.EchoService\x12\x04Echo\x28\x01\x30\x02";
        let expected = [b"PRPC\0\0\0\x25\0\0\0\x1f", &meta[..], b"\x0a\x02hi", b"at"].concat();
        assert_eq!(file, expected);
    }

    #[test]
    fn call_survives_export_and_import() {
        for numbers in [Numbers::UpTo117, Numbers::After117] {
            let mut file = Vec::new();
            export(&call(), numbers, &mut file).unwrap().unwrap();
            let mut importer = Importer::new(&file[..]);
            let Some(ImportedCall::Call(back)) = importer.next_call().unwrap() else { panic!("no call") };
            let whole = Call {
                protocol: "baidu_std".into(),
                arrival: 1_000_000,
                side: Side::Import,
                weight: 1.0,
                ..call()
            };
            assert_eq!(*back, whole);
            assert_eq!(importer.next_call().unwrap(), None);
        }
    }

    #[test]
    fn compressed_messages_and_http_are_imported() {
        let packed = compress::compress(Compression::Gzip, b"\x0a\x02hi").unwrap();
        let mut meta = Vec::new();
        Fields(&mut meta).text(1, "S").text(2, "M").number(4, 2).number(5, 1);
        let gzip = import(&meta, &packed, 1).unwrap();
        assert_eq!(gzip.request.unwrap().body, &b"\x0a\x02hi"[..]);
        let mut meta = Vec::new();
        Fields(&mut meta).number(5, 7).number(6, 2);
        let request = b"POST /EchoService/Echo?x=1 HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nAuthorization: Bearer x\r\nlog-id: 7\r\n\r\n{}";
        let http = import(&meta, request, 1).unwrap();
        assert_eq!((http.full_name().as_str(), http.protocol.as_str()), ("EchoService/Echo", "http"));
        assert!(http.metadata[0].removed && http.metadata[0].value.is_empty());
        assert_eq!(&http.metadata[1].value[..], b"7");
        assert_eq!(http.request.unwrap().body, &b"{}"[..]);
    }

    #[test]
    fn body_of_http_is_decompressed_unless_brpc_has_done_it() {
        let mut meta = Vec::new();
        Fields(&mut meta).number(5, 7);
        let request = |encoding: &str, body: &[u8]| {
            let head = format!("POST /S/M HTTP/1.1\r\nContent-Encoding: {encoding}\r\n\r\n");
            import(&meta, &[head.as_bytes(), body].concat(), 1)
        };
        let packed = compress::compress(Compression::Gzip, b"{}").unwrap();
        for (encoding, body) in
            [("gzip", &packed[..]), ("GZIP", &packed), ("gzip", b"{}"), ("identity", b"{}")]
        {
            let imported = request(encoding, body).unwrap();
            assert_eq!(imported.request.unwrap().body, &b"{}"[..], "{encoding}");
            assert_eq!(imported.metadata, []);
        }
        for (encoding, body) in [("gzip", &packed[..10]), ("br", b"{}")] {
            assert!(request(encoding, body).is_err(), "{encoding}");
        }
    }

    #[test]
    fn fields_of_http_that_are_not_metadata_are_not_imported() {
        let mut meta = Vec::new();
        Fields(&mut meta).number(5, 7);
        let request = b"POST /S/M HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTE: trailers\r\n\
            Connection: keep-alive, X-Hop\r\nKeep-Alive: 5\r\nX-Hop: 1\r\nContent-Language: de\r\n\
            grpc-timeout: 1S\r\nProxy-Authorization: a secret\r\nlog-id: 7\r\n\r\n{}";
        let imported = import(&meta, request, 1).unwrap();
        let names: Vec<_> = imported.metadata.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["log-id"]);
    }

    #[test]
    fn credentials_of_http_are_not_imported() {
        let mut meta = Vec::new();
        Fields(&mut meta).number(5, 7);
        for name in ["Authorization", "Cookie", "X-Api-Key", "session-token", "X-Forwarded-Client-Cert"] {
            let request = format!("POST /S/M HTTP/1.1\r\n{name}: a secret\r\n\r\n{{}}");
            let imported = import(&meta, request.as_bytes(), 1).unwrap();
            let removed = Field { name: name.to_ascii_lowercase(), value: Bytes::new(), removed: true };
            assert_eq!(imported.metadata, [removed]);
        }
    }

    #[test]
    fn file_cut_anywhere_yields_the_whole_calls_and_says_so() {
        let mut file = Vec::new();
        export(&call(), Numbers::UpTo117, &mut file).unwrap().unwrap();
        let one = file.len();
        export(&call(), Numbers::UpTo117, &mut file).unwrap().unwrap();
        for cut in 0..file.len() {
            let mut importer = Importer::new(&file[..cut]);
            for _ in 0..cut / one {
                assert!(matches!(importer.next_call().unwrap(), Some(ImportedCall::Call(_))), "{cut}");
            }
            let end = importer.next_call().unwrap();
            match cut % one {
                0 => assert_eq!(end, None),
                _ => assert!(matches!(end, Some(ImportedCall::Torn { .. })), "{cut}: {end:?}"),
            }
        }
    }

    #[test]
    fn call_that_rpc_dump_cannot_express_is_rejected() {
        let refused = |call: Call| export(&call, Numbers::UpTo117, Vec::new()).unwrap().unwrap_err();
        assert_eq!(refused(Call { service: String::new(), ..call() }), UnsupportedCall::NoService);
        assert_eq!(refused(Call { server_streams: true, ..call() }), UnsupportedCall::Stream);
        assert_eq!(refused(Call { request: None, ..call() }), UnsupportedCall::NoBody);
        let gob = Some(Message::new(Format::Gob, Bytes::new()));
        assert_eq!(refused(Call { request: gob, ..call() }), UnsupportedCall::Format);
        for (protocol, body) in [(3, &b""[..]), (7, b"\x80\x01"), (1, b"")] {
            let mut meta = Vec::new();
            Fields(&mut meta).number(5, protocol);
            assert!(import(&meta, body, 1).is_err());
        }
    }
}
