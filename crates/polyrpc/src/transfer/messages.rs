//! Requests and replies of the two services (rpcx `share/share.go`). Go uses other field names in JSON than in
//! MessagePack.

use std::collections::HashMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{self, SeqAccess, Visitor};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Arguments of all methods, each of which uses some of the fields.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(super) struct TransferRequest {
    #[serde(default, alias = "FileName")]
    pub(super) file_name: Option<String>,
    #[serde(default, alias = "FileSize")]
    pub(super) file_size: Option<i64>,
    #[serde(default, alias = "Meta")]
    pub(super) meta: Option<HashMap<String, String>>,
}

impl Serialize for TransferRequest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let [name, size, meta] = match serializer.is_human_readable() {
            true => ["file_name", "file_size", "meta"],
            false => ["FileName", "FileSize", "Meta"],
        };
        let fields = 1 + usize::from(self.file_name.is_some()) + usize::from(self.file_size.is_some());
        let mut written = serializer.serialize_struct("Args", fields)?;
        if let Some(file_name) = &self.file_name {
            written.serialize_field(name, file_name)?;
        }
        if let Some(file_size) = &self.file_size {
            written.serialize_field(size, file_size)?;
        }
        written.serialize_field(meta, &self.meta)?;
        written.end()
    }
}

/// Reply: address of the data connection, and the token to send there.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Grant {
    #[serde(alias = "Token")]
    pub(super) token: Token,
    #[serde(alias = "Addr")]
    pub(super) addr: String,
}

impl Serialize for Grant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let [token, addr] = match serializer.is_human_readable() {
            true => ["token", "addr"],
            false => ["Token", "Addr"],
        };
        let mut written = serializer.serialize_struct("Reply", 2)?;
        written.serialize_field(token, &self.token)?;
        written.serialize_field(addr, &self.addr)?;
        written.end()
    }
}

/// Bytes of a token: base64 in JSON, as Go encodes bytes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token(pub(super) Vec<u8>);

impl Serialize for Token {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match serializer.is_human_readable() {
            true => serializer.serialize_str(&STANDARD.encode(&self.0)),
            false => serializer.serialize_bytes(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TokenVisitor)
    }
}

struct TokenVisitor;

impl<'de> Visitor<'de> for TokenVisitor {
    type Value = Token;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes, or base64")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Token, E> {
        Ok(Token(bytes.to_vec()))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Token, E> {
        STANDARD.decode(text).map(Token).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut numbers: A) -> Result<Token, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = numbers.next_element()? {
            bytes.push(byte);
        }
        Ok(Token(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_uses_tag_names_and_message_pack_field_names() {
        let transfer_request =
            TransferRequest { file_name: Some("f".into()), file_size: Some(3), meta: None };
        assert_eq!(
            serde_json::to_string(&transfer_request).unwrap(),
            r#"{"file_name":"f","file_size":3,"meta":null}"#
        );
        let packed = rmp_serde::to_vec_named(&transfer_request).unwrap();
        assert_eq!(packed, b"\x83\xa8FileName\xa1f\xa8FileSize\x03\xa4Meta\xc0");
        assert_eq!(rmp_serde::from_slice::<TransferRequest>(&packed).unwrap(), transfer_request);

        let grant = Grant { token: Token(vec![1, 2]), addr: "h:1".into() };
        assert_eq!(serde_json::to_string(&grant).unwrap(), r#"{"token":"AQI=","addr":"h:1"}"#);
        let packed = rmp_serde::to_vec_named(&grant).unwrap();
        assert_eq!(packed, b"\x82\xa5Token\xc4\x02\x01\x02\xa4Addr\xa3h:1");
        assert_eq!(rmp_serde::from_slice::<Grant>(&packed).unwrap(), grant);
        assert_eq!(serde_json::from_str::<Grant>(r#"{"token":"AQI=","addr":"h:1"}"#).unwrap(), grant);
    }
}
