//! HDR histograms in the V2 encoding of HdrHistogram (its class `AbstractHistogram`, `encodeIntoCompressedByteBuffer`), and logs of
//! them. Ours, since input is untrusted here: sizes are checked before anything is allocated.

mod decode;
mod encode;
mod layout;
mod log;

pub use decode::{HdrError, decode};
pub use encode::encode;
pub use log::{LogEntry, write_log};
