/// What a profile tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProfileKind {
    /// Where threads use the CPU.
    Cpu,
    /// Where threads wait for locks.
    Contention,
    /// Where the memory in use was allocated.
    Heap,
}

impl ProfileKind {
    /// Returns the last segment of its path.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Contention => "contention",
            Self::Heap => "heap",
        }
    }

    /// Returns what is counted, and the unit of what it weighs.
    pub(crate) fn units(self) -> (&'static str, &'static str) {
        match self {
            Self::Cpu => ("samples", "samples"),
            Self::Contention => ("waits", "ns"),
            Self::Heap => ("stacks", "bytes"),
        }
    }
}
