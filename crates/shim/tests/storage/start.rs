//! How a shim starts before a real redis-server, and how it leaves it.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::Address;
use config::{Config, LayerConfig, NodeConfig, Password, RedisStorage, Secret, ShimConfig, StorageConfig};
use runtime::stop::Stop;
use runtime::tls::Certificates;
use wire::Partition;

use crate::peer::{PATIENCE, Router};
use crate::server::Server;

/// Long enough for many ticks of a shim.
const SOON: Duration = Duration::from_millis(500);

fn config(server: &Server, password: Option<&str>) -> Arc<Config> {
    let mut redis = RedisStorage::open(Address::Unix(server.socket()));
    redis.login.password = password.map(|password| Password(password.to_owned()));
    before(StorageConfig::Redis(Box::new(redis)))
}

fn before(storage: StorageConfig) -> Arc<Config> {
    let mut config = Config::new("test", Secret([3; 16]));
    config.first_life = true;
    let local: Address = "127.0.0.1:0".parse().expect("an address");
    config.layers.push(LayerConfig { name: "leaf".to_owned(), partition: Partition::Hash });
    config.nodes.push(NodeConfig::new("node-0", "leaf", None, local.clone()));
    config.shims.push(ShimConfig::new("shim-0", "r0", local, storage));
    Arc::new(config)
}

#[test]
fn storage_that_refuses_the_credentials_keeps_a_shim_from_starting() {
    let Some(server) = Server::start(&["--requirepass", "right"]) else { return };
    let stop = Stop::new();
    let start = |password| shim::spawn(&config(&server, password), &Certificates::default(), "shim-0", &stop);
    let error = start(Some("wrong")).expect_err("the password is wrong").to_string();
    assert!(error.starts_with("shim-0: ") && error.contains("WRONGPASS"), "{error}");
    let error = start(None).expect_err("there is no password").to_string();
    assert!(error.contains("NOAUTH"), "{error}");
    assert!(!stop.is_set(), "other members go on");
    let shim = start(Some("right")).expect("the password is right");
    stop.stop();
    assert!(shim.join());
}

#[test]
fn a_stopped_shim_leaves_no_user_behind() {
    let Some(server) = Server::start(&[]) else { return };
    let stop = Stop::new();
    let shim =
        shim::spawn(&config(&server, None), &Certificates::default(), "shim-0", &stop).expect("it starts");
    assert_eq!(super::redis::users(&server).len(), 2);
    stop.stop();
    assert!(shim.join());
    assert!(super::redis::all_have_left(&server));
}

/// What is written yet when storage has been left gives it no reason to come back.
#[test]
fn nor_does_one_whose_replies_are_read_late() {
    const READS: usize = 4000;
    let Some(server) = Server::start(&[]) else { return };
    let (config, stop) = (config(&server, None), Stop::new());
    let shim = shim::spawn(&config, &Certificates::default(), "shim-0", &stop).expect("it starts");
    let mut router = Router::new(&config, &shim);
    assert_eq!(router.ask(&["SET", "k", &"x".repeat(10_000)]).value, "+OK\r\n");
    (0..READS).for_each(|_| {
        router.send(&["GET", "k"]);
    });
    router.until("the first replies", |recorder| recorder.replies.len() > 1);
    stop.stop();
    let (left, end) = (|| super::redis::all_have_left(&server), Instant::now() + PATIENCE);
    while !left() {
        assert!(Instant::now() < end, "it takes its user away");
    }
    let end = Instant::now() + SOON;
    while Instant::now() < end {
        assert!(left(), "it came back");
    }
    router.until("the end", |recorder| !recorder.linked);
    assert!(shim.join());
    assert!(super::redis::all_have_left(&server));
}

/// A server that answers whatever it is asked with the same bytes, and hangs up; and its port.
fn parrot(answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(mut client) = client else { return };
            let mut asked = [0; 256];
            // Who has gone again asks nothing.
            if client.read(&mut asked).is_ok_and(|count| count > 0) {
                let _ = client.write_all(answer);
            }
        }
    });
    port
}

#[test]
fn storage_of_another_kind_is_named_and_what_to_write() {
    let http = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    for (scheme, answer, expected) in [
        ("redis", &http[..], "RESP expected, this speaks HTTP: give the address of a Redis server"),
        ("redis", b"ERROR\r\nERROR\r\n", "RESP expected, this speaks memcached: write memcached://"),
        ("redis", b"\x15\x03\x01\x00\x02\x02\x46", "this speaks TLS: write rediss:// instead of redis://"),
        ("memcached", b"-ERR unknown command 'stats'\r\n", "this speaks RESP (Redis): write redis://"),
        ("memcached", http, "memcached's text protocol expected, this speaks HTTP"),
    ] {
        let url = format!("{scheme}://127.0.0.1:{}", parrot(answer));
        let storage = url.parse().expect("a storage URL");
        let stop = Stop::new();
        let error = shim::spawn(&before(storage), &Certificates::default(), "shim-0", &stop)
            .expect_err(&url)
            .to_string();
        assert!(error.starts_with("shim-0: 127.0.0.1:") && error.contains(expected), "{url}: {error}");
    }
}
