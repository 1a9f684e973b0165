//! Streaming decoder for base64.

use bytes::Bytes;

/// Decodes base64 text that arrives in arbitrary pieces. The input may be a concatenation of several texts, each with
/// its own padding.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// Values of the characters of an incomplete group of four.
    bits: u32,
    /// Number of those characters.
    digits: u32,
    /// Number of `=` after them.
    pads: u32,
}

/// The text is not valid base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MalformedBase64;

/// Result of decoding a piece of text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DecodedText {
    pub(crate) bytes: Bytes,
    /// By how many bytes the consumed text was longer. The characters of an incomplete group count once the group is
    /// complete.
    pub(crate) overhead: usize,
}

impl Decoder {
    /// Decodes a piece.
    pub(crate) fn push(&mut self, text: &[u8]) -> Result<DecodedText, MalformedBase64> {
        let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 3);
        let before = self.pending();
        let mut rest = text;
        while let Some((&char, behind)) = rest.split_first() {
            rest = match rest.split_first_chunk::<4>() {
                Some((group, behind)) if self.pending() == 0 && decode_whole(group, &mut bytes) => behind,
                _ => {
                    self.push_char(char, &mut bytes)?;
                    behind
                }
            };
        }
        let used = (before + text.len()).saturating_sub(self.pending());
        Ok(DecodedText { overhead: used.saturating_sub(bytes.len()), bytes: bytes.into() })
    }

    /// Finishes the text; its last padding may be missing.
    pub(crate) fn finish(&mut self) -> Result<Bytes, MalformedBase64> {
        let mut bytes = Vec::new();
        while self.pending() > 0 {
            self.push_char(b'=', &mut bytes)?;
        }
        Ok(bytes.into())
    }

    /// Number of characters of the incomplete group.
    fn pending(&self) -> usize {
        (self.digits + self.pads) as usize
    }

    fn push_char(&mut self, char: u8, bytes: &mut Vec<u8>) -> Result<(), MalformedBase64> {
        match (VALUES[usize::from(char)], char) {
            // Some tools wrap lines.
            (_, b'\r' | b'\n') => return Ok(()),
            (_, b'=') if self.digits >= 2 => self.pads += 1,
            (NONE, _) => return Err(MalformedBase64),
            (value, _) if self.pads == 0 => {
                self.bits = self.bits << 6 | u32::from(value);
                self.digits += 1;
            }
            _ => return Err(MalformedBase64),
        }
        if self.pending() == 4 {
            let [_, group @ ..] = (self.bits << (6 * self.pads)).to_be_bytes();
            bytes.extend(group.iter().take(3 - self.pads as usize));
            *self = Self::default();
        }
        Ok(())
    }
}

/// Decodes a group without padding, which most groups are.
fn decode_whole(group: &[u8; 4], bytes: &mut Vec<u8>) -> bool {
    let [a, b, c, d] = group.map(|char| VALUES[usize::from(char)]).map(u32::from);
    if (a | b | c | d) >= u32::from(NONE) {
        return false;
    }
    let [_, whole @ ..] = (a << 18 | b << 12 | c << 6 | d).to_be_bytes();
    bytes.extend_from_slice(&whole);
    true
}

/// Marks a byte that is not a base64 character.
const NONE: u8 = 64;

/// Value of each character.
const VALUES: [u8; 256] = {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut values = [NONE; 256];
    let mut at = 0;
    while at < alphabet.len() {
        values[alphabet[at] as usize] = at as u8;
        at += 1;
    }
    values
};

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(pieces: &[&[u8]]) -> Result<Vec<u8>, MalformedBase64> {
        let (mut decoder, mut bytes, mut overhead) = (Decoder::default(), Vec::new(), 0);
        for piece in pieces {
            let decoded = decoder.push(piece)?;
            overhead += decoded.overhead;
            bytes.extend_from_slice(&decoded.bytes);
        }
        assert_eq!(overhead + bytes.len() + decoder.pending(), pieces.concat().len());
        bytes.extend_from_slice(&decoder.finish()?);
        Ok(bytes)
    }

    #[test]
    fn concatenated_texts_are_decoded_for_any_split() {
        let text = b"AAECAwQ=BQ==\r\nBgcI\nCQoLDA0ODw==EA";
        let want: Vec<u8> = (0..=16).collect();
        assert_eq!(decode(&[text]).as_ref(), Ok(&want));
        assert_eq!(decode(&text.chunks(1).collect::<Vec<_>>()).as_ref(), Ok(&want));
        for at in 1..text.len() {
            let (a, b) = text.split_at(at);
            assert_eq!(decode(&[a, b]).as_ref(), Ok(&want), "cut at {at}");
        }
    }

    #[test]
    fn every_byte_round_trips() {
        use base64::Engine;
        let bytes: Vec<u8> = (0..=255).collect();
        for length in 0..bytes.len() {
            let text = base64::engine::general_purpose::STANDARD.encode(&bytes[..length]);
            assert_eq!(decode(&[text.as_bytes()]).unwrap(), &bytes[..length]);
        }
    }

    #[test]
    fn invalid_base64_is_rejected() {
        for text in ["A", "A===", "=", "AA=A", "AAAA=", "AA-A", "AAA\0", "AAAAA"] {
            assert_eq!(decode(&[text.as_bytes()]), Err(MalformedBase64), "{text}");
        }
    }
}
