use super::{Discover, List};
use crate::Result;

/// The way to find servers that a word of a URL names, if this crate has it: in `rpcx+list://a:1,b:2` the word is
/// `list` and the rest `a:1,b:2`.
///
/// # Errors
///
/// When the rest is not what the word wants.
pub fn open(word: &str, rest: &str) -> Result<Option<Box<dyn Discover>>> {
    Ok(Some(match word {
        "list" => Box::new(rest.parse::<List>()?),
        _ => return Ok(None),
    }))
}
