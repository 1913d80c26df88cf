//! Certificates and keys from PEM files, with a sentence for whoever gave the wrong one. Not what they are for.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::validity::validity;
use config::unreadable;

/// A certificate is warned of when it ends this soon.
const EXPIRY_WARNING_S: i64 = 7 * 24 * 3600;
/// Readers other than a private key's owner: each of them can pass for it.
const FOREIGN_READERS: u32 = 0o044;

/// A chain and its key.
pub(super) type TlsIdentity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

pub(super) struct Chain {
    pub(super) certificates: Vec<CertificateDer<'static>>,
    /// Seconds since 1970 at which the first of them to end does.
    pub(super) not_after_s: i64,
}

pub(super) fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

pub(super) fn read(at: &str, path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path)
        .map_err(|error| format!("{at} = {:?}: {}", path.display().to_string(), unreadable(&error)))
}

pub(super) fn certificates(at: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = read(at, path)?;
    let file = path.display().to_string();
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(format!(
            "{at} = {file:?}: there is no certificate (-----BEGIN CERTIFICATE-----) in this file"
        )),
        Err(error) => Err(format!("{at} = {file:?}: this is no PEM file: {error}")),
    }
}

/// A chain, the member's own certificate first. Expiry is warned of: an operator may have no other yet.
pub(super) fn chain(at: &str, path: &Path) -> Result<Chain, String> {
    let certificates = certificates(at, path)?;
    let file = path.display().to_string();
    let validities: Option<Vec<(i64, i64)>> = certificates.iter().map(|der| validity(der)).collect();
    let Some(validities) = validities else {
        return Err(format!("{at} = {file:?}: a certificate in this file cannot be read"));
    };
    let not_before_s = validities.iter().map(|(from, _)| *from).max().unwrap_or(i64::MIN);
    let not_after_s = validities.iter().map(|(_, until)| *until).min().unwrap_or(i64::MAX);
    let now_s = now_s();
    if now_s >= not_after_s {
        let days = (now_s - not_after_s) / (24 * 3600);
        tracing::warn!("{at} = {file:?}: the certificate has expired {days} days ago; others will refuse it");
    } else if now_s < not_before_s {
        tracing::warn!("{at} = {file:?}: the certificate is not valid yet; others will refuse it");
    } else if not_after_s - now_s < EXPIRY_WARNING_S {
        let hours = (not_after_s - now_s) / 3600;
        tracing::warn!("{at} = {file:?}: the certificate expires in {hours} hours");
    }
    Ok(Chain { certificates, not_after_s })
}

pub(super) fn key(at: &str, path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let pem = read(at, path)?;
    let file = path.display().to_string();
    if std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & FOREIGN_READERS != 0) {
        tracing::warn!("{at} = {file:?}: others than its owner can read this private key; chmod 600 it");
    }
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| {
        format!(
            "{at} = {file:?}: there is no private key without a passphrase (-----BEGIN PRIVATE KEY-----) in this \
             file: {error}"
        )
    })
}

pub(super) fn roots(at: &str, path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(at, path)? {
        roots.add(certificate).map_err(|error| {
            format!("{at} = {:?}: a certificate cannot be used as a CA: {error}", path.display().to_string())
        })?;
    }
    Ok(roots)
}
