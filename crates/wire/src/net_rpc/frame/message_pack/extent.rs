//! Incremental search for the end of a MessagePack value.

use polyrpc_core::Violation;

/// Progress of the search. Each byte is scanned once, however many pieces the value arrives in, and nesting uses no
/// stack.
#[derive(Debug, Default)]
pub(super) struct Extent {
    /// Offset of the next token.
    at: usize,
    /// Number of values still missing, unless the value has not started.
    missing_values: Option<usize>,
    /// End of the token that was found to be incomplete.
    wanted: usize,
}

impl Extent {
    /// Returns the end of the value at the start of `inbox`; `None` if more bytes are needed. `limit` bounds its
    /// length.
    pub(super) fn end(&mut self, inbox: &[u8], limit: usize) -> Result<Option<usize>, Violation> {
        self.wanted = 0;
        let mut missing_values = self.missing_values.unwrap_or(1);
        while missing_values > 0 {
            let rest = inbox.get(self.at..).unwrap_or_default();
            let Some(piece) = Piece::parse(rest)? else { break };
            // Every value takes at least one byte, so that counts are bounded by the limit, too.
            let end = self.at.saturating_add(piece.length);
            let min = end.saturating_add(missing_values - 1).saturating_add(piece.values);
            if min > limit {
                return Err(Violation::message_too_large(min, limit));
            }
            if piece.length > rest.len() {
                self.wanted = end;
                break;
            }
            self.at = end;
            missing_values = missing_values - 1 + piece.values;
        }
        if missing_values > 0 {
            self.missing_values = Some(missing_values);
            return Ok(None);
        }
        let end = self.at;
        *self = Self::default();
        Ok(Some(end))
    }

    pub(super) fn bytes_needed(&self) -> usize {
        self.wanted
    }
}

/// Size of a token, given by its marker.
struct Piece {
    /// Bytes of the marker and its content: a number, a text, the count of an array.
    length: usize,
    /// Number of values that follow, for an array or a map.
    values: usize,
}

impl Piece {
    /// Parses the token at the start of `bytes`; `None` if its length is not known yet.
    fn parse(bytes: &[u8]) -> Result<Option<Self>, Violation> {
        let [marker, rest @ ..] = bytes else { return Ok(None) };
        let marker = *marker;
        let plain = |length| Some(Self { length, values: 0 });
        // A length of `width` bytes is followed by that many bytes and `more`.
        let behind = |width: usize, more: usize| {
            number(rest, width).and_then(|length| plain((1 + width + more).saturating_add(length)))
        };
        let counted = |width: usize, each: usize| {
            number(rest, width).map(|count| Self { length: 1 + width, values: count.saturating_mul(each) })
        };
        let fixed = usize::from(marker & 0x0f);
        Ok(match marker {
            0x00..=0x7f | 0xc0 | 0xc2 | 0xc3 | 0xe0..=0xff => plain(1),
            0x80..=0x8f => Some(Self { length: 1, values: 2 * fixed }),
            0x90..=0x9f => Some(Self { length: 1, values: fixed }),
            0xa0..=0xbf => plain(1 + usize::from(marker & 0x1f)),
            0xc1 => return Err(Violation::new("0xc1 is not MessagePack")),
            0xc4..=0xc6 => behind(1 << (marker - 0xc4), 0),
            0xc7..=0xc9 => behind(1 << (marker - 0xc7), 1),
            0xca => plain(5),
            0xcb => plain(9),
            0xcc..=0xcf => plain(1 + (1 << (marker - 0xcc))),
            0xd0..=0xd3 => plain(1 + (1 << (marker - 0xd0))),
            0xd4..=0xd8 => plain(2 + (1 << (marker - 0xd4))),
            0xd9..=0xdb => behind(1 << (marker - 0xd9), 0),
            0xdc | 0xdd => counted(2 << (marker - 0xdc), 1),
            0xde | 0xdf => counted(2 << (marker - 0xde), 2),
        })
    }
}

/// Reads a big-endian number of `width` bytes.
fn number(bytes: &[u8], width: usize) -> Option<usize> {
    let number = bytes.get(..width)?.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    Some(usize::try_from(number).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use polyrpc_core::testing::{damage, hex};
    use polyrpc_payload::msgpack::{Reader, Writer};

    use super::*;

    const LIMIT: usize = 1 << 20;

    fn end(bytes: &[u8]) -> Result<Option<usize>, Violation> {
        Extent::default().end(&BytesMut::from(bytes), LIMIT)
    }

    /// Like `end`, byte by byte.
    fn end_by_bytes(bytes: &[u8]) -> Result<Option<usize>, Violation> {
        let (mut extent, mut inbox) = (Extent::default(), BytesMut::new());
        for byte in bytes {
            inbox.extend_from_slice(&[*byte]);
            if let Some(end) = extent.end(&inbox, LIMIT)? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    #[test]
    fn value_extent_equals_that_of_the_reader() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.map(20);
        for length in [0, 1, 2, 4, 8, 15, 16, 31, 32, 255, 256, 65535, 65536] {
            writer.str(&"x".repeat(length));
            writer.bin(&vec![0; length]);
        }
        for number in [1, -1, 200, -200, 70_000, -70_000, i64::MAX] {
            writer.signed(number);
            writer.ext(7, &[0; 3]);
        }
        assert_eq!(end(&bytes), Ok(Some(bytes.len())));
        assert_eq!(end(&[&bytes[..], b"\x07"].concat()), Ok(Some(bytes.len())));
        assert_eq!(end(&bytes[..bytes.len() - 1]), Ok(None));
        assert_eq!(end_by_bytes(&bytes[..2000]), Ok(None));
        for small in
            ["93cb00000000000000 00caffffffffd8000102030405060708090a0b0c0d0e0f10", "dd00000001dc0001 9180"]
        {
            let small = hex(small);
            assert_eq!((end(&small), end_by_bytes(&small)), (Ok(Some(small.len())), Ok(Some(small.len()))));
        }
    }

    #[test]
    fn length_or_count_beyond_the_limit_is_rejected_at_once() {
        for bytes in ["dbffffffff", "c6ffffffff", "c97fffffff", "ddffffffff", "df7fffffff", "dbffffffff00"] {
            assert!(end(&hex(bytes)).is_err(), "{bytes}");
        }
        assert!(end(&[0xc1]).is_err());
        // Counts whose sum exceeds what could arrive.
        assert!(end(&hex("92 dd000f0000")).is_ok());
        assert!(end(&hex("92 dd000f0000 dd000f0000")).is_err());
        assert!(
            end(&[hex("92 dd000f0000").as_ref(), &[0xc0; 0xf0000], &hex("dd000f0000")].concat()).is_err()
        );
    }

    #[test]
    fn nesting_of_any_depth_is_followed() {
        let mut deep = vec![0x91; LIMIT - 1];
        assert_eq!(end(&deep), Ok(None));
        deep.push(0xc0);
        assert_eq!(end(&deep), Ok(Some(LIMIT)));
        deep.insert(0, 0x91);
        assert!(end(&deep).is_err());
    }

    #[test]
    fn damaged_value_never_needs_more_than_the_limit() {
        let bytes = hex("84 a141 cd03e8 a142 93c40101ca3fc00000d7ff0000001465536f00 a143 c0 a144 dc0001c3");
        damage(&bytes, |damaged| {
            let mut extent = Extent::default();
            let inbox = BytesMut::from(damaged);
            match extent.end(&inbox, LIMIT) {
                Ok(Some(end)) => {
                    let mut reader = Reader::new(damaged);
                    assert_eq!(reader.skip(), Ok(()));
                    assert_eq!(damaged.len() - reader.rest().len(), end);
                }
                Ok(None) => assert!(extent.bytes_needed() <= LIMIT && Reader::new(damaged).skip().is_err()),
                Err(_) => assert!(Reader::new(damaged).skip().is_err()),
            }
        });
    }
}
