//! `[tls.clients]`, `[tls.storage]`, `[tls.peers]`, `[tls.store]` and `[tls.http]`: which files secure which direction. Not what
//! is in them.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// `[tls]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsConfig {
    pub clients: Option<ClientsTls>,
    pub storage: Option<StorageTls>,
    pub peers: Option<PeersTls>,
    pub store: Option<StoreTls>,
    pub http: Option<HttpTls>,
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

/// `[tls.store]`: from controllers to the servers of an etcd with an `etcds://` URL. Their certificates are for the hosts in it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreTls {
    /// Who signs the certificates of the servers.
    pub ca_file: PathBuf,
    /// A certificate for servers that want one, with its key.
    #[serde(default)]
    pub certificate_file: Option<PathBuf>,
    #[serde(default)]
    pub key_file: Option<PathBuf>,
}

/// `[tls.http]`: whoever asks controllers and admin endpoints, members and this program among them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpTls {
    /// For the addresses in `listen` of controllers and in `admin`, then those of the CAs between it and the root.
    pub certificate_file: PathBuf,
    pub key_file: PathBuf,
    /// Who signs these certificates, for those who ask.
    pub ca_file: PathBuf,
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
        if let Some(store) = &mut self.store {
            files.push(&mut store.ca_file);
            files.extend(store.certificate_file.iter_mut().chain(&mut store.key_file));
        }
        if let Some(peers) = &mut self.peers {
            files.extend([&mut peers.certificate_file, &mut peers.key_file, &mut peers.ca_file]);
        }
        if let Some(http) = &mut self.http {
            files.extend([&mut http.certificate_file, &mut http.key_file, &mut http.ca_file]);
        }
        files.into_iter().for_each(|file| *file = directory.join(&*file));
    }

    /// What must hold between the fields, apart from what the files hold.
    pub(super) fn check(&self) -> Result<(), String> {
        let storage = self.storage.as_ref().map(|tls| ("storage", &tls.certificate_file, &tls.key_file));
        let store = self.store.as_ref().map(|tls| ("store", &tls.certificate_file, &tls.key_file));
        for (table, certificate, key) in storage.into_iter().chain(store) {
            if certificate.is_some() != key.is_some() {
                return Err(format!("[tls.{table}]: certificate_file and key_file: give both or neither"));
            }
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
