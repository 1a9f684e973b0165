/// Kind of a profile.
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

    /// Whether two profiles are compared by weights instead of shares: the bytes in use do not depend on the duration
    /// of a profile.
    pub(crate) fn compares_weights(self) -> bool {
        self == Self::Heap
    }

    /// Returns the name of the counted items, and the unit of their weight.
    pub(crate) fn units(self) -> (&'static str, &'static str) {
        match self {
            Self::Cpu => ("samples", "samples"),
            Self::Contention => ("waits", "ns"),
            Self::Heap => ("stacks", "bytes"),
        }
    }
}
