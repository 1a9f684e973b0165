//! Kinds of calls: how each differs from an echo.

/// A difference from the echo: in the handler, the runtime or the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing: the reference.
    Echo,
    /// The handler waits for another task.
    Waiting,
    /// The handler fails with a code and a text.
    Failing,
    /// The call passes three layers of the server, each with a future of its own.
    ThreeLayers,
    /// Client and server run on a runtime with two threads.
    TwoThreads,
    /// The program chooses no allocator.
    SystemAllocator,
}

impl Kind {
    /// The reference first: compared with itself it shows the noise.
    pub(crate) const ALL: [Self; 6] = [
        Self::Echo,
        Self::Waiting,
        Self::Failing,
        Self::ThreeLayers,
        Self::TwoThreads,
        Self::SystemAllocator,
    ];

    /// The kind of this name.
    pub(crate) fn from_name(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| format!("there is no kind `{name}`"))
    }

    /// Its name on the command line and in bars.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Waiting => "waiting",
            Self::Failing => "failing",
            Self::ThreeLayers => "three_layers",
            Self::TwoThreads => "two_threads",
            Self::SystemAllocator => "system_allocator",
        }
    }
}
