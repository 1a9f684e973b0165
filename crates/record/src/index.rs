//! The last block of a complete recording.

use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom};

use crate::block::{self, FILE_MAGIC, HEADER, Header, Kind, MAX_CONTENT, TRAILER, TRAILER_MAGIC};
use crate::call::{Call, Loss};
use crate::encoding::{Fields, read};

/// Summary of a complete recording, stored at its end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Index {
    /// Blocks in the order of the file. In a large recording an entry stands for several blocks.
    pub blocks: Vec<BlockSummary>,
    /// Methods, at most 1,000; the calls of further ones are only in the total.
    pub methods: Vec<MethodSummary>,
    /// Number of recorded calls.
    pub calls: u64,
    /// Calls that were lost while recording.
    pub loss: Loss,
}

/// A block, or several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockSummary {
    /// Position in the file.
    pub offset: u64,
    /// Arrival of the earliest call, in nanoseconds since 1970; 0 if there is no call.
    pub first: u64,
    /// Arrival of the latest.
    pub last: u64,
    /// Number of calls.
    pub calls: u64,
}

/// Calls of a method.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MethodSummary {
    /// The service; empty for a plain function.
    pub service: String,
    /// The method.
    pub method: String,
    /// The protocol.
    pub protocol: String,
    /// Number of calls.
    pub calls: u64,
    /// How many of them failed.
    pub failures: u64,
}

impl BlockSummary {
    /// Adds a call.
    pub(crate) fn add(&mut self, arrival: u64) {
        self.first = if self.calls == 0 { arrival } else { self.first.min(arrival) };
        self.last = self.last.max(arrival);
        self.calls += 1;
    }

    fn merge(&mut self, next: &Self) {
        if next.calls > 0 {
            self.first = if self.calls == 0 { next.first } else { self.first.min(next.first) };
            self.last = self.last.max(next.last);
            self.calls += next.calls;
        }
    }
}

impl Index {
    /// Reads the index of a complete recording. `None` if the recording is incomplete, or its end is damaged.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn read(mut file: impl Read + Seek) -> io::Result<Option<Self>> {
        let length = file.seek(SeekFrom::End(0))?;
        if length < (FILE_MAGIC.len() + HEADER + TRAILER) as u64 {
            return Ok(None);
        }
        file.seek(SeekFrom::Start(length - TRAILER as u64))?;
        let mut trailer = [0; TRAILER];
        file.read_exact(&mut trailer)?;
        let Some(offset) = trailer_offset(&trailer) else { return Ok(None) };
        if offset > length - (TRAILER + HEADER) as u64 {
            return Ok(None);
        }
        file.seek(SeekFrom::Start(offset))?;
        let mut header = [0; HEADER];
        file.read_exact(&mut header)?;
        let Some(header) = Header::parse(&header).filter(|header| header.kind == Some(Kind::Index)) else {
            return Ok(None);
        };
        let mut stored = Vec::new();
        file.take(header.stored as u64).read_to_end(&mut stored)?;
        Ok(header.decompress(&stored).and_then(|content| Self::decode(&content)))
    }

    /// Appends the block of the index, and the trailer; `position` is that of the block.
    pub(crate) fn put(&self, out: &mut Vec<u8>, position: u64) -> io::Result<()> {
        let mut content = Vec::new();
        self.encode(&mut content);
        if content.len() > MAX_CONTENT {
            // Names of methods are unlimited, but blocks are limited.
            content.clear();
            Self { methods: Vec::new(), ..self.clone() }.encode(&mut content);
        }
        block::put(out, Kind::Index, &content)?;
        out.extend_from_slice(&position.to_le_bytes());
        out.extend_from_slice(&TRAILER_MAGIC);
        Ok(())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let mut out = Fields(out);
        for block in &self.blocks {
            out.message(1, |out| {
                out.number(1, block.offset).fixed64(2, block.first).fixed64(3, block.last);
                out.number(4, block.calls);
            });
        }
        for method in &self.methods {
            out.message(2, |out| {
                out.text(1, &method.service).text(2, &method.method).text(3, &method.protocol);
                out.number(4, method.calls).number(5, method.failures);
            });
        }
        out.number(3, self.calls).message(4, |out| self.loss.encode(out));
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut index = Self::default();
        read(bytes, |field, value| {
            match field {
                1 => index.blocks.push(BlockSummary::decode(value.bytes()?)?),
                2 => index.methods.push(MethodSummary::decode(value.bytes()?)?),
                3 => index.calls = value.number()?,
                4 => index.loss = Loss::decode(value.bytes()?)?,
                _ => {}
            }
            Some(())
        })?;
        Some(index)
    }
}

/// Returns the position in a trailer.
pub(crate) fn trailer_offset(trailer: &[u8; TRAILER]) -> Option<u64> {
    let (offset, magic) = trailer.split_first_chunk::<8>()?;
    (*magic == TRAILER_MAGIC).then(|| u64::from_le_bytes(*offset))
}

impl BlockSummary {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut block = Self::default();
        read(bytes, |field, value| {
            match field {
                1 => block.offset = value.number()?,
                2 => block.first = value.number()?,
                3 => block.last = value.number()?,
                4 => block.calls = value.number()?,
                _ => {}
            }
            Some(())
        })?;
        Some(block)
    }
}

impl MethodSummary {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut method = Self::default();
        read(bytes, |field, value| {
            match field {
                1 => method.service = value.text()?,
                2 => method.method = value.text()?,
                3 => method.protocol = value.text()?,
                4 => method.calls = value.number()?,
                5 => method.failures = value.number()?,
                _ => {}
            }
            Some(())
        })?;
        Some(method)
    }
}

/// An index under construction.
#[derive(Debug, Default)]
pub(crate) struct IndexBuilder {
    index: Index,
    /// Position of a method in the index, by protocol, service and method.
    methods: HashMap<(String, String, String), usize>,
}

impl IndexBuilder {
    pub(crate) fn add_call(&mut self, call: &Call) {
        self.index.calls += 1;
        let key = (call.protocol.clone(), call.service.clone(), call.method.clone());
        let position = match self.methods.get(&key) {
            Some(position) => *position,
            None if self.methods.len() >= MAX_METHODS => return,
            None => {
                let (protocol, service, method) = key.clone();
                self.index.methods.push(MethodSummary { service, method, protocol, calls: 0, failures: 0 });
                self.methods.insert(key, self.index.methods.len() - 1);
                self.index.methods.len() - 1
            }
        };
        if let Some(method) = self.index.methods.get_mut(position) {
            method.calls += 1;
            method.failures += u64::from(call.failure().is_some());
        }
    }

    pub(crate) fn add_loss(&mut self, loss: &Loss) {
        self.index.loss.add(loss);
    }

    pub(crate) fn add_block(&mut self, block: BlockSummary) {
        self.index.blocks.push(block);
        if self.index.blocks.len() > MAX_BLOCKS {
            // Half the entries, each for two blocks: the index stays within one block.
            let merged = self.index.blocks.chunks(2).map(|pair| {
                let mut merged = pair.first().copied().unwrap_or_default();
                pair.iter().skip(1).for_each(|next| merged.merge(next));
                merged
            });
            self.index.blocks = merged.collect();
        }
    }

    pub(crate) fn finish(self) -> Index {
        self.index
    }
}

const MAX_METHODS: usize = 1000;
/// An entry takes up to 42 bytes.
const MAX_BLOCKS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_of_many_blocks_fits_into_one() {
        let mut builder = IndexBuilder::default();
        for n in 0..20_000 {
            builder.add_block(BlockSummary {
                offset: u64::MAX - 20_000 + n,
                first: n + 1,
                last: n + 2,
                calls: 3,
            });
        }
        let index = builder.finish();
        assert!(index.blocks.len() <= MAX_BLOCKS);
        assert_eq!(index.blocks.iter().map(|block| block.calls).sum::<u64>(), 60_000);
        assert_eq!(index.blocks.last().unwrap().last, 20_001);
        let mut content = Vec::new();
        index.encode(&mut content);
        assert!(content.len() < MAX_CONTENT);
        assert_eq!(Index::decode(&content).unwrap(), index);
    }
}
