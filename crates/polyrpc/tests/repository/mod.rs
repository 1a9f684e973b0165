//! Documents and examples.

mod capabilities;
mod custom_protocol;
mod docs;
mod security_docs;
mod urls;
