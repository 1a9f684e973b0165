//! A service with a method of every shape. The code in `generated` is that of `shapes.proto`, by `polyrpc generate`.

mod service;

#[allow(warnings, reason = "generated")]
#[path = "generated/mod.rs"]
mod generated;

pub(crate) use generated::test::shapes::ShapesServer;
pub(crate) use service::Workshop;
