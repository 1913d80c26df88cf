//! HTTPS as members ask each other: connections are kept, certificates are those of now, and plain HTTP is answered. Not what is
//! asked.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use config::{Config, HttpTls, Secret};
use runtime::admin::{HttpDoor, HttpGuard, bind, serve};
use runtime::stop::Stop;
use runtime::tls::{Certificates, HttpClient};

use crate::authority::Authority;

fn config(authority: &Authority) -> Config {
    authority.sign("http");
    let mut config = Config::new("t", Secret([1; 16]));
    config.tls.http = Some(HttpTls {
        certificate_file: authority.path("http.crt"),
        key_file: authority.path("http.key"),
        ca_file: authority.path("ca.crt"),
    });
    config
}

/// Has a server with these certificates answer while `ask` runs.
fn served(config: &Config, certificates: &Certificates, ask: impl FnOnce(SocketAddr)) {
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let tls = certificates.http_acceptor().cloned();
    let door = HttpDoor { listener, tls, guard: HttpGuard::new(config) };
    let stop = Stop::new();
    let thread =
        serve("http", door, Router::new().route("/health", get(|| async { "well" })), &stop).unwrap();
    ask(address);
    stop.stop();
    thread.join().unwrap();
}

#[test]
fn connections_are_kept_until_the_certificates_change() {
    let (authority, other) = (Authority::new(), Authority::new());
    let config = config(&authority);
    let certificates = Certificates::load(&config).unwrap();
    let client = HttpClient::new(Duration::from_secs(20), certificates.http_asker());
    let handshakes = || certificates.status()[0].handshakes_total;
    served(&config, &certificates, |address| {
        let ask = || {
            let url = format!("{}://{address}/health", client.scheme());
            let text = client.agent().get(url).call().unwrap().body_mut().read_to_string().unwrap();
            assert_eq!(text, "well");
        };
        (0..5).for_each(|_| ask());
        assert_eq!(handshakes(), 1);
        other.sign("http");
        for file in ["ca.crt", "http.crt", "http.key"] {
            std::fs::copy(other.path(file), authority.path(file)).unwrap();
        }
        certificates.reload().unwrap();
        (0..5).for_each(|_| ask());
        assert_eq!(handshakes(), 2, "of the other CA");
    });
}

#[test]
fn plain_http_is_answered_in_words() {
    let authority = Authority::new();
    let config = config(&authority);
    let certificates = Certificates::load(&config).unwrap();
    served(&config, &certificates, |address| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 ") && body.contains("write https://"), "{reply}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{reply}");
    });
    assert_eq!(certificates.status()[0].handshakes_failed_total, 1);
}
