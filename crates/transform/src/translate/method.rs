use crate::struct_pack::Signature;
use crate::{Types, flatbuffers};

/// Declarations of one method's messages.
#[derive(Debug, Default)]
pub struct MethodSchema {
    /// Declaration in a `.proto`.
    pub proto: Option<Types>,
    /// Declaration in a `.fbs`.
    pub flatbuffers: Option<flatbuffers::Method>,
    /// Declared C++ types of the arguments and the result.
    pub signature: Option<Signature>,
}

impl MethodSchema {
    /// Whether the method is undeclared.
    pub fn is_empty(&self) -> bool {
        self.proto.is_none() && self.flatbuffers.is_none() && self.signature.is_none()
    }
}
