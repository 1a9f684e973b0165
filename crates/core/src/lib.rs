//! Protocol-independent vocabulary shared by all protocols of PolyRPC.
//!
//! * [`Call`] and [`Reply`]: a request and its response, independent of the protocol.
//! * [`Status`]: the error model.
//! * [`session`]: the traits that a protocol implements, one for each side of a connection.
//! * [`protocol`]: a protocol as data; a [`Descriptor`] for each.
//! * [`Outbox`]: outgoing bytes of a connection; small chunks are copied together, large ones shared.
//! * [`Format`] and [`Compression`]: names of encodings and compressions, implemented by `polyrpc-payload`.
//! * [`protobuf`]: the primitives of protobuf's binary format.
//!
//! This crate contains no sockets, tasks, locks or clocks.

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
pub use carrier::{Carrier, UnsupportedEntry};
pub use format::{Compression, Format, Json};
pub use metadata::{Metadata, ReceivedMetadata};
pub use outbox::Outbox;
pub use protocol::{Descriptor, Detection};
pub use session::{Limits, Violation};
pub use status::{Code, Detail, Fault, Retry, Scope, Status};
