//! Options of a command that records calls.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use polyrpc_record::layer::Recorder;
use polyrpc_record::path::Path;
use polyrpc_record::redact::Redaction;

use crate::failure::Failure;
use crate::terminal;

/// Options of a recording server.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Recording")]
pub(crate) struct RecordOptions {
    /// Record calls to this file, without credentials; see `polyrpc recording` and `polyrpc replay`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Record this share of the calls, 0.01 for one per cent [default: all]
    #[arg(long, value_name = "SHARE", requires = "record")]
    record_share: Option<f64>,
    /// Record every call that fails, whatever the share
    #[arg(long, requires = "record")]
    record_failures: bool,
    /// Record every call that takes at least this long, whatever the share
    #[arg(long, value_name = "TIME", requires = "record", value_parser = terminal::parse_duration)]
    record_slow: Option<Duration>,
    /// Record at most this number of calls of a method in a second
    #[arg(long, value_name = "N", requires = "record")]
    record_limit: Option<u32>,
    /// Remove this field from recorded messages, for example user.password; messages that cannot be decoded are then
    /// recorded without their bodies; may be repeated
    #[arg(long, value_name = "PATH", requires = "record")]
    record_drop: Vec<Path>,
    /// Replace this field by its HMAC; needs --record-key; may be repeated
    #[arg(long, value_name = "PATH", requires = "record_key")]
    record_hmac: Vec<Path>,
    /// File with the key of --record-hmac
    #[arg(long, value_name = "FILE", requires = "record_hmac")]
    record_key: Option<PathBuf>,
}

impl RecordOptions {
    /// Opens the recording, if one is requested, with its redaction. `schemas`: serialized descriptor sets of
    /// the server's methods.
    pub(crate) fn open_recorder(
        &self,
        schemas: &[&'static [u8]],
    ) -> Result<Option<(Recorder, Redaction)>, Failure> {
        let Some(path) = &self.record else { return Ok(None) };
        let mut redaction = Redaction::new();
        for path in &self.record_drop {
            redaction = redaction.drop_field(path.clone());
        }
        if let Some(file) = &self.record_key {
            let key = fs::read(file)
                .map_err(|error| Failure::system(format!("read {}", file.display()), &error))?;
            if key.len() < 16 {
                return Err(Failure::new(format!("the key in {} is shorter than 16 bytes", file.display()))
                    .with_hint("head -c 32 /dev/urandom > FILE writes one"));
            }
            for path in &self.record_hmac {
                redaction = redaction.hash_field(path.clone(), &key);
            }
        }
        let mut options = Recorder::options().redaction(redaction.clone());
        if let Some(share) = self.record_share {
            if !(0.0..=1.0).contains(&share) {
                return Err(Failure::new("--record-share must be between 0 and 1"));
            }
            options = options.sample_rate(share);
        }
        if self.record_failures {
            options = options.failures();
        }
        if let Some(slow) = self.record_slow {
            options = options.slower_than(slow);
        }
        if let Some(limit) = self.record_limit {
            options = options.per_method(limit);
        }
        for set in schemas {
            options = options.schema(*set);
        }
        let opened = options.open(path);
        let opened = opened.map(|recorder| Some((recorder, redaction)));
        opened.map_err(|error| Failure::system(format!("record to {}", path.display()), &error))
    }
}
