//! Interprets a header list as the headers of a request or response, or as trailers, and checks that HTTP/2 allows it
//! (RFC 9113, §8).

/// A validated header list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ParsedHeaders {
    pub(super) kind: Kind,
    /// Value of `content-length`.
    pub(super) length: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    /// A response with this status.
    Response(u16),
    Trailers,
}

/// The list is malformed (§8.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MalformedHeaders;

/// Pseudo-header fields of a list, each of which occurs at most once.
#[derive(Default)]
struct Pseudo<'f> {
    method: Option<&'f [u8]>,
    scheme: Option<&'f [u8]>,
    path: Option<&'f [u8]>,
    authority: Option<&'f [u8]>,
    status: Option<&'f [u8]>,
}

/// Validates and classifies a header list, whose bytes are [clean](is_clean).
pub(super) fn classify<'f>(
    fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
) -> Result<ParsedHeaders, MalformedHeaders> {
    let (mut pseudo, mut regular, mut length) = (Pseudo::default(), false, None);
    for (name, value) in fields {
        if name.first() == Some(&b':') {
            if regular {
                return Err(MalformedHeaders);
            }
            pseudo.add(name, value)?;
            continue;
        }
        regular = true;
        if !is_name(name) || belongs_to_connection(name, value) {
            return Err(MalformedHeaders);
        }
        if name == b"content-length" {
            let value = number(value).ok_or(MalformedHeaders)?;
            if length.replace(value).is_some_and(|known| known != value) {
                return Err(MalformedHeaders);
            }
        }
    }
    Ok(ParsedHeaders { kind: pseudo.kind()?, length })
}

impl<'f> Pseudo<'f> {
    fn add(&mut self, name: &[u8], value: &'f [u8]) -> Result<(), MalformedHeaders> {
        let slot = match name {
            b":method" => &mut self.method,
            b":scheme" => &mut self.scheme,
            b":path" => &mut self.path,
            b":authority" => &mut self.authority,
            b":status" => &mut self.status,
            _ => return Err(MalformedHeaders),
        };
        if slot.replace(value).is_some() { Err(MalformedHeaders) } else { Ok(()) }
    }

    fn kind(&self) -> Result<Kind, MalformedHeaders> {
        let request = self.method.or(self.scheme).or(self.path).or(self.authority).is_some();
        match (request, self.status) {
            (false, None) => Ok(Kind::Trailers),
            (false, Some(status)) => self.response(status),
            (true, None) => self.request(),
            (true, Some(_)) => Err(MalformedHeaders),
        }
    }

    /// CONNECT has neither scheme nor path (§8.5); every other request has both.
    fn request(&self) -> Result<Kind, MalformedHeaders> {
        let whole = match self.method {
            None => false,
            Some(b"CONNECT") => self.scheme.is_none() && self.path.is_none() && self.authority.is_some(),
            Some(_) => self.scheme.is_some() && self.path.is_some_and(|path| !path.is_empty()),
        };
        if whole { Ok(Kind::Request) } else { Err(MalformedHeaders) }
    }

    fn response(&self, status: &[u8]) -> Result<Kind, MalformedHeaders> {
        match number(status) {
            Some(status @ 100..=999) if status != 101 => Ok(Kind::Response(status as u16)),
            _ => Err(MalformedHeaders),
        }
    }
}

/// Whether `name` is a token in lower case (§8.2.1).
fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| IS_NAME_BYTE[usize::from(*byte)])
}

/// Whether a name may contain the byte.
static IS_NAME_BYTE: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = 0x21_u8;
    while byte <= 0x7e {
        allowed[byte as usize] = !byte.is_ascii_uppercase() && byte != b':';
        byte += 1;
    }
    allowed
};

/// Whether none of the bytes is forbidden in a value; names may contain even fewer. Leading and trailing whitespace is
/// accepted, against §8.2.1: Go's servers leave it at the end of a `grpc-message`, and no other peer rejects it.
pub(super) fn is_clean(bytes: &[u8]) -> bool {
    // Without an early end, so that vector instructions check many bytes at once.
    let forbidden = |byte: u8| u8::from(byte == 0) | u8::from(byte == b'\r') | u8::from(byte == b'\n');
    bytes.iter().fold(0, |found, byte| found | forbidden(*byte)) == 0
}

/// Whether the field is specific to an HTTP/1.1 connection, for which HTTP/2 has its own means (§8.2.2).
fn belongs_to_connection(name: &[u8], value: &[u8]) -> bool {
    match name {
        b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding" | b"upgrade" => true,
        b"te" => value != b"trailers",
        _ => false,
    }
}

fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 19 {
        return None;
    }
    text.iter()
        .try_fold(0, |value, digit| digit.is_ascii_digit().then(|| value * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_may_contain_the_bytes_that_the_rfc_allows() {
        for byte in 0..=255_u8 {
            let token = byte.is_ascii_graphic() && !byte.is_ascii_uppercase() && byte != b':';
            assert_eq!(is_name(&[b'a', byte, b'b']), token, "{byte:#x} in a name");
            // At every position of what vector instructions look at together, and behind it.
            for at in 0..70 {
                let mut value = [b'v'; 70];
                value[at] = byte;
                assert_eq!(is_clean(&value), !matches!(byte, 0 | b'\r' | b'\n'), "{byte:#x} at {at}");
            }
        }
        assert!(!is_name(b""));
        assert!(is_clean(b""));
    }
}
