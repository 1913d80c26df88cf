//! `[tls.clients]`, `[tls.storage]` and `[tls.peers]`: which files secure which direction. Not what is in them.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// `[tls]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsConfig {
    pub clients: Option<ClientsTls>,
    pub storage: Option<StorageTls>,
    pub peers: Option<PeersTls>,
}

/// `[tls.clients]`: the front door.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientsTls {
    /// The router's certificate, then those of the CAs between it and the root. Paths are relative to the directory of
    /// the configuration file.
    pub certificate_file: PathBuf,
    pub key_file: PathBuf,
    /// Who signs the certificates of clients.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    #[serde(default)]
    pub client_certificates: ClientCertificates,
}

/// `[tls.storage]`: from shims to the storage servers with a `rediss://` URL.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorageTls {
    /// Who signs the certificates of the servers.
    pub ca_file: PathBuf,
    /// A certificate for servers that want one, with its key.
    #[serde(default)]
    pub certificate_file: Option<PathBuf>,
    #[serde(default)]
    pub key_file: Option<PathBuf>,
    /// What the certificates of the servers are for, where that is not the host of the URL.
    #[serde(default)]
    pub server_name: Option<String>,
}

/// `[tls.peers]`: between members, each of which shows a certificate and verifies that of the other.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeersTls {
    pub certificate_file: PathBuf,
    pub key_file: PathBuf,
    /// Who signs the certificates of members, and of nobody else.
    pub ca_file: PathBuf,
    /// What the certificates of all members are for, where that is not the address at which each listens.
    #[serde(default)]
    pub server_name: Option<String>,
}

/// Whether clients show certificates of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientCertificates {
    #[default]
    None,
    /// One that is shown must be good.
    Optional,
    Required,
}

impl TlsConfig {
    /// Makes every path absolute or relative to the working directory.
    pub(super) fn resolve(&mut self, directory: &Path) {
        let mut files: Vec<&mut PathBuf> = Vec::new();
        if let Some(clients) = &mut self.clients {
            files.extend([&mut clients.certificate_file, &mut clients.key_file]);
            files.extend(&mut clients.ca_file);
        }
        if let Some(storage) = &mut self.storage {
            files.push(&mut storage.ca_file);
            files.extend(storage.certificate_file.iter_mut().chain(&mut storage.key_file));
        }
        if let Some(peers) = &mut self.peers {
            files.extend([&mut peers.certificate_file, &mut peers.key_file, &mut peers.ca_file]);
        }
        files.into_iter().for_each(|file| *file = directory.join(&*file));
    }

    /// What must hold between the fields, apart from what the files hold.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(storage) = &self.storage
            && storage.certificate_file.is_some() != storage.key_file.is_some()
        {
            return Err("[tls.storage]: certificate_file and key_file: give both or neither".to_owned());
        }
        let Some(clients) = &self.clients else { return Ok(()) };
        match (clients.client_certificates, &clients.ca_file) {
            (ClientCertificates::None, Some(_)) => Err(
                "[tls.clients] ca_file is for the certificates of clients, and client_certificates is \"none\"; write \
                 client_certificates = \"required\" or \"optional\", or remove ca_file"
                    .to_owned(),
            ),
            (ClientCertificates::Optional | ClientCertificates::Required, None) => Err(
                "[tls.clients] ca_file is missing: without it no client certificate can be verified; name the CA's \
                 certificate, or write client_certificates = \"none\""
                    .to_owned(),
            ),
            _ => Ok(()),
        }
    }
}
