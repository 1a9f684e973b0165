//! Certificates for tests.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};

/// A certificate authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
#[derive(Clone)]
pub(crate) struct IssuedCertificate {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate for hosts, by name or address, and for URIs.
    pub(crate) fn issue(&self, names: &[&str]) -> IssuedCertificate {
        self.sign(params(names))
    }

    fn sign(&self, params: CertificateParams) -> IssuedCertificate {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        IssuedCertificate { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

fn params(names: &[&str]) -> CertificateParams {
    let (uris, hosts): (Vec<_>, Vec<_>) = names.iter().copied().partition(|name| name.contains("://"));
    let mut params =
        CertificateParams::new(hosts.into_iter().map(str::to_owned).collect::<Vec<_>>()).unwrap();
    let uris = uris.into_iter().map(|uri| SanType::URI(uri.try_into().unwrap()));
    params.subject_alt_names.extend(uris);
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params
}
