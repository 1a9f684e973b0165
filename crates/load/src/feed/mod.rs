//! Messages from templates and records, created before the run so that it does not pay for them.
//!
//! A [`Template`] is JSON with placeholders: `{"id": {{seq}}, "name": "{{name}}"}`. `{{name}}` is a field of a record from a
//! CSV or JSON Lines file ([`Records`]); `{{seq}}`, `{{random 1 100}}`, `{{uuid}}` and `{{text 64}}` need none.

mod csv;
mod records;
mod template;

use std::fmt;
use std::str::FromStr;

pub use self::records::Records;
pub use self::template::Template;

/// Order in which calls use messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// One after the other, and again from the first.
    #[default]
    Sequence,
    /// At random, depending on the seed.
    Random,
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "sequence" => Ok(Self::Sequence),
            "random" => Ok(Self::Random),
            _ => Err(format!("unknown order `{text}`: expected sequence or random")),
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sequence => "sequence",
            Self::Random => "random",
        })
    }
}

/// Creates the messages of a run: one for each record, or `generated` if there are no records but placeholders, or one.
///
/// # Errors
///
/// If a record lacks a field, or a message is not JSON.
pub fn messages(
    template: &Template,
    records: Option<&Records>,
    generated: usize,
    seed: u64,
) -> Result<Vec<Vec<u8>>, String> {
    let count = match records {
        Some(records) => records.len(),
        None if template.is_constant() => 1,
        None => generated.max(1),
    };
    (0..count).map(|number| template.fill(number as u64, records.map(|all| all.get(number)), seed)).collect()
}
