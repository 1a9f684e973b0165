//! Tests by topic: `ciphers` and `error_correction` against captures of `kcp-go`, `link` for conversations over links that
//! lose, duplicate and reorder, `hostile` for input that no well-behaved peer sends.

mod ciphers;
mod error_correction;
mod hostile;
mod link;
mod restarts;
mod validation;
