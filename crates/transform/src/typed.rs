//! Messages of a `.proto` from and to the JSON that users write and read.

use polyrpc::payload::schema::{MessageType, Pool};
use polyrpc::payload::transcode;
use polyrpc::{Format, Json};
use polyrpc_core::protobuf::{Reader, WireType};

use crate::{Error, Types, strict};

impl Types {
    /// Converts the user's JSON to the request in a wire format.
    ///
    /// # Errors
    ///
    /// If it does not match the request.
    pub fn encode_request(&self, wire: Format, argument: &[u8]) -> Result<Vec<u8>, Error> {
        let protobuf = strict::to_protobuf(&self.input, argument)?;
        transcode::from_protobuf(&self.input, wire, &protobuf)
            .map_err(|error| Error::new(format!("the argument cannot be sent: {error}")))
    }

    /// Converts a response in a wire format to the user's JSON.
    ///
    /// # Errors
    ///
    /// If it does not match the response.
    pub fn decode_response(&self, wire: Format, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let wrong = |error: transcode::Error| {
            let name = self.output.full_name();
            Error::new(format!("the reply does not match {name}: {error}"))
        };
        let protobuf = transcode::to_protobuf(&self.output, wire, bytes).map_err(wrong)?;
        transcode::from_protobuf(&self.output, FOR_USERS, &protobuf).map_err(wrong)
    }

    /// Fields of a response that the schema does not declare, the first few, as in `100 of pkg.Message`: a decoded response
    /// lacks them. Only protobuf has them.
    pub fn find_undeclared(&self, wire: Format, bytes: &[u8]) -> Vec<String> {
        let mut found = Vec::new();
        if wire == Format::Protobuf {
            // What is malformed, the decoding reports.
            let _ = collect_undeclared(self.output.pool(), &self.output, bytes, DEPTH, &mut found);
        }
        found
    }
}

fn collect_undeclared(
    pool: &Pool,
    message: &MessageType,
    bytes: &[u8],
    depth: usize,
    found: &mut Vec<String>,
) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() && found.len() < MAX_NAMES {
        let (number, wire) = reader.tag()?;
        match (message.field(number), wire) {
            (Some(field), WireType::Bytes) => {
                let inner = reader.bytes()?;
                if let Some(id) = field.kind().message() {
                    collect_undeclared(pool, &pool.message_at(id), inner, depth, found)?;
                }
            }
            (Some(_), _) => reader.skip(number, wire)?,
            (None, _) => {
                let name = format!("{number} of {}", message.full_name());
                if !found.contains(&name) {
                    found.push(name);
                }
                reader.skip(number, wire)?;
            }
        }
    }
    Some(())
}

/// Messages within messages that are searched: as many as decoders read.
const DEPTH: usize = 100;

/// Number of undeclared fields that are worth reading.
const MAX_NAMES: usize = 8;

/// The JSON dialect of users: that of protobuf's documentation.
const FOR_USERS: Format = Format::Json(Json::Proto3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_response_that_the_schema_lacks_are_named() {
        let types = Types::standard("grpc.health.v1.Health/Check").unwrap();
        assert_eq!(types.find_undeclared(Format::Protobuf, &[0x08, 1]), Vec::<String>::new());
        // Field 100 twice.
        let response = [0x08, 1, 0xa0, 0x06, 5, 0xa0, 0x06, 6];
        let named = types.find_undeclared(Format::Protobuf, &response);
        assert_eq!(named, ["100 of grpc.health.v1.HealthCheckResponse"]);
    }
}
