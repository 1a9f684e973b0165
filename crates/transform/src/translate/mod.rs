//! Translation of encoded messages from one format to another, planned before the first message.

mod losses;
mod method;
mod numbers;
mod plain;
mod positional;
mod same_names;
mod schemas;
mod translator;
mod translator_error;

pub use self::method::MethodSchema;
pub use self::schemas::Schemas;
pub use self::translator::{OnLoss, Options, Translation, Translator};
pub use self::translator_error::{Reason, TranslatorError};
