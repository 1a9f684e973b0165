//! Documents and examples.

mod custom_protocol;
mod docs;
mod reliability_docs;
mod security_docs;
mod urls;
