use std::fmt;

use polyrpc::Format;

/// Why messages of one format cannot become messages of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranslatorError {
    /// The format of the messages.
    pub from: Format,
    /// The required format.
    pub to: Format,
    /// What is missing.
    pub reason: Reason,
}

/// The obstacle to a translation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A `.proto` must declare the method.
    NeedsProto,
    /// A `.fbs` must declare the method.
    NeedsFbs,
    /// The types of the function's arguments and result must be declared.
    NeedsTypes,
    /// The schemas of both sides do not match.
    Mismatch(String),
    /// Impossible with any schema.
    Never,
}

impl fmt::Display for TranslatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot become {}", self.from.as_str(), self.to.as_str())?;
        match &self.reason {
            Reason::NeedsProto => f.write_str(" without a .proto that declares the method"),
            Reason::NeedsFbs => f.write_str(" without a .fbs that declares the method"),
            Reason::NeedsTypes => f.write_str(" without the declared types of the function"),
            Reason::Mismatch(what) => write!(f, ": {what}"),
            Reason::Never => Ok(()),
        }
    }
}

impl std::error::Error for TranslatorError {}
