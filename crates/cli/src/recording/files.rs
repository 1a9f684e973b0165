//! Reads the recordings that the command line names.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use polyrpc_record::{Call, DeclaredMessages, Entry, Index, Loss, Reader, RecordingEnd};

use super::filter::Filter;
use crate::failure::Failure;
use crate::terminal;

/// Passes the calls of recordings to a function, file by file, until it returns `false`. Reports on standard error what
/// cannot be read. Returns the schemas and what was lost while recording.
pub(crate) fn for_each_call(
    paths: &[PathBuf],
    filter: &Filter,
    mut on_call: impl FnMut(&DeclaredMessages, Call) -> Result<bool, Failure>,
) -> Result<Read, Failure> {
    let mut read = Read::default();
    for path in paths {
        let mut reader = open_reader(path)?;
        loop {
            let entry =
                reader.next_entry().map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
            match entry {
                None => break,
                Some(Entry::Schema(schema)) => read.schemas.add(&schema),
                Some(Entry::Loss(loss)) => read.loss.add(&loss),
                Some(Entry::Call(call)) if filter.selects(&call) => {
                    if !on_call(&read.schemas, *call)? {
                        return Ok(read);
                    }
                }
                Some(Entry::Call(_)) => {}
            }
        }
        for damage in reader.damage() {
            read.is_whole = false;
            terminal::print_error(format_args!("warning: {}: {damage}", path.display()));
        }
        if let Some(ending @ (RecordingEnd::Torn { .. } | RecordingEnd::Unfinished)) = reader.ending() {
            read.is_whole = false;
            terminal::print_error(format_args!("warning: {}: {ending}", path.display()));
        }
    }
    Ok(read)
}

/// What recordings contain beside calls.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) schemas: DeclaredMessages,
    pub(crate) loss: Loss,
    /// Every byte could be read.
    pub(crate) is_whole: bool,
}

impl Default for Read {
    fn default() -> Self {
        Self { schemas: DeclaredMessages::new(), loss: Loss::default(), is_whole: true }
    }
}

fn open_reader(path: &Path) -> Result<Reader<BufReader<File>>, Failure> {
    Reader::new(BufReader::new(open_file(path)?)).map_err(|error| {
        let failure = Failure::new(format!("{}: {error}", path.display()));
        failure.with_hint("files of brpc's rpc_dump are read by `polyrpc recording import --from brpc`")
    })
}

/// The index of a complete recording.
pub(crate) fn read_index(path: &Path) -> Result<Option<Index>, Failure> {
    let read = Index::read(open_file(path)?);
    read.map_err(|error| Failure::system(format!("read {}", path.display()), &error))
}

fn open_file(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|error| Failure::system(format!("read {}", path.display()), &error))
}
