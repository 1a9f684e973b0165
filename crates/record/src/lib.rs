#![doc = include_str!("../README.md")]

// From bottom to top: no module refers to one that comes after it.
mod encoding;
mod format_name;

pub mod call;

mod block;
mod index;

mod writer;

mod reader;

pub mod path;
pub mod redact;
pub mod value;

mod declared;

pub mod compare;

pub mod brpc;

#[cfg(feature = "layer")]
pub mod layer;

pub use self::call::{Call, Entry, Loss, Schema};
pub use self::declared::DeclaredMessages;
pub use self::index::{BlockSummary, Index, MethodSummary};
pub use self::reader::{Damage, ReadError, Reader, RecordingEnd};
pub use self::writer::Writer;
