//! Texts that need not be UTF-8.

use std::fmt;

use bytes::Bytes;
use serde::de::Visitor;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Text that need not be UTF-8, like `std::string` of C++.
///
/// Use it instead of a `String`: as an argument, a result, or a field of a struct. A text from a rest_rpc peer may
/// contain the bytes of a file; a `String` rejects them, this type accepts them. Formats whose texts are UTF-8, such as
/// JSON, refuse to encode anything else. In rest_rpc's MessagePack a standalone value is encoded as a text; in a list
/// or a struct it is `bin` if it is not UTF-8, which msgpack-c reads as a `std::string` too.
///
/// ```
/// use polyrpc_payload::ByteString;
///
/// assert_eq!(ByteString::from(b"\xff".to_vec()).as_str(), None);
/// assert_eq!(ByteString::from("text").as_str(), Some("text"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ByteString(Content);

/// A UTF-8 value is always stored as text, so that it need not be checked again.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Content {
    Text(String),
    Bytes(Bytes),
}

impl ByteString {
    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Content::Text(text) => text.as_bytes(),
            Content::Bytes(bytes) => bytes,
        }
    }

    /// Returns the text, if it is UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        match &self.0 {
            Content::Text(text) => Some(text),
            Content::Bytes(_) => None,
        }
    }

    /// Returns the bytes without copying them.
    pub fn into_bytes(self) -> Bytes {
        match self.0 {
            Content::Text(text) => text.into(),
            Content::Bytes(bytes) => bytes,
        }
    }
}

impl Default for ByteString {
    fn default() -> Self {
        String::new().into()
    }
}

impl fmt::Debug for ByteString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Content::Text(text) => text.fmt(f),
            Content::Bytes(bytes) => bytes.fmt(f),
        }
    }
}

impl AsRef<[u8]> for ByteString {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl From<String> for ByteString {
    fn from(text: String) -> Self {
        Self(Content::Text(text))
    }
}

impl From<&str> for ByteString {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<Vec<u8>> for ByteString {
    fn from(bytes: Vec<u8>) -> Self {
        Self(match String::from_utf8(bytes) {
            Ok(text) => Content::Text(text),
            Err(error) => Content::Bytes(error.into_bytes().into()),
        })
    }
}

impl From<Bytes> for ByteString {
    fn from(bytes: Bytes) -> Self {
        Self(match std::str::from_utf8(&bytes) {
            Ok(text) => Content::Text(text.to_owned()),
            Err(_) => Content::Bytes(bytes),
        })
    }
}

impl Serialize for ByteString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Content::Text(text) => serializer.serialize_str(text),
            Content::Bytes(_) if serializer.is_human_readable() => {
                Err(S::Error::custom("the text is not UTF-8"))
            }
            Content::Bytes(bytes) => serializer.serialize_newtype_struct(NOT_UTF8, &Plain(bytes)),
        }
    }
}

/// Name of the newtype by which serializers of rest_rpc's formats recognise these bytes as a text.
pub const NOT_UTF8: &str = "polyrpc::payload::ByteString";

struct Plain<'b>(&'b [u8]);

impl Serialize for Plain<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<'de> Deserialize<'de> for ByteString {
    /// Requests a text, so that typed formats decode it as one; formats whose texts are bytes pass non-UTF-8 texts as
    /// bytes.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_string(TextVisitor)
    }
}

struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = ByteString;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E>(self, text: &str) -> Result<ByteString, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<ByteString, E> {
        Ok(text.into())
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<ByteString, E> {
        Ok(bytes.to_vec().into())
    }

    fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<ByteString, E> {
        Ok(bytes.into())
    }
}
