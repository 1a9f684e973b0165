use std::time::{Duration, SystemTime};

use polyrpc::Code;
use polyrpc::layer::Side;

/// Facts about an ended call that need no formatting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    pub(crate) side: Side,
    pub(crate) protocol: &'static str,
    pub(crate) took: Duration,
    /// Why it failed, with the number of the failure in its protocol.
    pub(crate) failure: Option<(Code, Option<i32>)>,
    /// Size of the request and of the reply.
    pub(crate) sizes: (usize, usize),
}

/// A call that has ended, as a tap receives it. It has no payload and no metadata.
#[derive(Debug, Clone)]
pub(crate) struct TapCall {
    pub(crate) facts: Facts,
    /// The service and the method.
    pub(crate) name: Box<str>,
    pub(crate) peer: Box<str>,
    pub(crate) ended: SystemTime,
    /// The text of the failure, which may contain values of the request.
    pub(crate) message: Box<str>,
}

impl TapCall {
    /// Returns `ok`, or the code of the failure.
    pub(crate) fn status(&self) -> &'static str {
        self.facts.failure.map_or("ok", |(code, _)| code.as_str())
    }
}
