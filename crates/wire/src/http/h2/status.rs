//! Error codes of RST_STREAM and GOAWAY (RFC 9113, §7).

/// Error code of a stream or connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// Graceful end without an error.
    pub const NO_ERROR: Self = Self(0);
    /// The peer violated the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1);
    /// The sender has an internal failure.
    pub const INTERNAL_ERROR: Self = Self(2);
    /// More data was sent than the window allows, or a window grew beyond its maximum.
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    /// A frame was received on a closed stream.
    pub const STREAM_CLOSED: Self = Self(5);
    /// A frame has an invalid length.
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    /// The stream was not processed.
    pub const REFUSED_STREAM: Self = Self(7);
    /// The stream's result is no longer needed.
    pub const CANCEL: Self = Self(8);
    /// The header compression state is broken.
    pub const COMPRESSION_ERROR: Self = Self(9);
    /// The peer behaves abusively.
    pub const ENHANCE_YOUR_CALM: Self = Self(11);
}

/// Scope of an error caused by a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Connection error.
    Connection(ErrorCode, &'static str),
    /// Connection error caused by an exceeded limit. The text names the limit and the size.
    TooLarge(ErrorCode, String),
    /// Stream error.
    Stream(u32, ErrorCode),
}

/// Creates a connection error.
#[cold]
pub(super) fn connection_error(code: ErrorCode, why: &'static str) -> Fault {
    Fault::Connection(code, why)
}

/// Creates a stream error.
#[cold]
pub(super) fn stream_error(id: u32, code: ErrorCode) -> Fault {
    Fault::Stream(id, code)
}
