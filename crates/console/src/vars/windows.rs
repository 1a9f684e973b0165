//! Lengths of windows.

/// Maximum length of a window, in seconds.
pub(super) const LONGEST: usize = 60;

/// Seconds that recent values cover: bvar's `bvar_dump_interval`.
pub(super) const USUAL: usize = 10;
