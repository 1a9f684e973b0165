/// Milliseconds since a moment of the caller's choice, as in segments. They wrap around after 49 days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Millis(pub u32);

impl Millis {
    /// Returns the time `milliseconds` later.
    #[must_use]
    pub fn after(self, milliseconds: u32) -> Self {
        Self(self.0.wrapping_add(milliseconds))
    }

    /// Returns the milliseconds from `earlier` to this time; negative if it was later.
    pub fn since(self, earlier: Self) -> i32 {
        distance(self.0, earlier.0)
    }

    /// Whether the time has come.
    pub(super) fn is_reached(self, now: Self) -> bool {
        now.since(self) >= 0
    }

    /// Returns the earlier one.
    pub(super) fn earlier(self, other: Self) -> Self {
        if self.since(other) <= 0 { self } else { other }
    }
}

/// Returns how far `later` is ahead of `earlier` among numbers that wrap around.
pub(super) fn distance(later: u32, earlier: u32) -> i32 {
    later.wrapping_sub(earlier) as i32
}
