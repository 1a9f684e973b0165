/// A revision of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    /// 2025-03-26: batches, and no field for the version.
    V2025March,
    /// 2025-06-18: structured results.
    V2025June,
    /// 2025-11-25.
    V2025November,
    /// 2026-07-28: every request carries its version; there are no sessions.
    V2026July,
}

impl Version {
    /// All revisions, the newest first.
    pub(crate) const ALL: [Self; 4] =
        [Self::V2026July, Self::V2025November, Self::V2025June, Self::V2025March];

    /// The newest revision that begins with `initialize`.
    pub(crate) const NEWEST_WITH_HANDSHAKE: Self = Self::V2025November;

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::V2025March => "2025-03-26",
            Self::V2025June => "2025-06-18",
            Self::V2025November => "2025-11-25",
            Self::V2026July => "2026-07-28",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == name)
    }

    /// Whether requests start a session or belong to one.
    pub(crate) fn has_handshake(self) -> bool {
        self < Self::V2026July
    }

    /// Whether a request may be a batch of messages.
    pub(crate) fn has_batches(self) -> bool {
        self == Self::V2025March
    }
}
