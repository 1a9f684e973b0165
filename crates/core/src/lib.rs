//! The words that every protocol of PolyRPC shares, and that name no protocol.
//!
//! * [`Call`] and [`Reply`]: a request and its answer, the same whatever protocol carries them.
//! * [`Status`]: the one model of failure.
//! * [`session`]: the traits that a protocol implements, one for each side of a connection.
//! * [`protocol`]: what a protocol is, as data; a [`Descriptor`] for each.
//! * [`Outbox`]: what leaves a connection; small chunks are copied together, large ones shared.
//! * [`Format`] and [`Compression`]: how a message is written, by name. `polyrpc-payload` reads and writes them.
//! * [`protobuf`]: the primitives of protobuf's binary format.
//!
//! Nothing here knows a socket, a task, a lock or a clock.

pub mod append;
mod call;
pub mod carrier;
pub mod digits;
mod format;
mod metadata;
mod outbox;
pub mod protobuf;
pub mod protocol;
pub mod session;
pub mod status;

#[doc(hidden)]
pub mod testing;

pub use call::{Call, CallId, Checksum, Credential, Head, Message, Push, Reply, StreamId, Topic};
pub use carrier::{Carrier, Misfit};
pub use format::{Compression, Format, Json};
pub use metadata::Metadata;
pub use outbox::Outbox;
pub use protocol::{Descriptor, Detected};
pub use session::{Limits, Violation};
pub use status::{Code, Detail, Fault, Retry, Scope, Status};
