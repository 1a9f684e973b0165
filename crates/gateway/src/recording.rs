//! The recording of calls.

use std::path::Path;

use bytes::Bytes;
use polyrpc::Protocol;
use polyrpc_record::layer::Recorder;
use polyrpc_record::redact::Redaction;
use polyrpc_transform::Schemas;

use crate::config::{Config, Lined, Record};
use crate::config_error::ConfigError;

/// Starts the configured recording.
///
/// # Errors
///
/// If its key cannot be read, or its file cannot be created.
pub(crate) fn open(config: &Config, schemas: &Schemas) -> Result<Option<Recorder>, ConfigError> {
    let Some(spec) = &config.record else { return Ok(None) };
    let mut options = Recorder::options().redaction(redaction(spec)?).sample_rate(spec.share.0);
    if spec.failures {
        options = options.failures();
    }
    if let Some(time) = spec.slower_than {
        options = options.slower_than(time.0);
    }
    if let Some(calls) = spec.per_method {
        options = options.per_method(calls);
    }
    if let Some(size) = spec.queue {
        options = options.queue(size.0);
    }
    if let Some(size) = spec.rotate_at {
        options = options.rotate_at(size.0 as u64);
    }
    if let Some(size) = spec.total {
        options = options.total(size.0 as u64);
    }
    if let Some(size) = spec.min_free {
        options = options.min_free(size.0 as u64);
    }
    for set in sets(schemas) {
        options = options.schema(set);
    }
    let opened = options.open(&spec.file);
    opened
        .map(Some)
        .map_err(|error| wrong(spec, format!("cannot record to {}: {error}", spec.file.display())))
}

/// Checks the requirements of a recording without creating its file. Returns which messages it drops.
pub(crate) fn check(config: &Config) -> Result<Vec<String>, ConfigError> {
    let Some(spec) = &config.record else { return Ok(Vec::new()) };
    redaction(spec)?;
    let folder =
        spec.file.parent().filter(|folder| *folder != Path::new("")).unwrap_or_else(|| Path::new("."));
    if !folder.is_dir() {
        return Err(wrong(spec, format!("there is no folder {}", folder.display())));
    }
    if spec.file.is_dir() {
        return Err(wrong(spec, format!("{} is a folder", spec.file.display())));
    }
    if !spec.has_rules() {
        return Ok(Vec::new());
    }
    let lost: Vec<_> =
        UNRECORDED_PROTOCOLS.into_iter().filter(|lost| config.accepts(*lost)).map(Protocol::as_str).collect();
    let note = |names: &str| {
        format!(
            "[record]: messages of {names} callers are not kept: fields are removed from protobuf, JSON and MessagePack"
        )
    };
    Ok(if lost.is_empty() { Vec::new() } else { vec![note(&lost.join(", "))] })
}

/// Serialized schemas for redacting and showing messages.
pub(crate) fn sets(schemas: &Schemas) -> Vec<Bytes> {
    schemas.protos().map(|source| Bytes::copy_from_slice(source.encoded())).collect()
}

/// Methods whose messages cannot be redacted.
const UNRECORDED_PROTOCOLS: [Protocol; 2] = [Protocol::NetRpc, Protocol::FbRpc];

fn redaction(spec: &Lined<Record>) -> Result<Redaction, ConfigError> {
    let mut redaction = Redaction::new();
    for name in &spec.drop_metadata {
        redaction = redaction.drop_metadata(name);
    }
    for field in &spec.drop {
        redaction = redaction.drop_field(field.0.clone());
    }
    if let Some(secret) = &spec.hash_key {
        let key = secret.read().map_err(|text| wrong(spec, text))?;
        if key.len() < MIN_KEY_LEN {
            return Err(wrong(spec, format!("the key in {secret} is shorter than {MIN_KEY_LEN} bytes")));
        }
        for field in &spec.hash {
            redaction = redaction.hash_field(field.0.clone(), key.as_bytes());
        }
    }
    Ok(redaction)
}

fn wrong(spec: &Lined<Record>, text: impl std::fmt::Display) -> ConfigError {
    ConfigError::new(spec.line, format!("[record]: {text}"))
}

const MIN_KEY_LEN: usize = 16;
