//! Bound of the texts of failures.

use std::borrow::Cow;

/// Returns the text of a failure as it is sent. A peer limits the head or frame that contains it, and would end the
/// call or the connection without the reason: this framework at 64 KiB, which percent encoding may need for a third of
/// that.
#[cold]
pub(crate) fn shorten(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_LEN {
        return text.into();
    }
    format!("{}{TRUNCATION_MARK}", &text[..text.floor_char_boundary(MAX_LEN - TRUNCATION_MARK.len())]).into()
}

const MAX_LEN: usize = 16 << 10;
const TRUNCATION_MARK: &str = "… (shortened)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_long_text_is_shortened_at_a_character() {
        let fits = "é".repeat(MAX_LEN / 2);
        assert_eq!(shorten(&fits), fits);
        let long = format!("x{fits}");
        let text = shorten(&long);
        assert!(text.len() <= MAX_LEN && text.len() > MAX_LEN - 4, "{}", text.len());
        assert!(text.starts_with("xé") && text.ends_with(&format!("é{TRUNCATION_MARK}")));
    }
}
