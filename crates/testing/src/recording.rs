//! Recordings, and what imports others.

use polyrpc_record::brpc::{ImportedCall, Importer};
use polyrpc_record::{Reader, RecordingEnd};

/// A recording; its calls are read to the end, whatever is damaged.
pub fn recording(input: &[u8]) {
    let file = [b"POLYREC1", input].concat();
    let Ok(reader) = Reader::new(&file[..]) else { panic!("the first bytes are right") };
    let mut reader = reader.largest_entry(1 << 20);
    let mut entries = 0;
    while let Ok(Some(_)) = reader.next_entry() {
        entries += 1;
    }
    // An entry has at least a length, in a block that compression shortens by at most that of zstd.
    assert!(entries <= file.len() * 40_000, "{entries} entries of {} bytes", file.len());
    match reader.ending() {
        Some(RecordingEnd::Torn { offset, bytes }) => assert!(offset + bytes <= file.len() as u64),
        Some(_) => {}
        None => panic!("the recording has no end"),
    }
    assert!(reader.damage().iter().all(|damage| damage.offset <= file.len() as u64));
}

/// A file of brpc's `rpc_dump`.
pub fn rpc_dump(input: &[u8]) {
    let mut importer = Importer::new(input);
    let mut records = 0;
    while let Ok(Some(imported)) = importer.next_call() {
        records += 1;
        assert!(records <= input.len(), "a record has a header");
        if let ImportedCall::Torn { offset, .. } = imported {
            assert!(offset <= input.len() as u64);
            return;
        }
    }
}
