//! The codes that tell why a stream or a connection ended (RFC 9113, §7).

/// Why a stream or a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// Nothing is wrong.
    pub const NO_ERROR: Self = Self(0);
    /// Something the protocol does not allow.
    pub const PROTOCOL_ERROR: Self = Self(1);
    /// The side that tells it cannot go on.
    pub const INTERNAL_ERROR: Self = Self(2);
    /// More was sent than the window had room for, or a window grew past its bound.
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    /// A frame on a stream that is closed.
    pub const STREAM_CLOSED: Self = Self(5);
    /// A frame of a length that it cannot have.
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    /// Nothing was done about the stream.
    pub const REFUSED_STREAM: Self = Self(7);
    /// Nobody waits for the stream any more.
    pub const CANCEL: Self = Self(8);
    /// The header compression's state is broken.
    pub const COMPRESSION_ERROR: Self = Self(9);
    /// The peer behaves as an attacker would.
    pub const ENHANCE_YOUR_CALM: Self = Self(11);
}

/// What a frame breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The connection cannot go on.
    Connection(ErrorCode, &'static str),
    /// The same, since something exceeds a limit. The text names both.
    TooLarge(ErrorCode, String),
    /// Only this stream ends.
    Stream(u32, ErrorCode),
}

/// The connection cannot go on.
#[cold]
pub(super) fn connection(code: ErrorCode, why: &'static str) -> Fault {
    Fault::Connection(code, why)
}

/// Only the stream ends.
#[cold]
pub(super) fn stream(id: u32, code: ErrorCode) -> Fault {
    Fault::Stream(id, code)
}
