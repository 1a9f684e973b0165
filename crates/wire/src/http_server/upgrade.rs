//! Upgrade of a connection to HTTP/2 (RFC 7540 §3.2; RFC 9113 deprecates it, but some clients still use it).

use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};
use bytes::Bytes;

use crate::http::h2;

/// The fields of a request that concern the upgrade.
#[derive(Debug, Default)]
pub(super) struct UpgradeFields {
    h2c: bool,
    settings: Option<Bytes>,
    /// The settings appear twice, which makes them invalid.
    twice: bool,
}

impl UpgradeFields {
    /// Stores an `Upgrade` field.
    pub(super) fn upgrade(&mut self, mut protocols: impl Iterator<Item: AsRef<[u8]>>) {
        self.h2c |= protocols.any(|protocol| protocol.as_ref().eq_ignore_ascii_case(b"h2c"));
    }

    /// Stores an `HTTP2-Settings` field.
    pub(super) fn settings(&mut self, value: Bytes) {
        self.twice |= self.settings.replace(value).is_some();
    }

    /// Returns the client's settings if the request meets all conditions of an upgrade; `options` are those of
    /// `Connection`.
    pub(super) fn parse_settings(&self, options: &[String]) -> Option<Box<h2::Settings>> {
        let named = |name| options.iter().any(|option| option == name);
        let settings = self.settings.as_ref().filter(|_| self.h2c && !self.twice)?;
        if !named("upgrade") || !named("http2-settings") {
            return None;
        }
        h2::Settings::read(&LENIENT.decode(settings).ok()?).map(Box::new)
    }
}

/// base64url; some clients add padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The HTTP/1 response to the request.
pub(super) const SWITCHING: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
