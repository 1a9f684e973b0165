//! Metadata in the single field of rpcx's gateway: `a=1&b=2`, percent-encoded (Go `net/url`).

use bytes::Bytes;

use polyrpc_core::Metadata;
use polyrpc_core::digits::hexadecimal;

/// Adds the pairs of `text` to `metadata`, with the first value of each key like rpcx; `None` if the text is malformed,
/// or has the `unique` key twice.
pub(crate) fn decode(text: &[u8], unique: Option<&str>, metadata: &mut Metadata) -> Option<()> {
    let mut pairs = Metadata::new();
    for pair in text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
        // Go rejects it since 1.17: servers disagree on whether it separates pairs.
        if pair.contains(&b';') {
            return None;
        }
        if pairs.len() == MAX_PAIRS {
            return None;
        }
        let mut halves = pair.splitn(2, |byte| *byte == b'=');
        let key = String::from_utf8(unescape(halves.next()?)?).ok()?;
        let value = unescape(halves.next().unwrap_or_default())?;
        match pairs.bytes(&key) {
            None => pairs.insert(key, value),
            Some(_) if unique == Some(key.as_str()) => return None,
            Some(_) => {}
        }
    }
    for (key, value) in pairs.iter() {
        metadata.insert(key.to_owned(), value.clone());
    }
    Some(())
}

/// Writes `metadata` sorted by key, as Go does.
pub(super) fn encode(metadata: &Metadata, text: &mut Vec<u8>) {
    let mut pairs: Vec<(&str, &Bytes)> = metadata.iter().collect();
    pairs.sort_unstable_by_key(|(key, _)| *key);
    for (at, (key, value)) in pairs.into_iter().enumerate() {
        if at > 0 {
            text.push(b'&');
        }
        escape(key.as_bytes(), text);
        text.push(b'=');
        escape(value, text);
    }
}

/// Maximum number of pairs, since a key is looked up linearly.
const MAX_PAIRS: usize = 256;

pub(crate) fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        plain.push(match byte {
            b'+' => b' ',
            b'%' => hexadecimal(*rest.next()?)? << 4 | hexadecimal(*rest.next()?)?,
            other => *other,
        });
    }
    Some(plain)
}

fn escape(plain: &[u8], text: &mut Vec<u8>) {
    for byte in plain {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => text.push(*byte),
            b' ' => text.push(b'+'),
            other => {
                let digit = |nibble: u8| b"0123456789ABCDEF"[usize::from(nibble & 15)];
                text.extend([b'%', digit(other >> 4), digit(*other)]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_metadata(text: &str) -> Option<Metadata> {
        let mut metadata = Metadata::new();
        decode(text.as_bytes(), Some("once"), &mut metadata).map(|()| metadata)
    }

    #[test]
    fn query_round_trips() {
        let metadata: Metadata =
            [("k1", "v1"), ("a key", "100% & more"), ("空", ""), ("__AUTH", "a+b\r\n")].into_iter().collect();
        let mut text = Vec::new();
        encode(&metadata, &mut text);
        assert_eq!(text, b"__AUTH=a%2Bb%0D%0A&a+key=100%25+%26+more&k1=v1&%E7%A9%BA=");
        let mut back = Metadata::new();
        decode(&text, None, &mut back).expect("its own text");
        assert_eq!(back.len(), 4);
        assert!(metadata.iter().all(|(key, value)| back.bytes(key) == Some(value)));
    }

    #[test]
    fn first_value_of_a_key_wins_and_values_are_optional() {
        let metadata = decode_metadata("a=1&a=2&&b").expect("a good text");
        assert_eq!((metadata.get("a"), metadata.get("b"), metadata.len()), (Some("1"), Some(""), 2));
    }

    #[test]
    fn malformed_queries_are_rejected() {
        for text in ["a=%", "a=%4", "a=%zz", "%ff=1", "a=1;b=2", "once=1&a=1&on%63e=2"] {
            assert_eq!(decode_metadata(text), None, "{text}");
        }
    }
}
