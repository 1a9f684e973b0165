//! Messages of a `.proto` from and to the JSON that users write and read.

use polyrpc::payload::transcode;
use polyrpc::{Format, Json};

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
}

/// The JSON dialect of users: that of protobuf's documentation.
const FOR_USERS: Format = Format::Json(Json::Proto3);
