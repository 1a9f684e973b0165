//! Base64 as parsers of ProtoJSON accept it.

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Appends the decoded bytes: of either alphabet, with or without padding. `None` if the text is malformed; `out` may
/// have a part of it then.
pub fn decode_into(text: &str, out: &mut Vec<u8>) -> Option<()> {
    let engine = if text.contains(['-', '_']) { &LENIENT_URL_SAFE } else { &LENIENT };
    engine.decode_vec(text, out).ok()
}

const CONFIG: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const LENIENT: GeneralPurpose = GeneralPurpose::new(&STANDARD, CONFIG);
const LENIENT_URL_SAFE: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, CONFIG);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_alphabet_is_decoded_with_and_without_padding() {
        let decode = |text: &str| {
            let mut out = vec![0];
            decode_into(text, &mut out).map(|()| out)
        };
        for text in ["+/8=", "+/8", "-_8=", "-_8"] {
            assert_eq!(decode(text).as_deref(), Some(&[0, 0xfb, 0xff][..]), "{text}");
        }
        for malformed in ["+_8=", "+/8=x", "?"] {
            assert_eq!(decode(malformed), None, "{malformed}");
        }
    }
}
