//! Certificates as `openssl x509 -req` creates them without extensions.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, PublicKeyData};

use crate::authority::IssuedCertificate;

/// An X.509 v1 certificate (RFC 5280 §4.1): no extensions, so no names. Its signature is made up.
pub(crate) fn issue() -> IssuedCertificate {
    let key = KeyPair::generate().unwrap();
    let algorithm = der(0x30, &[b"\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02"]);
    let (serial, nobody, signature) = (der(2, &[&[1]]), der(0x30, &[]), der(3, &[&[0; 9]]));
    let years = der(0x30, &[&der(0x17, &[b"200101000000Z"]), &der(0x17, &[b"400101000000Z"])]);
    let public = key.subject_public_key_info();
    let body = der(0x30, &[&serial, &algorithm, &nobody, &years, &nobody, &public]);
    let certificate = STANDARD.encode(der(0x30, &[&body, &algorithm, &signature]));
    let certificate = format!("-----BEGIN CERTIFICATE-----\n{certificate}\n-----END CERTIFICATE-----\n");
    IssuedCertificate { certificate, key: key.serialize_pem() }
}

fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = u8::try_from(content.len()).unwrap();
    let head = if length < 128 { vec![tag, length] } else { vec![tag, 0x81, length] };
    [head, content].concat()
}
