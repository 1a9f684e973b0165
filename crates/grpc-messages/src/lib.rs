#![doc = include_str!("../README.md")]

mod proto;
mod v1alpha;

pub use self::proto::grpc::{health, reflection};
pub use self::v1alpha::v1alpha_descriptors;
