//! Lengths of windows.

/// Maximum length of a window, in seconds.
pub(super) const MAX_SECONDS: usize = 60;

/// Seconds that recent values cover: bvar's `bvar_dump_interval`.
pub(super) const DEFAULT_SECONDS: usize = 10;
