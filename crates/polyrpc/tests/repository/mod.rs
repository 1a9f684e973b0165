//! Documents and examples.

mod custom_protocol;
mod docs;
mod security_docs;
mod urls;
