//! How the rpcx of 2016 says who calls: within the name of the method.
//!
//! `Arith.Mul`, a unit separator, what was authorized, another one, and what kind of authorization it is (rpcx v1.1
//! `plugin/auth.go`). As a credential it is what HTTP's `Authorization` has: the kind, a blank, and the rest.

use bytes::Bytes;

use crate::Status;

/// A name with its credential taken out.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Signed {
    pub(super) method: Bytes,
    pub(super) credential: Option<Bytes>,
}

impl Signed {
    /// Parts a name. One without three parts is a name alone.
    pub(super) fn read(name: Bytes) -> Self {
        let mut parts = name.split(|byte| *byte == SEPARATOR);
        let (Some(method), Some(authorization), Some(tag), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Self { method: name, credential: None };
        };
        let credential = match tag {
            [] => name.slice_ref(authorization),
            tag => [tag, b" ", authorization].concat().into(),
        };
        Self { method: name.slice_ref(method), credential: Some(credential) }
    }
}

/// Puts a credential behind the name of a method.
///
/// # Errors
///
/// When it is none that can stand there.
pub(super) fn sign(name: &mut String, credential: &[u8]) -> Result<(), Status> {
    let credential = std::str::from_utf8(credential)
        .ok()
        .filter(|credential| !credential.as_bytes().contains(&SEPARATOR))
        .ok_or_else(unspeakable)?;
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
fn unspeakable() -> Status {
    Status::invalid_argument("a credential of net/rpc is a text without unit separators")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_stands_behind_the_name() {
        for (credential, name) in [
            ("Bearer 0b79_ABC", "Arith.Mul\x1f0b79_ABC\x1fBearer"),
            ("secret-token", "Arith.Mul\x1fsecret-token\x1f"),
            ("", "Arith.Mul\x1f\x1f"),
            ("Basic a b", "Arith.Mul\x1fa b\x1fBasic"),
        ] {
            let mut signed = "Arith.Mul".to_owned();
            sign(&mut signed, credential.as_bytes()).expect("a text");
            assert_eq!(signed, name);
            let read = Signed::read(signed.into());
            assert_eq!((&read.method[..], read.credential), (&b"Arith.Mul"[..], Some(credential.into())));
        }
    }

    #[test]
    fn a_name_without_three_parts_is_a_name() {
        for name in ["Arith.Mul", "", "Arith.Mul\x1fonly", "a\x1fb\x1fc\x1fd"] {
            assert_eq!(Signed::read(name.into()), Signed { method: name.into(), credential: None });
        }
    }

    #[test]
    fn what_would_be_read_as_more_parts_is_refused() {
        for credential in [&b"a\x1fb"[..], b"\xff"] {
            assert!(sign(&mut String::new(), credential).is_err());
        }
    }
}
