//! A service with a method of each call kind. `polyrpc generate` wrote the code in `generated` from `shapes.proto`.

mod service;

#[allow(warnings, reason = "generated")]
#[path = "generated/mod.rs"]
mod generated;

pub(crate) use generated::test::shapes::ShapesServer;
pub(crate) use service::Workshop;
