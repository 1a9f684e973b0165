//! Translation of encoded messages from one format to another, planned before the first message.

mod impossible;
mod losses;
mod method;
mod numbers;
mod plain;
mod positional;
mod same_names;
mod schemas;
mod translator;

pub use self::impossible::{Impossible, Reason};
pub use self::method::MethodSchema;
pub use self::schemas::Schemas;
pub use self::translator::{OnLoss, Options, Translated, Translator};
