use std::fmt;

/// What a caller of the admin listener may do; each role may do all that the ones before it may.
///
/// | role | may |
/// |---|---|
/// | [`Read`](Self::Read) | read pages |
/// | [`Call`](Self::Call) | call methods of the servers |
/// | [`Profile`](Self::Profile) | run profilers, which slow the process down a little |
/// | [`Write`](Self::Write) | change settings, close connections |
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Read pages.
    Read,
    /// Call methods.
    Call,
    /// Run profilers.
    Profile,
    /// Change settings, close connections.
    Write,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Call => "call",
            Self::Profile => "profile",
            Self::Write => "write",
        })
    }
}
