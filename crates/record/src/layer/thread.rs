//! The recorder's thread: encodes, redacts and writes.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use polyrpc_payload::schema::Message;

use super::RecorderStats;
use super::captured::CapturedCall;
use super::files::{FileOptions, Files};
use super::queue::{Queue, QueueItem};
use super::schemas::{self, Schemas};
use crate::call::{Call, Loss, unix_nanos};
use crate::redact::Redaction;
use crate::writer::Writer;

/// The thread that encodes, redacts and writes recorded calls.
pub(super) struct RecorderThread {
    files: Files,
    writer: Option<Writer<File>>,
    schemas: Schemas,
    /// Schema and messages of known methods.
    methods: HashMap<(String, String), Option<DeclaredMethod>>,
    redaction: Redaction,
    /// Calls in the block that is not written yet.
    unwritten: u64,
    flushed: Instant,
    /// When to create a file again after an error.
    retry: Option<Instant>,
    /// Counts of losses that are already written to the recording.
    reported: RecorderStats,
}

/// Declaration of a method.
#[derive(Clone)]
struct DeclaredMethod {
    schema: usize,
    input: Message,
    output: Message,
}

impl RecorderThread {
    pub(super) fn new(
        path: PathBuf,
        options: FileOptions,
        schemas: Vec<Bytes>,
        redaction: Redaction,
    ) -> io::Result<Self> {
        // Before a file is created.
        let schemas = schemas::decode(schemas)?;
        let files = Files::new(path, options);
        let writer = Some(files.create()?);
        Ok(Self {
            files,
            writer,
            schemas,
            methods: HashMap::new(),
            redaction,
            unwritten: 0,
            flushed: Instant::now(),
            retry: None,
            reported: RecorderStats::default(),
        })
    }

    /// Writes calls until the queue is closed.
    pub(super) fn run(mut self, queue: &Queue) {
        loop {
            // While entries are unwritten, the thread must check the time.
            let may_sleep = self.unwritten == 0 && queue.stats() == self.reported_stats(queue);
            let received = queue.receive(may_sleep);
            if let Some(schemas) = queue.take_schemas() {
                self.schemas = schemas;
                self.methods.clear();
            }
            match received {
                QueueItem::Calls(calls) => self.take(queue, calls),
                QueueItem::Closed(calls) => {
                    self.take(queue, calls);
                    self.finish(queue);
                    return;
                }
            }
        }
    }

    /// The stats that the queue would have if it counted no loss since the last report.
    fn reported_stats(&self, queue: &Queue) -> RecorderStats {
        RecorderStats { recorded: queue.stats().recorded, ..self.reported }
    }

    fn take(&mut self, queue: &Queue, calls: Vec<CapturedCall>) {
        for call in calls {
            self.write_call(queue, call);
        }
        if self.flushed.elapsed() >= FLUSH_INTERVAL {
            self.write_losses(queue);
            self.flush(queue);
            self.check_space(queue);
        }
    }

    fn write_call(&mut self, queue: &Queue, captured: CapturedCall) {
        if !self.is_open(queue) {
            queue.count_not_written(1);
            return;
        }
        let mut call = captured.into_call();
        let declared = self.find_declared(&call.service, &call.method);
        let messages = declared.as_ref().map(|declared| (&declared.input, &declared.output));
        self.redaction.apply(&mut call, messages);
        self.put_call(queue, call, declared);
    }

    fn put_call(&mut self, queue: &Queue, mut call: Call, declared: Option<DeclaredMethod>) {
        let Some(writer) = &mut self.writer else { return };
        let before = writer.position();
        let written = match declared.and_then(|declared| self.schemas.get(declared.schema)) {
            None => Ok(()),
            Some((schema, _)) => {
                call.schema = Some(schema.hash);
                writer.schema(schema)
            }
        };
        let written = written.and_then(|()| writer.call(&call));
        let waits = writer.has_pending();
        let has_flushed = self.count_if_flushed(queue, before);
        self.unwritten += 1;
        match written {
            Ok(()) if has_flushed => {
                // A large call does not wait for a block.
                if !waits {
                    self.count_pending_as_written(queue);
                }
                self.flushed = Instant::now();
                self.rotate(queue);
            }
            Ok(()) => {}
            Err(error) => self.fail(queue, &error),
        }
    }

    /// Counts the pending calls as written if a block was written since the file had the length `before`: they are in its
    /// first block. Returns whether a block was written.
    fn count_if_flushed(&mut self, queue: &Queue, before: u64) -> bool {
        let has_flushed = self.writer.as_ref().is_some_and(|writer| writer.position() > before);
        if has_flushed {
            self.count_pending_as_written(queue);
        }
        has_flushed
    }

    /// Counts the pending calls as written.
    fn count_pending_as_written(&mut self, queue: &Queue) {
        queue.count_written(std::mem::take(&mut self.unwritten));
    }

    fn find_declared(&mut self, service: &str, method: &str) -> Option<DeclaredMethod> {
        let key = (service.to_owned(), method.to_owned());
        if let Some(known) = self.methods.get(&key) {
            return known.clone();
        }
        let found = self.schemas.iter().enumerate().find_map(|(schema, (_, pool))| {
            let method = pool.service(service)?.methods().find(|declared| declared.name() == method)?;
            Some(DeclaredMethod { schema, input: method.input(), output: method.output() })
        });
        // Callers choose the names of calls to a fallback, and their length.
        if self.methods.len() < MAX_METHODS && service.len() + method.len() <= MAX_NAME {
            self.methods.insert(key, found.clone());
        }
        found
    }

    fn flush(&mut self, queue: &Queue) {
        self.flushed = Instant::now();
        let Some(writer) = &mut self.writer else { return };
        match writer.flush() {
            Ok(()) => {
                self.count_pending_as_written(queue);
                self.rotate(queue);
            }
            Err(error) => self.fail(queue, &error),
        }
    }

    fn write_losses(&mut self, queue: &Queue) {
        let now = queue.stats();
        let loss = Loss {
            at: unix_nanos(SystemTime::now()),
            queue_full: now.queue_full - self.reported.queue_full,
            method_limit: now.method_limit - self.reported.method_limit,
            not_written: now.not_written - self.reported.not_written,
        };
        let Some(writer) = self.writer.as_mut().filter(|_| loss.calls() > 0) else { return };
        let before = writer.position();
        let written = writer.loss(&loss);
        self.count_if_flushed(queue, before);
        match written {
            Ok(()) => self.reported = now,
            Err(error) => self.fail(queue, &error),
        }
    }

    /// Starts a new file if the current one is full.
    fn rotate(&mut self, queue: &Queue) {
        let Some(writer) = self.writer.as_mut().filter(|writer| self.files.is_full(writer)) else { return };
        // Separately, since a call is lost with its block, but not with the index that follows.
        if let Err(error) = writer.flush() {
            self.fail(queue, &error);
            return;
        }
        self.count_pending_as_written(queue);
        let Some(writer) = self.writer.take() else { return };
        let rotated = writer.finish().and_then(|_| self.files.archive()).and_then(|_| self.files.create());
        match rotated {
            Ok(writer) => self.writer = Some(writer),
            Err(error) => self.fail(queue, &error),
        }
    }

    /// Abandons the file after its last complete block.
    #[cold]
    fn fail(&mut self, queue: &Queue, error: &io::Error) {
        let path = self.files.path().display();
        tracing::warn!(target: "polyrpc::record", %path, %error, "the recording cannot be written; trying again");
        if let Some(writer) = self.writer.take() {
            let whole = writer.position();
            // If that fails, readers skip the torn block.
            let _ = writer.into_inner().set_len(whole);
        }
        queue.count_not_written(self.unwritten);
        self.unwritten = 0;
        self.retry = Some(Instant::now() + RETRY_INTERVAL);
    }

    /// Whether a file is open; tries to create one if not.
    fn is_open(&mut self, queue: &Queue) -> bool {
        if self.writer.is_some() {
            return true;
        }
        if self.retry.is_some_and(|at| Instant::now() < at) || self.files.lacks_space() {
            return false;
        }
        match self.files.create() {
            Ok(writer) => {
                self.writer = Some(writer);
                let _ = self.files.trim();
                true
            }
            Err(error) => {
                self.fail(queue, &error);
                false
            }
        }
    }

    fn check_space(&mut self, queue: &Queue) {
        if self.writer.is_some() && self.files.lacks_space() {
            let path = self.files.path().display();
            tracing::warn!(target: "polyrpc::record", %path, "recording stops until the file system has more space");
            let finished = self.writer.take().map_or(Ok(()), |writer| writer.finish().map(drop));
            if let Err(error) = finished {
                self.fail(queue, &error);
            }
            self.retry = Some(Instant::now() + RETRY_INTERVAL);
        }
    }

    fn finish(mut self, queue: &Queue) {
        self.write_losses(queue);
        self.flush(queue);
        if let Some(writer) = self.writer.take()
            && let Err(error) = writer.finish()
        {
            self.fail(queue, &error);
        }
    }
}

/// Longest time for which calls wait for the next block.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// Time until a file is created again after an error.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
const MAX_METHODS: usize = 10_000;
/// Maximum length of the name of a remembered method.
const MAX_NAME: usize = 512;

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read};
    use std::os::fd::OwnedFd;
    use std::thread;

    use super::*;

    /// The state of a thread that writes to a pipe, with one call that waits for the next block.
    fn setup(options: FileOptions) -> (PipeReader, RecorderThread) {
        let (reader, pipe) = io::pipe().unwrap();
        let mut writer = Writer::new(File::from(OwnedFd::from(pipe))).unwrap();
        writer.call(&Call { method: "add".into(), ..Call::default() }).unwrap();
        let setup = RecorderThread {
            files: Files::new(PathBuf::from("calls.rec"), options),
            writer: Some(writer),
            schemas: Vec::new(),
            methods: HashMap::new(),
            redaction: Redaction::new(),
            unwritten: 1,
            flushed: Instant::now(),
            retry: None,
            reported: RecorderStats::default(),
        };
        (reader, setup)
    }

    #[test]
    fn call_whose_block_cannot_be_written_at_the_end_of_a_full_file_is_not_recorded() {
        let queue = Queue::new(0);
        let (reader, mut setup) = setup(FileOptions { rotate_at: 0, ..FileOptions::default() });
        // From now on writing fails.
        drop(reader);
        setup.rotate(&queue);
        let stats = queue.stats();
        assert_eq!((stats.recorded, stats.not_written), (0, 1));
        assert!(setup.writer.is_none());
    }

    #[test]
    fn calls_before_a_large_one_that_cannot_be_written_are_recorded() {
        let queue = Queue::new(0);
        let (mut reader, mut setup) = setup(FileOptions::default());
        // Longer than what a pipe holds, also when compressed.
        let mut state = 1u32;
        let attachment = (0..4 << 20).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        let large = Call { attachment: attachment.collect(), ..Call::default() };
        // The magic number of the file, and a byte of the block of the first call, which is written at once.
        let reads = thread::spawn(move || reader.read_exact(&mut [0; 9]).unwrap());
        setup.put_call(&queue, large, None);
        reads.join().unwrap();
        let stats = queue.stats();
        assert_eq!((stats.recorded, stats.not_written), (1, 1));
        assert!(setup.writer.is_none());
    }
}
