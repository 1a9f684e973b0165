//! Credentials in the rpcx of 2016: they are part of the method's name.
//!
//! `Arith.Mul`, a unit separator, the credential, another separator, and the authorization type (rpcx v1.2.0
//! `authorization.go`); or all three as a gob struct (v1.1.0). As a credential it has the form of HTTP's
//! `Authorization`: the type, a blank, and the rest.

use bytes::Bytes;
use serde::Deserialize;

use polyrpc_core::Status;
use polyrpc_payload::gob;

/// A method's name and the credential extracted from it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SignedName {
    pub(super) method: Bytes,
    pub(super) credential: Option<Bytes>,
}

impl SignedName {
    /// Splits a name. A name without three parts contains no credential.
    pub(super) fn read(name: Bytes) -> Self {
        let signed = match name[..] {
            [_, 0x7f | 0xf8.., ..] => Self::read_gob(&name),
            _ => Self::read_parts(&name),
        };
        signed.unwrap_or(Self { method: name, credential: None })
    }

    fn read_parts(name: &Bytes) -> Option<Self> {
        let mut parts = name.split(|byte| *byte == SEPARATOR);
        let (method, authorization, tag) = (parts.next()?, parts.next()?, parts.next()?);
        let credential = match tag {
            [] => name.slice_ref(authorization),
            tag => [tag, b" ", authorization].concat().into(),
        };
        parts.next().is_none().then(|| Self { method: name.slice_ref(method), credential: Some(credential) })
    }

    /// The stream starts with a type definition. Its number is below -63, so that its first byte cannot occur in a
    /// name.
    fn read_gob(name: &[u8]) -> Option<Self> {
        let AuthorizedName { authorization, service_method, tag } = gob::from_slice(name).ok()?;
        let credential = if tag.is_empty() { authorization } else { format!("{tag} {authorization}") };
        Some(Self { method: service_method.into(), credential: Some(credential.into()) })
    }
}

/// v1.1.0's struct in place of a name.
#[derive(Default, Deserialize)]
#[serde(rename = "AuthorizationAndServiceMethod", rename_all = "PascalCase", default)]
struct AuthorizedName {
    authorization: String,
    service_method: String,
    tag: String,
}

/// Appends a credential to a method's name.
///
/// # Errors
///
/// If the credential cannot be represented there.
pub(super) fn sign(name: &mut String, credential: &[u8]) -> Result<(), Status> {
    let credential = std::str::from_utf8(credential)
        .ok()
        .filter(|credential| !credential.as_bytes().contains(&SEPARATOR))
        .ok_or_else(unsupported_credential)?;
    let (tag, authorization) = credential.split_once(' ').unwrap_or(("", credential));
    for part in [authorization, tag] {
        name.push(char::from(SEPARATOR));
        name.push_str(part);
    }
    Ok(())
}

/// ASCII's unit separator.
pub(super) const SEPARATOR: u8 = 0x1f;

#[cold]
fn unsupported_credential() -> Status {
    Status::invalid_argument("a credential of net/rpc is a text without unit separators")
}

#[cfg(test)]
mod tests {
    use polyrpc_core::testing::{damage, hex};

    use super::*;

    #[test]
    fn credential_follows_the_method_name() {
        for (credential, name) in [
            ("Bearer 0b79_ABC", "Arith.Mul\x1f0b79_ABC\x1fBearer"),
            ("secret-token", "Arith.Mul\x1fsecret-token\x1f"),
            ("", "Arith.Mul\x1f\x1f"),
            ("Basic a b", "Arith.Mul\x1fa b\x1fBasic"),
        ] {
            let mut signed = "Arith.Mul".to_owned();
            sign(&mut signed, credential.as_bytes()).expect("a text");
            assert_eq!(signed, name);
            let read = SignedName::read(signed.into());
            assert_eq!((&read.method[..], read.credential), (&b"Arith.Mul"[..], Some(credential.into())));
        }
    }

    /// Encoded by Go's gob.
    #[test]
    fn name_and_credential_can_be_a_gob_struct() {
        for (name, credential) in [
            (
                "567f0301011d417574686f72697a6174696f6e416e64536572766963654d6574686f6401ff80000103010d41757468\
                 6f72697a6174696f6e010c00010d536572766963654d6574686f64010c000103546167010c00000020ff8001083062\
                 37395f414243010941726974682e4d756c010642656172657200",
                "Bearer 0b79_ABC",
            ),
            (
                "567f0301011d417574686f72697a6174696f6e416e64536572766963654d6574686f6401ff80000103010d41757468\
                 6f72697a6174696f6e010c00010d536572766963654d6574686f64010c000103546167010c0000001cff80010c7365\
                 637265742d746f6b656e010941726974682e4d756c00",
                "secret-token",
            ),
            // From a program that has written 70 other types before.
            (
                "59fe010b0301011d417574686f72697a6174696f6e416e64536572766963654d6574686f6401fe010c000103010d41\
                 7574686f72697a6174696f6e010c00010d536572766963654d6574686f64010c000103546167010c0000001dfe010c\
                 010c7365637265742d746f6b656e010941726974682e4d756c00",
                "secret-token",
            ),
        ] {
            let name = hex(name);
            let signed = SignedName { method: "Arith.Mul".into(), credential: Some(credential.into()) };
            assert_eq!(SignedName::read(name.clone()), signed);
            damage(&name, |name| {
                SignedName::read(Bytes::copy_from_slice(name));
            });
        }
    }

    #[test]
    fn name_without_three_parts_has_no_credential() {
        for name in ["Arith.Mul", "", "Arith.Mul\x1fonly", "a\x1fb\x1fc\x1fd", "V\x7f", "\x03\x7f\x03\x01"] {
            assert_eq!(SignedName::read(name.into()), SignedName { method: name.into(), credential: None });
        }
    }

    #[test]
    fn credential_with_a_separator_or_invalid_utf8_is_rejected() {
        for credential in [&b"a\x1fb"[..], b"\xff"] {
            assert!(sign(&mut String::new(), credential).is_err());
        }
    }
}
