use std::borrow::Cow;
use std::fmt;

use polyrpc_core::Status;

use super::value::{OFFSET, Value, behind, u32_at};
use super::{Invalid, Verifier};

/// A string where it lies: bytes that are to be UTF-8, which neither C++ nor its verifier looks after.
///
/// It is looked at when it is wanted as a `&str`, and not before: what is only compared, measured or sent on costs
/// nothing, and a peer whose strings are none harms nobody who does not read them.
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
    /// A string to be written.
    pub const fn new(text: &'a str) -> Self {
        Self(text.as_bytes())
    }

    /// Bytes to be written as a string, UTF-8 or not.
    pub const fn from_bytes(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The string as Rust has them.
    ///
    /// # Errors
    ///
    /// When it is not UTF-8: an invalid argument, as a handler may tell its caller.
    #[inline]
    pub fn to_str(self) -> Result<&'a str, Status> {
        simdutf8::basic::from_utf8(self.0).map_err(|_| not_utf8(self.0))
    }

    /// The string with � for what is not UTF-8.
    pub fn to_str_lossy(self) -> Cow<'a, str> {
        match self.to_str() {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(self.0),
        }
    }

    /// Its bytes.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// How many bytes it has.
    pub const fn len(self) -> usize {
        self.0.len()
    }

    /// Whether it has none.
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

/// Its length, its bytes, a zero that does not count.
impl Value for Text<'static> {
    type View<'a> = Text<'a>;
    const SIZE: usize = OFFSET;
    const ALIGN: usize = OFFSET;
    const REFERS: bool = true;

    #[inline]
    fn view(buffer: &[u8], at: usize) -> Option<Text<'_>> {
        let start = behind(buffer, at)?;
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

/// As [`to_str_lossy`](Text::to_str_lossy).
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
