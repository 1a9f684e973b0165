//! The captured bytes, until the user interrupts.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use bytes::{Buf, Bytes};
use polyrpc::signal;
use tokio::runtime::{Builder, Runtime};

/// Reads a source until its end, or until Ctrl-C or SIGTERM: then it ends as well, so that what was read is kept. A second
/// signal ends the process.
pub(super) struct Input {
    arriving: Receiver<InputEvent>,
    rest: Bytes,
    has_ended: bool,
    interrupted: InterruptFlag,
}

/// Whether the user has interrupted the reading.
#[derive(Debug, Clone, Default)]
pub(super) struct InterruptFlag(Arc<AtomicBool>);

impl InterruptFlag {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

enum InputEvent {
    Bytes(Bytes),
    Error(io::Error),
    /// The source has ended, or the user has interrupted.
    End,
}

impl Input {
    /// Handles signals from now on, and reads the source on a thread of its own: it may wait for long, and nothing could
    /// interrupt it.
    ///
    /// # Errors
    ///
    /// If no runtime or thread can be started.
    pub(super) fn new(source: impl Read + Send + 'static) -> io::Result<Self> {
        let (sender, arriving) = sync_channel(AHEAD);
        let interrupted = InterruptFlag::default();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let first = {
            let _inside = runtime.enter();
            signal::shutdown()
        };
        let (event_sender, flag) = (sender.clone(), interrupted.clone());
        let watch = move || watch(&runtime, first, &event_sender, &flag);
        thread::Builder::new().name("signals".to_owned()).spawn(watch)?;
        thread::Builder::new().name("reader".to_owned()).spawn(move || read(source, &sender))?;
        Ok(Self { arriving, rest: Bytes::new(), has_ended: false, interrupted })
    }

    pub(super) fn interrupt_flag(&self) -> InterruptFlag {
        self.interrupted.clone()
    }
}

fn read(mut source: impl Read, sender: &SyncSender<InputEvent>) {
    loop {
        let mut buffer = vec![0; CHUNK];
        let arrived = match source.read(&mut buffer) {
            Ok(0) => InputEvent::End,
            Ok(length) => {
                buffer.truncate(length);
                InputEvent::Bytes(buffer.into())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => InputEvent::Error(error),
        };
        let is_last = !matches!(arrived, InputEvent::Bytes(_));
        // The command may have ended.
        if sender.send(arrived).is_err() || is_last {
            return;
        }
    }
}

/// Ends the reading on the first signal, and the process on the second.
fn watch(
    runtime: &Runtime,
    first: impl Future<Output = ()>,
    sender: &SyncSender<InputEvent>,
    interrupted: &InterruptFlag,
) {
    runtime.block_on(async {
        first.await;
        let second = signal::shutdown();
        interrupted.0.store(true, Ordering::Relaxed);
        let _ = sender.send(InputEvent::End);
        second.await;
    });
    // Exit code of a process that was ended by SIGINT, as shells report it: 128 + 2.
    std::process::exit(130);
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() && !self.has_ended && !self.interrupted.is_set() {
            match self.arriving.recv() {
                Ok(InputEvent::Bytes(bytes)) => self.rest = bytes,
                Ok(InputEvent::Error(error)) => {
                    self.has_ended = true;
                    return Err(error);
                }
                Ok(InputEvent::End) | Err(_) => self.has_ended = true,
            }
        }
        let length = self.rest.len().min(into.len());
        self.rest.copy_to_slice(&mut into[..length]);
        Ok(length)
    }
}

/// Size of a read in bytes, and how many of them may wait.
const CHUNK: usize = 64 << 10;
const AHEAD: usize = 4;

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// A source that gives each text that is sent to it.
    struct Texts(std::sync::mpsc::Receiver<&'static [u8]>);

    impl Read for Texts {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let text = self.0.recv().unwrap_or_default();
            into[..text.len()].copy_from_slice(text);
            Ok(text.len())
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn signals_are_handled_before_anything_is_read() {
        let _input = Input::new(std::io::empty()).unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        // The lowest bit is that of signal 1; SIGINT is 2.
        assert!(u64::from_str_radix(caught.trim(), 16).unwrap() & 2 != 0, "{caught}");
    }

    #[test]
    fn input_ends_with_its_source_or_when_it_is_interrupted() {
        let (sender, texts) = channel();
        let mut input = Input::new(Texts(texts)).unwrap();
        sender.send(&b"abc"[..]).unwrap();
        let mut buffer = [0; 2];
        assert_eq!((input.read(&mut buffer).unwrap(), &buffer), (2, b"ab"));
        assert_eq!(input.read(&mut buffer).unwrap(), 1);
        drop(sender);
        assert_eq!((input.read(&mut buffer).unwrap(), input.read(&mut buffer).unwrap()), (0, 0));
        let (_sender, texts) = channel();
        let mut waiting = Input::new(Texts(texts)).unwrap();
        waiting.interrupt_flag().0.store(true, Ordering::Relaxed);
        assert_eq!(waiting.read(&mut buffer).unwrap(), 0);
    }
}
