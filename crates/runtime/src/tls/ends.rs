//! The two ends of secured connections as the reactor uses them: who accepts and who dials. Not their files.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};

use super::table::{Ends, Files, Table};
use super::tally::HandshakeTally;

/// Makes the session of every connection that a listener accepts.
#[derive(Clone, Debug)]
pub struct Acceptor(pub(super) Arc<Table>);

impl Acceptor {
    pub(crate) fn tally(&self) -> &Arc<HandshakeTally> {
        &self.0.tally
    }

    pub(crate) fn session(&self) -> io::Result<Connection> {
        ServerConnection::new(self.config()?).map(Connection::Server).map_err(io::Error::other)
    }

    /// What an accepted connection is secured with.
    pub(crate) fn config(&self) -> io::Result<Arc<ServerConfig>> {
        self.0.server().ok_or(io::ErrorKind::Unsupported.into())
    }
}

/// Makes the session of every connection that is dialled.
#[derive(Clone, Debug)]
pub struct Dialer {
    pub(super) table: Arc<Table>,
    /// What the certificate of the other end must be for; `None` for the address that is dialled.
    pub(super) name: Option<ServerName<'static>>,
}

/// Secures the requests of an HTTP client, with the certificates of now.
#[derive(Clone, Debug)]
pub struct Asker(pub(super) Arc<Table>);

impl Asker {
    /// Asks servers whose certificates are signed by those in the file.
    ///
    /// # Errors
    /// What is wrong with the file, in one line.
    pub fn trusting(ca_file: &Path) -> Result<Asker, String> {
        let files = Files::toward(ca_file, &None, &None);
        Ok(Asker(Arc::new(Table::load("http", files, Ends::Asking)?)))
    }

    /// What a client is made with.
    pub(super) fn certificates(&self) -> Option<Arc<ureq::tls::TlsConfig>> {
        self.0.asking()
    }
}

impl Dialer {
    /// To servers whose certificate is for `host` and signed by those in the file.
    ///
    /// # Errors
    /// What is wrong with the file or the name, in one line.
    pub fn trusting(ca_file: &Path, host: &str) -> Result<Dialer, String> {
        let files = Files::toward(ca_file, &None, &None);
        Dialer::new(Arc::new(Table::load("storage", files, Ends::Dialling)?), Some(host))
    }

    pub(super) fn new(table: Arc<Table>, name: Option<&str>) -> Result<Dialer, String> {
        let name = name.map(|name| {
            let parsed = ServerName::try_from(name.to_owned());
            parsed.map_err(|_| format!("server_name = {name:?}: write a DNS name or an IP address"))
        });
        Ok(Dialer { table, name: name.transpose()? })
    }

    /// The same for servers called `host`, unless the configuration names another.
    pub fn or_named(&self, host: &str) -> Dialer {
        let host = || ServerName::try_from(host.to_owned()).ok();
        Dialer { table: Arc::clone(&self.table), name: self.name.clone().or_else(host) }
    }

    pub(crate) fn tally(&self) -> &Arc<HandshakeTally> {
        &self.table.tally
    }

    pub(crate) fn session(&self, ip: IpAddr) -> io::Result<Connection> {
        let config = self.table.client().ok_or(io::ErrorKind::Unsupported)?;
        let name = self.name.clone().unwrap_or_else(|| ServerName::IpAddress(ip.into()));
        ClientConnection::new(config, name).map(Connection::Client).map_err(io::Error::other)
    }
}
