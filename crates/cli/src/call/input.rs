use std::fs::File;
use std::io::{self, Cursor, Read};
use std::thread;

use serde_json::value::RawValue;
use serde_json::{Deserializer, error::Category};
use tokio::sync::mpsc;

use crate::failure::Failure;
use crate::message::no_json;

/// Source of a call's messages.
pub(super) struct Input {
    from: Box<dyn Read + Send>,
    name: String,
}

impl Input {
    /// Parses the argument: JSON, `@FILE` for a file, `@-`, `@` (as in grpcurl) and `-` for
    /// standard input.
    pub(super) fn parse(argument: Option<&str>) -> Result<Self, Failure> {
        let argument = argument.unwrap_or_default();
        Ok(match argument.strip_prefix('@') {
            Some("-" | "") => Self::from_stdin(),
            Some(path) => {
                let file = File::open(path);
                let file = file.map_err(|error| Failure::system(format!("read {path}"), &error))?;
                Self { from: Box::new(file), name: path.to_owned() }
            }
            None if argument == "-" => Self::from_stdin(),
            None => {
                let bytes = argument.as_bytes().to_vec();
                Self { from: Box::new(Cursor::new(bytes)), name: "the argument".to_owned() }
            }
        })
    }

    fn from_stdin() -> Self {
        Self { from: Box::new(io::stdin()), name: "standard input".to_owned() }
    }

    /// The whole input.
    pub(super) fn read_all(mut self) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        match self.from.read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(error) => Err(Failure::system(format!("read {}", self.name), &error)),
        }
    }

    /// Successive JSON values, each as soon as it is read: their writer may wait for responses
    /// in between.
    ///
    /// They are read on a separate thread, which is never joined.
    pub(super) fn read_values(self) -> mpsc::Receiver<Result<Vec<u8>, Failure>> {
        let (sender, receiver) = mpsc::channel(1);
        thread::spawn(move || {
            for value in Deserializer::from_reader(self.from).into_iter::<Box<RawValue>>() {
                let value = match value {
                    Ok(value) => Ok(value.get().as_bytes().to_vec()),
                    Err(error) if error.classify() == Category::Io => {
                        Err(Failure::system(format!("read {}", self.name), &error.into()))
                    }
                    Err(error) => Err(no_json(error)),
                };
                // Reading ends at an error, and the receiver may be gone.
                let ended = value.is_err();
                if sender.blocking_send(value).is_err() || ended {
                    return;
                }
            }
        });
        receiver
    }
}
