use std::borrow::Cow;
use std::fmt;

use polyrpc_core::Status;

use super::layout::{OFFSET, follow, u32_at};
use super::{Invalid, Value, Verifier};

/// A string in a buffer: bytes that should be UTF-8, which neither C++ nor its verifier checks.
///
/// It is validated only when it is accessed as a `&str`: comparing, measuring or forwarding it costs nothing, and a
/// peer with malformed strings affects only code that reads them.
///
/// ```
/// use polyrpc_payload::flatbuffers::Text;
///
/// let text = Text::new("héllo");
/// assert_eq!(text, "héllo");
/// assert_eq!(text.to_str(), Ok("héllo"));
/// assert_eq!(Text::from_bytes(b"\xff!").to_str_lossy(), "\u{fffd}!");
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
    /// Creates a string for writing.
    pub const fn new(text: &'a str) -> Self {
        Self(text.as_bytes())
    }

    /// Creates a string for writing from bytes, UTF-8 or not.
    pub const fn from_bytes(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the string as a `&str`.
    ///
    /// # Errors
    ///
    /// If it is not UTF-8: an invalid argument, which a handler may return to its caller.
    #[inline]
    pub fn to_str(self) -> Result<&'a str, Status> {
        simdutf8::basic::from_utf8(self.0).map_err(|_| not_utf8(self.0))
    }

    /// Returns the string with � for malformed UTF-8.
    pub fn to_str_lossy(self) -> Cow<'a, str> {
        match self.to_str() {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(self.0),
        }
    }

    /// Returns its bytes.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns its length in bytes.
    pub const fn len(self) -> usize {
        self.0.len()
    }

    /// Whether it is empty.
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

/// Layout: length, bytes, and a terminating zero that does not count.
impl Value for Text<'static> {
    type View<'a> = Text<'a>;
    const SIZE: usize = OFFSET;
    const ALIGN: usize = OFFSET;
    const REFERS: bool = true;

    #[inline]
    fn view(buffer: &[u8], at: usize) -> Option<Text<'_>> {
        let start = follow(buffer, at)?;
        let len = u32_at(buffer, start)? as usize;
        buffer.get(start + OFFSET..)?.get(..len).map(Text)
    }

    #[inline]
    fn verify(verifier: &mut Verifier<'_>, at: usize) -> Result<(), Invalid> {
        verifier.string(at)
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self::new(text)
    }
}

impl<'a> From<&'a String> for Text<'a> {
    fn from(text: &'a String) -> Self {
        Self::new(text)
    }
}

impl AsRef<[u8]> for Text<'_> {
    fn as_ref(&self) -> &[u8] {
        self.0
    }
}

impl PartialEq<str> for Text<'_> {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for Text<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

/// Like [`to_str_lossy`](Text::to_str_lossy).
impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_str_lossy().fmt(f)
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_str() {
            Ok(text) => text.fmt(f),
            Err(_) => write!(f, "\"{}\"", self.0.escape_ascii()),
        }
    }
}

#[cold]
fn not_utf8(bytes: &[u8]) -> Status {
    let valid = std::str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len);
    Status::invalid_argument(format!("a string is not UTF-8 from its byte {valid} on"))
}
