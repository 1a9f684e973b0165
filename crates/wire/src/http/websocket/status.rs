//! Close codes (RFC 6455 §7.4).

use std::fmt;

/// Close code of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CloseCode(u16);

impl CloseCode {
    /// Normal closure.
    pub const NORMAL: Self = Self(1000);
    /// The server stops, or the page is left.
    pub const GOING_AWAY: Self = Self(1001);
    /// The peer violated the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// A text is not UTF-8.
    pub const INVALID_DATA: Self = Self(1007);
    /// A message exceeds the limit.
    pub const TOO_BIG: Self = Self(1009);

    /// Returns the code that a peer sent, unless it must not be sent (§7.4.1, §7.4.2): codes reserved for local use,
    /// and unregistered ones.
    pub fn read(number: u16) -> Option<Self> {
        matches!(number, 1000..=1003 | 1007..=1014 | 3000..=4999).then_some(Self(number))
    }

    /// Returns the number.
    pub fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NORMAL => f.write_str("normal closure"),
            Self::GOING_AWAY => f.write_str("going away"),
            Self::PROTOCOL_ERROR => f.write_str("protocol error"),
            Self::INVALID_DATA => f.write_str("text that is not UTF-8"),
            Self::TOO_BIG => f.write_str("message too big"),
            Self(number) => write!(f, "close code {number}"),
        }
    }
}
