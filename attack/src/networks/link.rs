//! The connection to the emulator of the network, by lines on standard output and input.

use std::io::{self, Write};

use serde::Serialize;

/// A network. Shares are between 0 and 1, times in seconds, the rate in bits a second, 0 if it is not limited.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Network {
    pub(super) loss: f64,
    pub(super) delay: f64,
    pub(super) jitter: f64,
    pub(super) reorder: f64,
    pub(super) duplicate: f64,
    pub(super) rate: u64,
    pub(super) cut: bool,
}

/// Configures the emulated network.
#[derive(Debug, Default)]
pub(super) struct Link {
    answer: String,
}

impl Link {
    /// Changes the network, and waits until it has changed.
    pub(super) fn emulate(&mut self, network: &Network) -> io::Result<()> {
        println!("emulate {}", serde_json::to_string(network)?);
        io::stdout().flush()?;
        self.answer.clear();
        match io::stdin().read_line(&mut self.answer)? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the emulator of the network has ended")),
            _ => Ok(()),
        }
    }
}
