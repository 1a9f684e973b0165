//! Writes recordings.

use std::collections::HashSet;
use std::io::{self, Write};

use polyrpc_core::protobuf::put_varint;

use crate::block::{self, FILE_MAGIC, Kind, MAX_CONTENT};
use crate::call::{Call, Entry, Loss, Schema};
use crate::index::{BlockSummary, IndexBuilder};

/// Writes a recording, a block at a time. Call [`flush`](Self::flush) regularly: unflushed calls are lost in a crash.
///
/// ```
/// use polyrpc_record::{Call, Entry, Reader, Writer};
///
/// let mut writer = Writer::new(Vec::new())?;
/// writer.call(&Call { method: "add".into(), ..Call::default() })?;
/// let file = writer.finish()?;
/// let mut reader = Reader::new(&file[..])?;
/// let Some(Entry::Call(call)) = reader.next_entry()? else { panic!("no call") };
/// assert_eq!(call.method, "add");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// After an error the file may end in the middle of a block, after [`position`](Self::position); readers skip that
/// part.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    /// Length of the file, up to the last block that was written completely.
    position: u64,
    /// Entries of the next block.
    pending: Vec<u8>,
    summary: BlockSummary,
    index: IndexBuilder,
    schemas: HashSet<[u8; 32]>,
}

impl<W: Write> Writer<W> {
    /// Starts a recording.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&FILE_MAGIC)?;
        Ok(Self {
            out,
            position: FILE_MAGIC.len() as u64,
            pending: Vec::new(),
            summary: BlockSummary::default(),
            index: IndexBuilder::default(),
            schemas: HashSet::new(),
        })
    }

    /// Adds declarations, unless they are already in the recording.
    ///
    /// # Errors
    ///
    /// If a block cannot be written.
    pub fn schema(&mut self, schema: &Schema) -> io::Result<()> {
        match self.schemas.insert(schema.hash) {
            true => self.write_entry(&Entry::Schema(schema.clone()), None),
            false => Ok(()),
        }
    }

    /// Adds a call. The schema that it names must have been added.
    ///
    /// # Errors
    ///
    /// If a block cannot be written.
    pub fn call(&mut self, call: &Call) -> io::Result<()> {
        self.write_entry(&Entry::Call(Box::new(call.clone())), Some(call.arrival))?;
        self.index.add_call(call);
        Ok(())
    }

    /// Adds a note that calls were lost.
    ///
    /// # Errors
    ///
    /// If a block cannot be written.
    pub fn loss(&mut self, loss: &Loss) -> io::Result<()> {
        self.write_entry(&Entry::Loss(*loss), None)?;
        self.index.add_loss(loss);
        Ok(())
    }

    /// Returns the length of the file, up to the end of the last whole block.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether entries wait for the next block.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Writes the entries that wait for the next block.
    ///
    /// # Errors
    ///
    /// If the block cannot be written. Its entries are lost.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let content = std::mem::take(&mut self.pending);
        let summary = std::mem::take(&mut self.summary);
        self.write_block(Kind::Entries, &content, summary)
    }

    /// Writes pending entries and the index. Returns the file.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        let mut end = Vec::new();
        std::mem::take(&mut self.index).finish().put(&mut end, self.position)?;
        self.out.write_all(&end)?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Returns the file in its current state, without an index. Pending entries are lost.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn write_entry(&mut self, entry: &Entry, arrival: Option<u64>) -> io::Result<()> {
        let mut encoded = Vec::new();
        entry.encode(&mut encoded);
        if self.pending.len() + encoded.len() + MAX_LENGTH > MAX_CONTENT {
            self.flush()?;
        }
        if encoded.len() + MAX_LENGTH > MAX_CONTENT {
            return self.write_large(&encoded, arrival);
        }
        put_varint(&mut self.pending, encoded.len() as u64);
        self.pending.extend_from_slice(&encoded);
        arrival.into_iter().for_each(|arrival| self.summary.add(arrival));
        Ok(())
    }

    /// Writes an entry that is larger than a block.
    fn write_large(&mut self, encoded: &[u8], arrival: Option<u64>) -> io::Result<()> {
        let mut parts = encoded.chunks(MAX_CONTENT).peekable();
        let mut kind = Kind::First;
        while let Some(part) = parts.next() {
            let mut summary = BlockSummary::default();
            if parts.peek().is_none() {
                kind = Kind::Last;
                arrival.into_iter().for_each(|arrival| summary.add(arrival));
            }
            self.write_block(kind, part, summary)?;
            kind = Kind::Middle;
        }
        Ok(())
    }

    fn write_block(&mut self, kind: Kind, content: &[u8], summary: BlockSummary) -> io::Result<()> {
        let mut block = Vec::new();
        block::put(&mut block, kind, content)?;
        // In one write: after a crash, a file ends with complete blocks and at most one torn block.
        self.out.write_all(&block)?;
        self.index.add_block(BlockSummary { offset: self.position, ..summary });
        self.position += block.len() as u64;
        Ok(())
    }
}

/// Longest encoding of an entry's length in a block.
const MAX_LENGTH: usize = 3;
