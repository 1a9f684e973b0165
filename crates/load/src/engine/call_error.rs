/// Failure of a call.
#[derive(Debug, Clone)]
pub(crate) struct CallError {
    /// Name under which failures are counted.
    pub(crate) name: String,
    /// Text of this failure.
    pub(crate) reason: String,
    /// Whether the call had no connection, or lost it.
    pub(crate) is_lost: bool,
}
