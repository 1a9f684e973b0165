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

    /// Whether its stacks have methods: those of the heap are taken at any time, also while no stack is labelled.
    pub(crate) fn has_methods(self) -> bool {
        self != Self::Heap
    }

    /// Whether two profiles are compared by what they weigh, and not by the shares of it: the bytes in use do not depend on how
    /// long a profile took.
    pub(crate) fn compares_weights(self) -> bool {
        self == Self::Heap
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
