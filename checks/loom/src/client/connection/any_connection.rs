use std::task::Waker;

/// What a pool uses of a connection.
pub(in crate::client) trait AnyConnection: Send + Sync {
    fn readiness(&self) -> Readiness;

    fn is_available(&self) -> bool {
        self.readiness() == Readiness::Free
    }

    fn reserve(&self, calls: usize, waker: &Waker) -> Option<usize>;

    fn release_reserved(&self);

    fn close(&self);
}

/// Whether a connection takes calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum Readiness {
    Free,
    Full,
    Ending,
}
