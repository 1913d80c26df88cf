//! A client over TLS that knows which certificate it was shown. Not what it asks.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::Authority;

pub(crate) struct TlsClient(StreamOwned<ClientConnection, TcpStream>);

impl TlsClient {
    pub(crate) fn connect(authority: &Authority, port: u16) -> std::io::Result<TlsClient> {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(authority.path("ca.crt")).expect("the CA's certificate");
        roots.add(ca).expect("a CA");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = builder.expect("versions").with_root_certificates(roots).with_no_client_auth();
        let name = "localhost".try_into().expect("a name");
        let session = ClientConnection::new(Arc::new(config), name).expect("a session");
        let socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_read_timeout(Some(Duration::from_secs(120)))?;
        Ok(TlsClient(StreamOwned::new(session, socket)))
    }

    pub(crate) fn ping(&mut self) -> std::io::Result<()> {
        self.0.write_all(b"PING\r\n")?;
        let mut reply = [0; 7];
        self.0.read_exact(&mut reply)?;
        assert_eq!(&reply, b"+PONG\r\n");
        Ok(())
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).and_then(|()| self.0.flush()).expect("the router reads");
    }

    /// All that comes until close_notify; an error without that.
    pub(crate) fn rest(&mut self) -> std::io::Result<Vec<u8>> {
        let mut rest = Vec::new();
        let outcome = self.0.read_to_end(&mut rest);
        outcome.map_err(|error| {
            std::io::Error::new(error.kind(), format!("{error} after {} bytes", rest.len()))
        })?;
        Ok(rest)
    }

    /// The server's own.
    pub(crate) fn certificate(&self) -> Vec<u8> {
        let chain = self.0.conn.peer_certificates().expect("a handshake that is over");
        chain[0].to_vec()
    }
}
