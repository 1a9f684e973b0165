//! The container: torn, damaged and hostile files.

use std::io::{self, Cursor, Read, Write};
use std::time::Duration;

use bytes::Bytes;
use polyrpc_core::{Format, Json};
use polyrpc_payload::schema::testing::{compile, pool};
use polyrpc_payload::transcode;
use polyrpc_record::call::{Failure, Field, Message, Outcome, Reason, Side, StreamEvent};
use polyrpc_record::{Call, Entry, Index, Loss, Reader, RecordingEnd, Schema, Writer};

fn call(number: u64) -> Call {
    Call {
        arrival: 1_700_000_000_000_000_000 + number,
        side: Side::Server,
        protocol: "rpcx".into(),
        service: "Arith".into(),
        method: "Mul".into(),
        peer: "127.0.0.1:1".into(),
        connection: 3,
        timeout: Some(Duration::from_millis(5)),
        request: Some(Message::new(Format::MessagePack, Bytes::from(format!("body {number}")))),
        metadata: vec![Field { name: "k".into(), value: Bytes::from_static(b"v"), removed: false }],
        took: Duration::from_micros(number),
        outcome: Some(Outcome {
            failure: number
                .is_multiple_of(2)
                .then(|| Failure { code: "not found".into(), ..Failure::default() }),
            ..Outcome::default()
        }),
        weight: 1.0,
        reason: Reason::Sampled,
        ..Call::default()
    }
}

/// A call with every field.
fn full() -> Call {
    let message = |format| Message {
        positional: true,
        omitted: "why".into(),
        length: 9,
        ..Message::new(format, Bytes::from_static(b"\0\xff"))
    };
    let field =
        |name: &str, removed| Field { name: name.into(), value: Bytes::from_static(b"\xfe"), removed };
    Call {
        attachment: Bytes::from_static(b"at"),
        oneway: true,
        client_streams: true,
        server_streams: true,
        queued: Duration::from_nanos(7),
        request: Some(message(Format::Json(Json::Go))),
        outcome: Some(Outcome {
            response: Some(message(Format::Protobuf)),
            failure: Some(Failure {
                code: "aborted".into(),
                message: "text".into(),
                number: Some(-5),
                details: Bytes::from_static(b"d"),
            }),
            metadata: vec![field("m", true)],
            trailers: vec![field("t", false)],
            attachment: Bytes::from_static(b"back"),
            closed: true,
        }),
        events: vec![StreamEvent {
            at: Duration::from_nanos(8),
            from_server: true,
            message: Bytes::from_static(b"event"),
            end: true,
        }],
        events_left_out: 3,
        weight: 12.5,
        reason: Reason::Slow,
        schema: Some([7; 32]),
        ..call(1)
    }
}

/// Blocks of three calls each.
fn recording(calls: u64) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    for number in 0..calls {
        writer.call(&call(number)).unwrap();
        if number % 3 == 2 {
            writer.flush().unwrap();
        }
    }
    writer.finish().unwrap()
}

struct Contents {
    calls: Vec<Call>,
    ending: RecordingEnd,
    damages: usize,
}

fn read(file: &[u8]) -> Contents {
    let mut reader = Reader::new(file).unwrap();
    let mut calls = Vec::new();
    while let Some(entry) = reader.next_entry().unwrap() {
        if let Entry::Call(call) = entry {
            calls.push(*call);
        }
    }
    Contents { calls, ending: reader.ending().unwrap().clone(), damages: reader.damage().len() }
}

#[test]
fn every_field_survives() {
    let schema = Schema::new(compile(r#"syntax = "proto3"; message A {}"#));
    let loss = Loss { at: 5, queue_full: 1, method_limit: 2, not_written: 3 };
    let mut writer = Writer::new(Vec::new()).unwrap();
    writer.schema(&schema).unwrap();
    writer.schema(&schema).unwrap();
    writer.call(&full()).unwrap();
    writer.call(&Call::default()).unwrap();
    writer.loss(&loss).unwrap();
    let file = writer.finish().unwrap();
    let mut reader = Reader::new(&file[..]).unwrap();
    let mut entries = Vec::new();
    while let Some(entry) = reader.next_entry().unwrap() {
        entries.push(entry);
    }
    let expected = [
        Entry::Schema(schema),
        Entry::Call(Box::new(full())),
        Entry::Call(Box::default()),
        Entry::Loss(loss),
    ];
    assert_eq!(entries, expected);
    let Some(RecordingEnd::Complete(index)) = reader.ending() else { panic!("no index") };
    assert_eq!((index.calls, index.loss), (2, loss));
    assert_eq!(Index::read(Cursor::new(&file)).unwrap().as_ref(), Some(&**index));
}

#[test]
fn published_schema_describes_the_entries() {
    let pool = pool(include_str!("../../proto/recording.proto"));
    let mut writer = Writer::new(Vec::new()).unwrap();
    writer.call(&full()).unwrap();
    let file = writer.finish().unwrap();
    // The block is short, so that it is stored as it is or in one frame of zstd.
    let stored = u32::from_le_bytes(file[16..20].try_into().unwrap()) as usize;
    let raw = u32::from_le_bytes(file[20..24].try_into().unwrap()) as usize;
    let content = match file[13] {
        0 => file[32..32 + stored].to_vec(),
        _ => zstd::bulk::decompress(&file[32..32 + stored], raw).unwrap(),
    };
    let mut content = polyrpc_core::protobuf::Reader::new(&content);
    let entry = content.bytes().unwrap();
    let message = pool.message("polyrpc.recording.v1.Entry").unwrap();
    let json = transcode::from_protobuf(&message, Format::Json(Json::Proto3), entry).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let call = &json["call"];
    assert_eq!(call["service"], "Arith");
    assert_eq!(call["side"], "SIDE_SERVER");
    assert_eq!(call["reason"], "REASON_SLOW");
    assert_eq!(call["weight"], 12.5);
    assert_eq!(call["request"]["format"], "json-go");
    assert_eq!(call["outcome"]["failure"]["number"], -5);
    assert_eq!(call["events"][0]["end"], true);
    // Nothing is written that the schema does not declare.
    let tree = polyrpc_record::value::Value::decode(Format::Protobuf, entry, Some(&message)).unwrap();
    assert!(!tree.to_string().contains("\"#"), "{tree}");
    let back =
        transcode::to_protobuf(&message, Format::Json(Json::Proto3), json.to_string().as_bytes()).unwrap();
    assert_eq!(back.len(), entry.len());
}

#[test]
fn file_cut_at_every_byte_is_read_to_its_last_whole_block() {
    let whole = recording(10);
    let RecordingEnd::Complete(index) = read(&whole).ending else { panic!("no index") };
    assert_eq!(read(&whole).calls.len(), 10);
    for cut in 8..whole.len() {
        let part = read(&whole[..cut]);
        let ends = index.blocks.iter().skip(1).map(|block| block.offset as usize);
        let index_at =
            u64::from_le_bytes(whole[whole.len() - 16..whole.len() - 8].try_into().unwrap()) as usize;
        let blocks = ends.chain([index_at]).filter(|end| *end <= cut).count();
        let expected: u64 = index.blocks.iter().take(blocks).map(|block| block.calls).sum();
        assert_eq!(part.calls.len() as u64, expected, "cut at {cut}");
        assert!(part.calls.iter().zip(0..).all(|(read, number)| *read == call(number)), "cut at {cut}");
        let boundary = index.blocks.iter().any(|block| block.offset as usize == cut) || cut == index_at;
        match part.ending {
            RecordingEnd::Unfinished => assert!(boundary, "cut at {cut}"),
            RecordingEnd::Torn { offset, bytes } => {
                assert!(
                    !boundary && offset as usize + bytes as usize == cut,
                    "cut at {cut}: {offset} {bytes}"
                );
            }
            RecordingEnd::Complete(_) => panic!("cut at {cut}"),
        }
        assert_eq!(part.damages, 0, "cut at {cut}");
        assert!(Index::read(Cursor::new(&whole[..cut])).unwrap().is_none(), "cut at {cut}");
    }
    for cut in 0..8 {
        assert!(Reader::new(&whole[..cut]).is_err());
    }
}

#[test]
fn flipped_bit_costs_at_most_one_block() {
    let whole = recording(9);
    for bit in 64..whole.len() * 8 {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let part = read(&damaged);
        assert!(part.calls.len() >= 6, "bit {bit}: {} calls", part.calls.len());
        assert!(part.calls.iter().all(|read| *read == call(read.arrival % 1_000)), "bit {bit}");
        if part.calls.len() < 9 {
            assert_eq!(part.damages, 1, "bit {bit}");
        } else {
            assert!(!matches!(part.ending, RecordingEnd::Complete(_)), "bit {bit}");
        }
    }
}

#[test]
fn junk_between_blocks_is_skipped() {
    let whole = recording(9);
    let RecordingEnd::Complete(index) = read(&whole).ending else { panic!("no index") };
    let at = index.blocks[1].offset as usize;
    for junk in [&b"x"[..], b"PRB1", &[0x50; 23], &[7; 200_000], &whole[8..40]] {
        let file = [&whole[..at], junk, &whole[at..]].concat();
        let part = read(&file);
        assert_eq!(part.calls.len(), 9, "{} bytes", junk.len());
        assert_eq!(part.damages, 1, "{} bytes", junk.len());
    }
}

#[test]
fn call_larger_than_a_block_survives() {
    let large = Call { request: Some(Message::new(Format::Raw, random(1_000_000).into())), ..call(1) };
    let mut writer = Writer::new(Vec::new()).unwrap();
    for call in [&call(0), &large, &call(2)] {
        writer.call(call).unwrap();
    }
    let file = writer.finish().unwrap();
    assert_eq!(read(&file).calls, [call(0), large, call(2)]);
    let mut limited = Reader::new(&file[..]).unwrap().largest_entry(600_000);
    let mut calls = Vec::new();
    while let Some(Entry::Call(call)) = limited.next_entry().unwrap() {
        calls.push(*call);
    }
    assert_eq!(calls, [call(0), call(2)]);
    assert!(!limited.damage().is_empty());
    // Cut within its parts, only what is whole is read.
    for cut in (10..file.len()).step_by(7919) {
        assert!(read(&file[..cut]).calls.len() <= 3);
    }
}

#[test]
fn writer_to_a_full_disk_leaves_whole_blocks() {
    /// Accepts this number of bytes, and a part of the write that exceeds it.
    struct Disk(Vec<u8>, usize);
    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.1 - self.0.len() {
                0 => Err(io::ErrorKind::StorageFull.into()),
                room => {
                    let taken = bytes.len().min(room);
                    self.0.extend_from_slice(&bytes[..taken]);
                    Ok(taken)
                }
            }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    for room in [20, 200, 1000, 1500] {
        let mut writer = Writer::new(Disk(Vec::new(), room)).unwrap();
        let mut written = 0;
        let failed = (0..).find(|number| {
            let flushed = writer.call(&call(*number)).and_then(|()| writer.flush());
            written += u64::from(flushed.is_ok());
            flushed.is_err()
        });
        assert_eq!(failed, Some(written));
        let whole = writer.position() as usize;
        let disk = writer.into_inner();
        let torn = read(&disk.0);
        assert_eq!(torn.calls.len() as u64, written, "{room}");
        assert!(
            matches!(torn.ending, RecordingEnd::Torn { offset, .. } if offset as usize == whole),
            "{room}"
        );
        assert_eq!(read(&disk.0[..whole]).ending, RecordingEnd::Unfinished);
    }
}

#[test]
fn hostile_file_takes_little_memory() {
    // A file of headers that announce as much as they may, and of nothing.
    struct Endless(u64);
    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let wanted = (buffer.len() as u64).min(self.0) as usize;
            buffer[..wanted].fill(b'P');
            self.0 -= wanted as u64;
            Ok(wanted)
        }
    }
    let file = Cursor::new(b"POLYREC1".to_vec()).chain(Endless(5_000_000));
    let mut reader = Reader::new(file).unwrap();
    assert!(reader.next_entry().unwrap().is_none());
    assert_eq!(reader.ending(), Some(&RecordingEnd::Torn { offset: 8, bytes: 5_000_000 }));
}

/// Bytes that do not compress.
fn random(length: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    (0..length).map(|_| next()).collect()
}
