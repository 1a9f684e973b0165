//! Content of messages.

use polyrpc_core::Compression;
use polyrpc_payload::compress as compression;
use polyrpc_payload::compress::Error;
use polyrpc_payload::msgpack;
use polyrpc_payload::msgpack::{Reader, Token, Writer};
use polyrpc_payload::schema::{Field, Kind, Message, Pool};

/// Compressed bytes, or bytes to compress; the input's first byte selects the compression, the next two the limit.
pub fn compress(input: &[u8]) {
    let Some((&[choice, l0, l1], bytes)) = input.split_first_chunk() else { return };
    let limit = usize::from(u16::from_le_bytes([l0, l1]));
    let Some(&known) = COMPRESSIONS.get(usize::from(choice) % COMPRESSIONS.len()) else { return };
    if let Ok(out) = compression::decompress(known, bytes, limit) {
        assert!(out.len() <= limit, "{} bytes came out of a limit of {limit}", out.len());
    }
    assert_returns(known, bytes);
}

const COMPRESSIONS: [Compression; 6] = [
    Compression::None,
    Compression::Gzip,
    Compression::Zlib,
    Compression::Snappy,
    Compression::Lz4,
    // Unknown to a build without the feature, like any other number.
    Compression::Zstd,
];

/// Asserts that compression round-trips, and only within the limit.
fn assert_returns(known: Compression, bytes: &[u8]) {
    let compressed = match compression::compress(known, bytes) {
        Err(Error::Unknown(_)) => return,
        compressed => compressed.expect("so few bytes can be compressed"),
    };
    let back = compression::decompress(known, &compressed, bytes.len());
    assert_eq!(back.as_deref(), Ok(bytes), "{known:?}");
    if let Some(limit) = bytes.len().checked_sub(1) {
        let cut = compression::decompress(known, &compressed, limit);
        assert_eq!(cut, Err(Error::TooLarge { limit }), "{known:?}");
    }
}

/// A descriptor set, which is also decoded as a message of every type it declares.
pub fn schema(input: &[u8]) {
    let Ok(pool) = Pool::decode(input) else { return };
    for message in pool.messages() {
        assert_eq!(pool.message(message.full_name()).map(|found| found.id()), Some(message.id()));
        message.fields().iter().for_each(|field| assert_is_of(field, &message));
        // For any bytes.
        let _ = message.check_required(input);
    }
    for service in pool.services() {
        assert!(pool.service(service.full_name()).is_some());
        service.methods().for_each(|method| {
            let _ = (method.input().full_name(), method.output().full_name());
        });
    }
    for declared in pool.enums() {
        assert!(declared.values().iter().any(|value| value.number() == declared.first()));
        for value in declared.values() {
            assert_eq!(declared.number(value.name()), Some(value.number()));
            assert!(declared.name(value.number()).is_some());
        }
    }
}

/// Asserts that a field is found by number and name, and that its type is in the pool.
fn assert_is_of(field: &Field, message: &Message) {
    let same = |found: Option<&Field>| found.is_some_and(|found| found.full_name() == field.full_name());
    assert!(same(message.field(field.number())), "{field:?}");
    assert!(same(message.field_named(field.name())), "{field:?}");
    if let Some(inner) = field.kind().message() {
        let _ = message.pool().message_at(inner).full_name();
    }
    if let Kind::Enum(id) = field.kind() {
        let _ = message.pool().enum_type(id).full_name();
    }
}

/// MessagePack. Decoded values are encoded again, and decode to the same.
pub fn msgpack(input: &[u8]) {
    let (mut reader, mut written) = (Reader::new(input), Vec::new());
    while !reader.is_empty() {
        let mut skipped = reader.clone();
        let whole = skipped.skip();
        let start = written.len();
        assert_eq!(copy(&mut reader, &mut written), whole);
        if whole.is_err() {
            written.truncate(start);
            break;
        }
        assert_eq!(skipped.rest(), reader.rest(), "skipping ends where reading ends");
    }
    let (mut reader, mut again) = (Reader::new(&written), Vec::new());
    while !reader.is_empty() {
        assert_eq!(copy(&mut reader, &mut again), Ok(()), "what was written can be read");
    }
    assert_eq!(again, written);
}

/// Decodes one value completely and encodes it.
fn copy(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), msgpack::Error> {
    let mut owed = 1u64;
    while owed > 0 {
        let token = reader.next()?;
        if let Token::Array(count) | Token::Map(count) = token {
            assert!(count as usize <= reader.rest().len(), "{count} values are announced");
        }
        write(token, out);
        owed -= 1;
        owed += match token {
            Token::Array(count) => count.into(),
            Token::Map(count) => 2 * u64::from(count),
            _ => 0,
        };
    }
    Ok(())
}

fn write(token: Token<'_>, out: &mut Vec<u8>) {
    let mut writer = Writer::new(out);
    match token {
        Token::Nil => writer.nil(),
        Token::Bool(value) => writer.bool(value),
        Token::Unsigned(value) => writer.unsigned(value),
        Token::Negative(value) => writer.signed(value),
        Token::F32(value) => writer.f32(value),
        Token::F64(value) => writer.f64(value),
        Token::Str(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => writer.str(text),
            Err(_) => writer.bin(bytes),
        },
        Token::Bin(bytes) => writer.bin(bytes),
        Token::Array(count) => writer.array(count),
        Token::Map(count) => writer.map(count),
        Token::Ext(kind, bytes) => writer.ext(kind, bytes),
    }
}
