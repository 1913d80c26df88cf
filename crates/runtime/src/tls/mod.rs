//! Certificates in use: loaded from their files, replaced while serving, counted. Not the sockets that they secure.

mod client;
mod ends;
mod explain;
mod files;
mod roles;
mod table;
mod tally;
mod validity;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

pub use client::HttpClient;
pub use ends::{Acceptor, Asker, Dialer};
pub(crate) use explain::explain;
pub use explain::explain_request;
pub use roles::VouchedRoles;
pub(crate) use tally::HandshakeTally;
pub use tally::TlsStatus;

use config::{ClientCertificates, Config, ConfigError, TlsConfig};
use table::{Ends, Files, Table};

/// What this process shows and demands, by direction. Clones share it, so that a reload reaches every member.
#[derive(Clone, Debug, Default)]
pub struct Certificates {
    clients: Option<Acceptor>,
    storage: Option<Dialer>,
    peers: Option<(Acceptor, Dialer)>,
    store: Option<Asker>,
    http: Option<(Acceptor, Asker)>,
    tables: Vec<Arc<Table>>,
}

impl Certificates {
    /// Reads the files that `[tls]` names.
    ///
    /// # Errors
    /// One line that names the configuration, table, key and file.
    pub fn load(config: &Config) -> Result<Certificates, ConfigError> {
        Certificates::load_tables(&config.tls).map_err(|what| config.error(&what))
    }

    fn load_tables(config: &TlsConfig) -> Result<Certificates, String> {
        let mut loaded = Certificates::default();
        if let Some(clients) = &config.clients {
            let files = Files {
                certificate: Some((clients.certificate_file.clone(), clients.key_file.clone())),
                ca: clients.ca_file.clone(),
                demanded: clients.client_certificates,
            };
            loaded.clients = Some(Acceptor(loaded.add("clients", files, Ends::Accepting)?));
        }
        if let Some(storage) = &config.storage {
            let files = Files::toward(&storage.ca_file, &storage.certificate_file, &storage.key_file);
            let table = loaded.add("storage", files, Ends::Dialling)?;
            let dialer = Dialer::new(table, storage.server_name.as_deref());
            loaded.storage = Some(dialer.map_err(|what| format!("[tls.storage] {what}"))?);
        }
        if let Some(peers) = &config.peers {
            let files = Files {
                certificate: Some((peers.certificate_file.clone(), peers.key_file.clone())),
                ca: Some(peers.ca_file.clone()),
                demanded: ClientCertificates::Required,
            };
            let table = loaded.add("peers", files, Ends::Both)?;
            let dialer = Dialer::new(Arc::clone(&table), peers.server_name.as_deref());
            loaded.peers = Some((Acceptor(table), dialer.map_err(|what| format!("[tls.peers] {what}"))?));
        }
        if let Some(store) = &config.store {
            let files = Files::toward(&store.ca_file, &store.certificate_file, &store.key_file);
            loaded.store = Some(Asker(loaded.add("store", files, Ends::Asking)?));
        }
        if let Some(http) = &config.http {
            let files = Files {
                certificate: Some((http.certificate_file.clone(), http.key_file.clone())),
                ca: Some(http.ca_file.clone()),
                demanded: ClientCertificates::None,
            };
            let table = loaded.add("http", files, Ends::Web)?;
            loaded.http = Some((Acceptor(Arc::clone(&table)), Asker(table)));
        }
        Ok(loaded)
    }

    fn add(&mut self, name: &'static str, files: Files, ends: Ends) -> Result<Arc<Table>, String> {
        let table = Arc::new(Table::load(name, files, ends)?);
        self.tables.push(Arc::clone(&table));
        Ok(table)
    }

    /// For the front door.
    pub fn clients(&self) -> Option<&Acceptor> {
        self.clients.as_ref()
    }

    /// Toward storage.
    pub fn storage(&self) -> Option<&Dialer> {
        self.storage.as_ref()
    }

    /// Toward the store of controllers.
    pub fn store(&self) -> Option<&Asker> {
        self.store.as_ref()
    }

    /// For controllers and admin endpoints, by who answers.
    pub fn http_acceptor(&self) -> Option<&Acceptor> {
        self.http.as_ref().map(|(acceptor, _)| acceptor)
    }

    /// For controllers and admin endpoints, by who asks.
    pub fn http_asker(&self) -> Option<&Asker> {
        self.http.as_ref().map(|(_, asker)| asker)
    }

    /// For links between members, by who accepts them.
    pub fn peers_acceptor(&self) -> Option<&Acceptor> {
        self.peers.as_ref().map(|(acceptor, _)| acceptor)
    }

    /// For links between members, by who dials them.
    pub fn peers_dialer(&self) -> Option<&Dialer> {
        self.peers.as_ref().map(|(_, dialer)| dialer)
    }

    /// Reads all files again, for connections that are made from now on. A table with anything wrong keeps what it has.
    ///
    /// # Errors
    /// What is wrong, one line for every table that is kept.
    pub fn reload(&self) -> Result<(), Vec<String>> {
        let wrong: Vec<String> = self.tables.iter().filter_map(|table| table.reload().err()).collect();
        for what in &wrong {
            tracing::error!("the certificates in use stay: {what}");
        }
        if wrong.is_empty() && !self.tables.is_empty() {
            tracing::info!("certificates reloaded");
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// One for every table of the configuration.
    pub fn status(&self) -> Vec<TlsStatus> {
        self.tables.iter().map(|table| table.tally.status()).collect()
    }
}

/// The one implementation of the algorithms in this process.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
