//! Declarations of the recorded methods.

use std::io;

use bytes::Bytes;
use polyrpc_payload::schema::Pool;

use crate::call::Schema;

/// Declarations that may be used, the first of a method first.
pub(super) type Schemas = Vec<(Schema, Pool)>;

/// Reads serialized `FileDescriptorSet`s.
pub(super) fn decode(sets: Vec<Bytes>) -> io::Result<Schemas> {
    let schemas = sets.into_iter().map(|set| {
        let pool = Pool::decode(&set).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok((Schema::new(set), pool))
    });
    schemas.collect()
}
