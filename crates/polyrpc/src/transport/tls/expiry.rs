//! Expiry of certificates, so that an operator notices it before clients do.

use std::time::{SystemTime, UNIX_EPOCH};

use polyrpc_payload::calendar::{DAY, days};

use super::TARGET;
use super::pem::Pem;

/// Logs a warning if a certificate that is about to be used has expired.
pub(super) fn log_if_expired(certificate: &[u8], from: &Pem) {
    if let Some(not_after) = expired_since(certificate, SystemTime::now()) {
        tracing::warn!(target: TARGET, %from, %not_after, "the certificate has expired: peers will reject it");
    }
}

/// Returns when it expired, if it has.
fn expired_since(certificate: &[u8], now: SystemTime) -> Option<String> {
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let end = not_after(certificate)?;
    (end.seconds < i64::try_from(now).unwrap_or(i64::MAX)).then_some(end.text)
}

/// Expiry time of a certificate.
#[derive(Debug, PartialEq, Eq)]
struct End {
    /// Seconds since 1970.
    seconds: i64,
    /// `2024-01-31 23:59:59 UTC`
    text: String,
}

/// Reads it from a certificate (RFC 5280, section 4.1); `None` if it cannot be found.
fn not_after(certificate: &[u8]) -> Option<End> {
    let (SEQUENCE, certificate, _) = element(certificate)? else { return None };
    let (SEQUENCE, mut signed, _) = element(certificate)? else { return None };
    // The version field is missing in X.509 v1.
    if let (VERSION, _, rest) = element(signed)? {
        signed = rest;
    }
    // Serial number, algorithm, issuer.
    for _ in 0..3 {
        (_, _, signed) = element(signed)?;
    }
    let (SEQUENCE, validity, _) = element(signed)? else { return None };
    let (_, _, validity) = element(validity)?;
    let (tag, time, _) = element(validity)?;
    parse_time(tag, std::str::from_utf8(time).ok()?)
}

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Parses the first DER element: its tag, its content, and the rest.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk::<2>()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (inner, rest) = rest.split_at_checked(length)?;
    Some((tag, inner, rest))
}

/// Parses `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`, the only forms that a certificate may have.
fn parse_time(tag: u8, text: &str) -> Option<End> {
    let digits =
        text.strip_suffix('Z').filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))?;
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => {
            let year: i64 = digits.get(..2)?.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, digits.get(2..)?)
        }
        (GENERALIZED_TIME, 14) => (digits.get(..4)?.parse().ok()?, digits.get(4..)?),
        _ => return None,
    };
    let number = |at: usize| rest.get(at..at + 2)?.parse::<i64>().ok();
    let (month, day) = (number(0)?, number(2)?);
    let (hour, minute, second) = (number(4)?, number(6)?, number(8)?);
    let seconds = days(year, month, day) * DAY + (hour * 60 + minute) * 60 + second;
    Some(End {
        seconds,
        text: format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC"),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn expiry_of_a_certificate_is_read() {
        let key = rcgen::KeyPair::generate().unwrap();
        for (year, seconds) in [(1999, 922_579_200), (2024, 1_711_584_000), (2051, 2_563_574_400)] {
            let mut params = rcgen::CertificateParams::new(vec!["h".to_owned()]).unwrap();
            params.not_before = rcgen::date_time_ymd(1990, 1, 1);
            params.not_after = rcgen::date_time_ymd(year, 3, 28);
            let end = not_after(params.self_signed(&key).unwrap().der()).unwrap();
            assert_eq!(end.text, format!("{year}-03-28 00:00:00 UTC"));
            assert_eq!(end.seconds, seconds, "{year}");
            let last = UNIX_EPOCH + Duration::from_secs(seconds as u64);
            let certificate = params.self_signed(&key).unwrap();
            assert_eq!(expired_since(certificate.der(), last), None);
            assert_eq!(expired_since(certificate.der(), last + Duration::from_secs(1)), Some(end.text));
        }
        for bytes in [&b""[..], b"\x30", b"\x30\x84\xff\xff\xff\xff", b"\x30\x03\x30\x01\x00"] {
            assert_eq!(not_after(bytes), None);
        }
    }
}
