//! Values of self-encoding Go types.

use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Error;
use super::types::Opaque;

/// A Go type whose values encode themselves: gob carries the output of its method as opaque bytes.
///
/// ```
/// use polyrpc_payload::gob::{GoType, Method, SelfEncoded};
///
/// /// Go's `big.Float`.
/// struct BigFloat;
///
/// impl GoType for BigFloat {
///     const NAME: &'static str = "Float";
///     const METHOD: Method = Method::GobEncoder;
/// }
///
/// let bytes_of_go = vec![1];
/// let zero = SelfEncoded::<BigFloat>::from_bytes(bytes_of_go);
/// ```
pub trait GoType: 'static {
    /// The type's name without its package, of at most 64 bytes: `Int` for `big.Int`.
    const NAME: &'static str;
    /// Method that encodes its values.
    const METHOD: Method;
}

/// Method by which a value of a Go type encodes itself.
///
/// Go looks for them in this order. `encoding.TextMarshaler` is not among them: gob disables it
/// (`encoding/gob/type.go`, `validUserType`), and a type with nothing else is sent as its underlying type, such as
/// `net.IP` as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `gob.GobEncoder`: `big.Int`, `big.Float`, `big.Rat`. For `time.Time` there is [`Time`](super::Time).
    GobEncoder,
    /// `encoding.BinaryMarshaler`: `netip.Addr`, `url.URL`, `uuid.UUID` of google/uuid.
    BinaryMarshaler,
}

/// A value of the Go type `G`, encoded by its own method. In formats other than gob it consists of these bytes.
///
/// ```
/// use polyrpc_payload::gob;
/// use polyrpc_payload::gob::{BigInt, NetipAddr, SelfEncoded};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// #[serde(rename_all = "PascalCase")]
/// struct Transfer {
///     amount: SelfEncoded<BigInt>,
///     from: SelfEncoded<NetipAddr>,
/// }
///
/// let from: std::net::IpAddr = "192.0.2.7".parse()?;
/// let sent = gob::to_vec(&Transfer { amount: (-5).into(), from: from.into() })?;
/// let read: Transfer = gob::from_slice(&sent)?;
/// assert_eq!(i128::try_from(&read.amount)?, -5);
/// assert_eq!(read.from.to_ip()?, Some(from));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SelfEncoded<G> {
    bytes: Vec<u8>,
    of: PhantomData<fn() -> G>,
}

impl<G: GoType> SelfEncoded<G> {
    /// Creates the value that the type's method encodes as these bytes.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), of: PhantomData }
    }

    /// Returns the output of the type's method. Empty output is Go's zero value.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Marker by which gob distinguishes it from other types, and its type from others; other formats ignore it.
    const MARK: &'static str = match std::str::from_utf8(Self::BUFFER.0.split_at(Self::BUFFER.1).0) {
        Ok(mark) => mark,
        Err(_) => panic!("the name of the Go type is too long"),
    };

    const BUFFER: ([u8; 128], usize) = {
        let prefix = match G::METHOD {
            Method::GobEncoder => GOB,
            Method::BinaryMarshaler => BINARY,
        };
        concat(prefix.as_bytes(), G::NAME.as_bytes())
    };
}

const GOB: &str = "polyrpc gob GobEncoder ";
const BINARY: &str = "polyrpc gob BinaryMarshaler ";

const fn concat(one: &[u8], other: &[u8]) -> ([u8; 128], usize) {
    assert!(other.len() <= 64, "the name of the Go type is too long");
    let mut buffer = [0; 128];
    let mut at = 0;
    while at < one.len() {
        buffer[at] = one[at];
        at += 1;
    }
    while at < one.len() + other.len() {
        buffer[at] = other[at - one.len()];
        at += 1;
    }
    (buffer, at)
}

/// Returns the Go type that a marker names.
pub(super) fn parse_marker(mark: &'static str) -> Option<(&'static str, Opaque)> {
    let gob = mark.strip_prefix(GOB).map(|name| (name, Opaque::Gob));
    gob.or_else(|| mark.strip_prefix(BINARY).map(|name| (name, Opaque::Binary)))
}

impl<G: GoType> Serialize for SelfEncoded<G> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Raw<'a>(&'a [u8]);

        impl Serialize for Raw<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_bytes(self.0)
            }
        }

        serializer.serialize_newtype_struct(Self::MARK, &Raw(&self.bytes))
    }
}

impl<'de, G: GoType> Deserialize<'de> for SelfEncoded<G> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(Self::MARK, Raw).map(Self::from_bytes)
    }
}

struct Raw;

impl<'de> de::Visitor<'de> for Raw {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes of a value that encodes itself")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<Vec<u8>, D::Error> {
        inner.deserialize_byte_buf(self)
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.to_vec())
    }

    fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
        Ok(bytes)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut parts: A) -> Result<Vec<u8>, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = parts.next_element()? {
            bytes.push(byte);
        }
        Ok(bytes)
    }
}

impl<G> Clone for SelfEncoded<G> {
    fn clone(&self) -> Self {
        Self { bytes: self.bytes.clone(), of: PhantomData }
    }
}

impl<G> Default for SelfEncoded<G> {
    /// Go's zero value.
    fn default() -> Self {
        Self { bytes: Vec::new(), of: PhantomData }
    }
}

impl<G> PartialEq for SelfEncoded<G> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl<G> Eq for SelfEncoded<G> {}

impl<G: GoType> fmt::Debug for SelfEncoded<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", G::NAME, self.bytes.escape_ascii())
    }
}

macro_rules! go_types {
    ($($(#[$doc:meta])* $name:ident = $go:literal by $method:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name;

        impl GoType for $name {
            const NAME: &'static str = $go;
            const METHOD: Method = Method::$method;
        }
    )+};
}

go_types! {
    /// Go's `big.Int`, an integer of any size.
    BigInt = "Int" by GobEncoder;
    /// Go's `netip.Addr`.
    NetipAddr = "Addr" by BinaryMarshaler;
    /// Go's `url.URL`.
    Url = "URL" by BinaryMarshaler;
    /// The `uuid.UUID` of github.com/google/uuid.
    Uuid = "UUID" by BinaryMarshaler;
}

/// `intGobVersion` of Go's `math/big/intmarsh.go`, shifted next to the sign.
const BIG_INT: u8 = 1 << 1;

impl SelfEncoded<BigInt> {
    /// Creates the integer with this sign and these bytes, most significant first.
    pub fn from_magnitude(negative: bool, magnitude: &[u8]) -> Self {
        let zeros = magnitude.iter().take_while(|byte| **byte == 0).count();
        let magnitude = magnitude.get(zeros..).unwrap_or_default();
        let sign = u8::from(negative && !magnitude.is_empty());
        Self::from_bytes([&[BIG_INT | sign], magnitude].concat())
    }

    /// Returns whether it is negative, and its bytes, most significant first.
    ///
    /// # Errors
    ///
    /// If the bytes have another version of Go's encoding.
    pub fn magnitude(&self) -> Result<(bool, &[u8]), Error> {
        match self.bytes.split_first() {
            None => Ok((false, &[])),
            Some((head, magnitude)) if head & !1 == BIG_INT => Ok((head & 1 == 1, magnitude)),
            Some((head, _)) => {
                Err(Error::new(format!("Int.GobDecode: encoding version {} not supported", head >> 1)))
            }
        }
    }
}

impl From<i128> for SelfEncoded<BigInt> {
    fn from(value: i128) -> Self {
        Self::from_magnitude(value < 0, &value.unsigned_abs().to_be_bytes())
    }
}

impl TryFrom<&SelfEncoded<BigInt>> for i128 {
    type Error = Error;

    fn try_from(value: &SelfEncoded<BigInt>) -> Result<Self, Error> {
        let too_large = || Error::new("the integer has more than 128 bits");
        let (negative, magnitude) = value.magnitude()?;
        let mut bytes = [0; 16];
        let start = bytes.len().checked_sub(magnitude.len()).ok_or_else(too_large)?;
        bytes[start..].copy_from_slice(magnitude);
        let magnitude = u128::from_be_bytes(bytes);
        let value = if negative { 0_i128.checked_sub_unsigned(magnitude) } else { magnitude.try_into().ok() };
        value.ok_or_else(too_large)
    }
}

impl From<IpAddr> for SelfEncoded<NetipAddr> {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::from_bytes(address.octets()),
            IpAddr::V6(address) => Self::from_bytes(address.octets()),
        }
    }
}

impl SelfEncoded<NetipAddr> {
    /// Returns the address, without its zone; `None` for Go's zero value.
    ///
    /// # Errors
    ///
    /// If the bytes are not a valid address.
    pub fn to_ip(&self) -> Result<Option<IpAddr>, Error> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        if let Ok(octets) = <[u8; 4]>::try_from(&self.bytes[..]) {
            return Ok(Some(Ipv4Addr::from(octets).into()));
        }
        let octets = self.bytes.first_chunk::<16>().ok_or_else(|| Error::new("unexpected slice size"))?;
        Ok(Some(Ipv6Addr::from(*octets).into()))
    }
}

impl From<&str> for SelfEncoded<Url> {
    fn from(url: &str) -> Self {
        Self::from_bytes(url)
    }
}

impl SelfEncoded<Url> {
    /// Returns the URL as a text.
    ///
    /// # Errors
    ///
    /// If it is not UTF-8.
    pub fn to_str(&self) -> Result<&str, Error> {
        std::str::from_utf8(&self.bytes).map_err(|_| Error::new("the URL is not UTF-8"))
    }
}

impl From<[u8; 16]> for SelfEncoded<Uuid> {
    fn from(uuid: [u8; 16]) -> Self {
        Self::from_bytes(uuid)
    }
}

impl TryFrom<&SelfEncoded<Uuid>> for [u8; 16] {
    type Error = Error;

    fn try_from(value: &SelfEncoded<Uuid>) -> Result<Self, Error> {
        value.bytes[..].try_into().map_err(|_| Error::new("a UUID has 16 bytes"))
    }
}
