//! The bytes of TLS connections through a reactor, one turn at a time.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use config::Address;
use runtime::reactor::{ConnectionId, Driver, Event, Io, Reactor};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::authority::Authority;
use crate::configuration::load;

#[derive(Default)]
struct Echo {
    accepted: Vec<ConnectionId>,
    received: usize,
    closed: Vec<ConnectionId>,
    pauses: bool,
    close_after: Option<usize>,
}

impl Driver for Echo {
    fn event(&mut self, io: &mut Io, event: Event) {
        match event {
            Event::Accepted { connection, .. } => {
                self.accepted.push(connection);
                if self.pauses {
                    io.pause(connection);
                }
            }
            Event::Data { connection, bytes, .. } => {
                self.received += bytes.len();
                io.out(connection).extend_from_slice(&bytes);
                if self.close_after.is_some_and(|bytes| self.received >= bytes) {
                    io.close_flushed(connection);
                }
            }
            Event::Closed { connection, .. } => self.closed.push(connection),
            _ => {}
        }
    }
}

struct Server {
    reactor: Reactor,
    echo: Echo,
    address: std::net::SocketAddr,
    authority: Authority,
    failed: Box<dyn Fn() -> u64>,
}

/// With further keys of `[tls.clients]`.
fn server(keys: &str) -> Server {
    let authority = Authority::new();
    authority.sign("server");
    let files = "certificate_file = \"server.crt\"\nkey_file = \"server.key\"";
    let tables = format!("[tls.clients]\n{files}\n{keys}\n");
    let (_, certificates) = load(&authority, &tables, "listen_tls = \"127.0.0.1:1\"").unwrap();
    let mut io = Io::new().unwrap();
    let acceptor = certificates.clients().unwrap();
    let listener = io.listen_tls(&"127.0.0.1:0".parse().unwrap(), Some(acceptor)).unwrap();
    let Address::Tcp(address) = io.local_address(listener) else { panic!("a TCP listener") };
    let failed = Box::new(move || certificates.status()[0].handshakes_failed_total);
    Server { reactor: Reactor::new(io), echo: Echo::default(), address, authority, failed }
}

impl Server {
    fn turn_until(&mut self, mut done: impl FnMut(&Server) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(start.elapsed() < Duration::from_secs(60), "what was expected did not happen");
            self.reactor.turn(&mut self.echo, Some(Duration::from_millis(2))).unwrap();
        }
    }

    fn finish<T>(&mut self, client: JoinHandle<T>) -> T {
        self.turn_until(|_| client.is_finished());
        client.join().unwrap()
    }

    /// Runs `talk` with a client that trusts the server's CA; `shows` is the name of its certificate.
    fn client<T: Send + 'static>(
        &self,
        shows: Option<&str>,
        talk: impl FnOnce(StreamOwned<ClientConnection, TcpStream>) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let config = client_config(&self.authority, shows);
        let address = self.address;
        std::thread::spawn(move || talk(connect(config, address)))
    }
}

fn client_config(authority: &Authority, shows: Option<&str>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.path("ca.crt")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    Arc::new(match shows {
        Some(name) => {
            let chain = CertificateDer::from_pem_file(authority.path(&format!("{name}.crt"))).unwrap();
            let key = PrivateKeyDer::from_pem_file(authority.path(&format!("{name}.key"))).unwrap();
            builder.with_client_auth_cert(vec![chain], key).unwrap()
        }
        None => builder.with_no_client_auth(),
    })
}

fn connect(
    config: Arc<ClientConfig>,
    address: std::net::SocketAddr,
) -> StreamOwned<ClientConnection, TcpStream> {
    let session = ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
    StreamOwned::new(session, TcpStream::connect(address).unwrap())
}

#[test]
fn what_is_sent_comes_back_and_the_end_is_told() {
    let mut server = server("");
    let client = server.client(None, |mut stream| {
        for _ in 0..3 {
            stream.write_all(b"hello").unwrap();
            let mut reply = [0; 5];
            stream.read_exact(&mut reply).unwrap();
            assert_eq!(&reply, b"hello");
        }
        stream.conn.send_close_notify();
        stream.flush().unwrap();
    });
    server.finish(client);
    server.turn_until(|server| !server.echo.closed.is_empty());
    assert_eq!(server.echo.closed, server.echo.accepted);
    assert_eq!((server.failed)(), 0);
}

#[test]
fn megabytes_go_through_in_both_directions_while_the_client_reads_slowly() {
    const BYTES: usize = 24 << 20;
    // Before there is a connection: on a busy machine it takes a part of the time that a handshake has.
    let sent: Vec<u8> = (0..BYTES).map(|index| (index * 31 + index / 4096) as u8).collect();
    let mut server = server("");
    let client = server.client(None, move |mut stream| {
        let half = sent.len() / 2;
        // Nothing is read before half is sent: the server's output has to wait meanwhile.
        stream.write_all(&sent[..half]).unwrap();
        let mut reply = vec![0; half];
        stream.read_exact(&mut reply).unwrap();
        assert!(reply == sent[..half]);
        for (chunk, expected) in sent[half..].chunks(100_001).zip(sent[half..].chunks(100_001)) {
            stream.write_all(chunk).unwrap();
            let mut reply = vec![0; expected.len()];
            stream.read_exact(&mut reply).unwrap();
            assert!(reply == expected);
        }
    });
    server.finish(client);
    assert_eq!(server.echo.received, BYTES);
}

#[test]
fn a_connection_that_is_closed_ends_with_close_notify_after_its_output() {
    let mut server = server("");
    const BYTES: usize = 3 << 20;
    server.echo.close_after = Some(BYTES);
    let client = server.client(None, |mut stream| {
        stream.write_all(&vec![7; BYTES]).unwrap();
        let mut reply = Vec::new();
        // Without close_notify this is an error.
        stream.read_to_end(&mut reply).map(|_| reply.len())
    });
    assert_eq!(server.finish(client).unwrap(), BYTES);
}

#[test]
fn a_paused_connection_notices_its_end_but_keeps_what_came_before() {
    let mut server = server("");
    server.echo.pauses = true;
    let client = server.client(None, |mut stream| {
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).unwrap();
        }
        stream.conn.send_close_notify();
        stream.flush().unwrap();
    });
    server.finish(client);
    server.turn_until(|server| !server.echo.closed.is_empty());

    let client = server.client(None, |mut stream| {
        stream.write_all(b"last words").unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
    });
    server.finish(client);
    server.turn_until(|server| server.echo.accepted.len() == 2);
    let connection = server.echo.accepted[1];
    server.reactor.io().resume(connection);
    server.turn_until(|server| server.echo.closed.len() == 2);
    assert_eq!(server.echo.received, 10);
}

#[test]
fn who_does_not_pass_the_handshake_is_closed_and_counted_and_the_driver_never_knows() {
    let mut server = server("client_certificates = \"required\"\nca_file = \"ca.crt\"\n");
    server.authority.sign("good");
    server.authority.sign_until("old", 2020);
    let attempt = |mut stream: StreamOwned<ClientConnection, TcpStream>| {
        stream.write_all(b"hello")?;
        let mut reply = [0; 5];
        stream.read_exact(&mut reply).map(|()| reply)
    };
    for (shows, complaint) in [(None, "CertificateRequired"), (Some("old"), "CertificateExpired")] {
        let client = server.client(shows, attempt);
        let error = server.finish(client).unwrap_err().to_string();
        assert!(error.contains(complaint), "{shows:?}: {error}");
    }
    // The same server does not take a certificate of another CA, nor a client that speaks no TLS.
    let other = Authority::new();
    other.sign("stranger");
    for end in ["crt", "key"] {
        let name = format!("stranger.{end}");
        std::fs::copy(other.path(&name), server.authority.path(&name)).unwrap();
    }
    let client = server.client(Some("stranger"), attempt);
    assert!(server.finish(client).is_err());
    let address = server.address;
    let client = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
        let mut reply = Vec::new();
        // An alert, and the end.
        drop(stream.read_to_end(&mut reply));
        reply
    });
    assert!(!server.finish(client).contains(&b'+'));
    assert_eq!(((server.failed)(), server.echo.accepted.len()), (4, 0));

    let client = server.client(Some("good"), attempt);
    assert_eq!(&server.finish(client).unwrap(), b"hello");
}

#[test]
fn a_client_that_comes_back_resumes_its_session() {
    let mut server = server("");
    let (config, address) = (client_config(&server.authority, None), server.address);
    let client = std::thread::spawn(move || {
        let mut kinds = Vec::new();
        for _ in 0..2 {
            let mut stream = connect(Arc::clone(&config), address);
            stream.write_all(b"hello").unwrap();
            // The ticket comes before the reply.
            stream.read_exact(&mut [0; 5]).unwrap();
            kinds.push(format!("{:?}", stream.conn.handshake_kind().unwrap()));
        }
        kinds
    });
    assert_eq!(server.finish(client), ["Full", "Resumed"]);
}

#[test]
fn silent_connections_give_way_to_those_that_come_after_them() {
    let mut server = server("");
    server.reactor.io().set_handshakes_max(8);
    let idle: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    let client = server.client(None, |mut stream| {
        stream.write_all(b"hello").unwrap();
        stream.read_exact(&mut [0; 5]).unwrap();
    });
    server.finish(client);
    assert_eq!((server.failed)(), 13);
    drop(idle);
}
