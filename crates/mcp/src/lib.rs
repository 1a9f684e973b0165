#![doc = include_str!("../README.md")]

// From bottom to top: no module refers to one that comes after it.
mod json_rpc;
mod version;

mod settings;

mod tool;

mod caller;

mod protocol;

mod http;

mod mcp;

pub use self::mcp::{BuildError, Builder, Mcp};
pub use self::tool::{OmittedMethod, Tool, Tools, ToolsError};
pub use polyrpc_describe::{Pattern, PatternError};
