//! A connection that goes on in HTTP/2 (RFC 7540 §3.2; RFC 9113 keeps it for those who still ask).

use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};
use bytes::Bytes;

use crate::http::h2;

/// What the fields of a request say of an upgrade, gathered field by field.
#[derive(Debug, Default)]
pub(super) struct UpgradeFields {
    h2c: bool,
    settings: Option<Bytes>,
    /// The settings stand there twice, which makes them none.
    twice: bool,
}

impl UpgradeFields {
    /// Takes an `Upgrade`.
    pub(super) fn upgrade(&mut self, mut protocols: impl Iterator<Item: AsRef<[u8]>>) {
        self.h2c |= protocols.any(|protocol| protocol.as_ref().eq_ignore_ascii_case(b"h2c"));
    }

    /// Takes an `HTTP2-Settings`.
    pub(super) fn settings(&mut self, value: Bytes) {
        self.twice |= self.settings.replace(value).is_some();
    }

    /// The client's settings, if all is there that an upgrade wants; `options` are those of `Connection`.
    pub(super) fn granted(&self, options: &[String]) -> Option<Box<h2::Settings>> {
        let named = |name| options.iter().any(|option| option == name);
        let settings = self.settings.as_ref().filter(|_| self.h2c && !self.twice)?;
        if !named("upgrade") || !named("http2-settings") {
            return None;
        }
        h2::Settings::read(&LENIENT.decode(settings).ok()?).map(Box::new)
    }
}

/// base64url, whose padding is left out but by some.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What is answered to the request in HTTP/1.
pub(super) const SWITCHING: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
