use std::io;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, Error};

use super::TARGET;
use super::named::is_authority;
use crate::rate_limited::EventLimiter;

/// Converts a TLS error into one that explains what to do about it. A server's errors only appear in its log, so the
/// explanations are for clients.
pub(super) fn explain(error: &Error, handshaking: bool, is_client: bool) -> io::Error {
    if !is_client {
        return describe_for_log(error);
    }
    log_refusal(error);
    let words = match error {
        Error::InvalidMessage(_) if handshaking => "the server does not speak TLS".to_owned(),
        Error::InvalidCertificate(error) => certificate_text(error),
        Error::AlertReceived(alert) => alert_text(*alert),
        error => format!("TLS: {error}"),
    };
    io::Error::new(io::ErrorKind::InvalidData, words)
}

/// Converts an error for a server's log. Routine errors by port scanners and disconnecting clients become
/// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof), like the end of a connection: they need no action.
#[cold]
fn describe_for_log(error: &Error) -> io::Error {
    let (kind, words) = match error {
        Error::NoCertificatesPresented => {
            (io::ErrorKind::InvalidData, "the client sent no certificate".to_owned())
        }
        Error::InvalidCertificate(error) => {
            (io::ErrorKind::InvalidData, format!("the client's certificate was rejected: {error}"))
        }
        Error::AlertReceived(alert) if is_about_certificates(*alert) => {
            (io::ErrorKind::InvalidData, format!("the client rejected this server's certificate ({alert:?})"))
        }
        Error::AlertReceived(alert @ (AlertDescription::CloseNotify | AlertDescription::UserCanceled)) => {
            (io::ErrorKind::UnexpectedEof, format!("the client went away ({alert:?})"))
        }
        Error::AlertReceived(alert) => {
            (io::ErrorKind::InvalidData, format!("the client rejected the connection ({alert:?})"))
        }
        Error::InvalidMessage(_) => {
            (io::ErrorKind::UnexpectedEof, format!("the client does not speak TLS: {error}"))
        }
        error => (io::ErrorKind::InvalidData, error.to_string()),
    };
    io::Error::new(kind, words)
}

/// Error of a connection that was closed during the handshake.
pub(super) fn cut_off(received: usize) -> io::Error {
    let words = match received {
        0 => "the peer closed the connection instead of answering the TLS handshake; it may not speak TLS",
        _ => "the peer closed the connection in the middle of the TLS handshake",
    };
    io::Error::new(io::ErrorKind::UnexpectedEof, words)
}

/// Error of a connection that was closed without a close_notify: data may be missing.
pub(super) fn truncated() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended without TLS's close_notify")
}

/// Error of a peer that sends more than any handshake needs.
pub(super) fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the TLS handshake is too long")
}

/// Logs that a client's certificate, or its server's, was rejected: it must be renewed or replaced. A server's failures
/// are logged where the peer is known.
fn log_refusal(error: &Error) {
    static REFUSED: EventLimiter = EventLimiter::new(5, Duration::from_secs(60));
    let what = match error {
        Error::InvalidCertificate(_) => "the server's certificate was rejected",
        Error::AlertReceived(alert) if is_about_certificates(*alert) => {
            "the server rejected this client's certificate"
        }
        _ => return,
    };
    if let Some(suppressed) = REFUSED.allow() {
        tracing::warn!(target: TARGET, %error, suppressed, "{what}");
    }
}

fn is_about_certificates(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRequired
            | AlertDescription::UnknownCA
    )
}

fn certificate_text(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("the server's certificate has expired ({error})")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("the server's certificate is not valid yet ({error})")
        }
        CertificateError::UnknownIssuer => {
            "the server's certificate was issued by an authority that is not trusted".to_owned()
        }
        CertificateError::NotValidForName => "the server's certificate is for another name".to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let presented: Vec<_> = presented.iter().map(|name| strip_name_kind(name)).collect();
            match presented.is_empty() {
                true => format!("the server's certificate has no name, expected {}", name_text(expected)),
                false => format!(
                    "the server's certificate is for {}, not for {}",
                    presented.join(", "),
                    name_text(expected)
                ),
            }
        }
        error if is_authority(error) => {
            "the server's certificate is that of an authority (CA:TRUE), which is taken only if it is itself among those \
             trusted: name it (ca, --cacert), or make one without (openssl req -x509 -addext basicConstraints=CA:FALSE)"
                .to_owned()
        }
        error => format!("the server's certificate is not accepted: {error}"),
    }
}

/// rustls includes the kind of a name: `DnsName("a.example")`.
fn strip_name_kind(name: &str) -> &str {
    let inner = name.split_once('(').map_or(name, |(_, rest)| rest);
    inner.trim_end_matches(')').trim_matches('"')
}

fn name_text(name: &ServerName<'_>) -> String {
    name.to_str().into_owned()
}

fn alert_text(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => "the server requires a client certificate".to_owned(),
        AlertDescription::UnknownCA => {
            "the server does not trust the client certificate's authority".to_owned()
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown => {
            format!("the server rejected the client certificate ({alert:?})")
        }
        AlertDescription::NoApplicationProtocol => {
            "the server does not speak this protocol over TLS".to_owned()
        }
        AlertDescription::UnrecognisedName => "the server does not know the name it was asked for".to_owned(),
        alert => format!("the server rejected the TLS connection ({alert:?})"),
    }
}

#[cfg(test)]
mod tests {
    use rustls::{InvalidMessage, PeerIncompatible};

    use super::*;

    #[test]
    fn misconfigured_clients_are_distinguished_from_scanners() {
        let kind = |error| explain(&error, true, false).kind();
        for mistake in [
            Error::NoCertificatesPresented,
            Error::InvalidCertificate(CertificateError::UnknownIssuer),
            Error::AlertReceived(AlertDescription::UnknownCA),
            Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered),
        ] {
            assert_eq!(kind(mistake), io::ErrorKind::InvalidData);
        }
        for usual in [
            Error::InvalidMessage(InvalidMessage::InvalidContentType),
            Error::AlertReceived(AlertDescription::CloseNotify),
            Error::AlertReceived(AlertDescription::UserCanceled),
        ] {
            assert_eq!(kind(usual), io::ErrorKind::UnexpectedEof);
        }
        let words = explain(&Error::NoCertificatesPresented, true, false).to_string();
        assert_eq!(words, "the client sent no certificate");
    }
}
