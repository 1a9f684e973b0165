#![doc = include_str!("../README.md")]

// From bottom to top: no module refers to one that comes after it.
mod comments;
mod pattern;

mod method;

mod definitions;

mod document;
mod openapi;

mod page;

pub use self::comments::Comments;
pub use self::definitions::Definitions;
pub use self::document::json_schema;
pub use self::method::{Content, Method, ProtoFiles};
pub use self::openapi::OpenApi;
pub use self::page::OpenApiPage;
pub use self::pattern::{Pattern, PatternError};
