//! A CA in memory and what it signs, as files of one test. Not what they are used for.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair, SanType,
};

/// What a certificate without a `CommonName` is called.
pub(crate) const NAMELESS: &str = "nameless";

pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: PathBuf,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("dc-ca-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let mut parameters = CertificateParams::new(Vec::<String>::new()).unwrap();
        // OpenSSL takes a certificate whose issuer has its own name for self-signed.
        parameters.distinguished_name.push(DnType::CommonName, format!("CA {number}"));
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(directory.join("ca.crt"), issuer.pem()).unwrap();
        Authority { issuer, directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// `NAME.crt` and `NAME.key` for localhost; NAME is its `CommonName`, if it is not [`NAMELESS`].
    pub(crate) fn sign(&self, name: &str) {
        self.sign_until(name, 2099);
    }

    pub(crate) fn sign_until(&self, name: &str, year: i32) {
        self.sign_with(name, year, &[]);
    }

    /// As `sign_until`, with addresses and URIs among the names.
    pub(crate) fn sign_with(&self, name: &str, year: i32, more: &[&str]) {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut parameters = CertificateParams::new(names).unwrap();
        let more = more.iter().map(|name| match name.parse() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::URI((*name).try_into().unwrap()),
        });
        parameters.subject_alt_names.extend(more);
        parameters.distinguished_name = DistinguishedName::new();
        if name != NAMELESS {
            parameters.distinguished_name.push(DnType::CommonName, name);
        }
        parameters.not_before = rcgen::date_time_ymd(2000, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.path(&format!("{name}.crt")), certificate.pem()).unwrap();
        let key_file = self.path(&format!("{name}.key"));
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        std::fs::set_permissions(&key_file, PermissionsExt::from_mode(0o600)).unwrap();
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.directory));
    }
}
