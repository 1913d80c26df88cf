//! Replies of hundreds of megabytes: members pass them on without holding them, whoever reads them and however slowly.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use wire::resp::{Command, Value};

use crate::cluster::{
    Client, Cluster, Layout, PRIMARIES, RedisCluster, RedisServer, installed, peak_kib, shared, text, total,
    until,
};

const VALUE_BYTES: usize = 256 << 20;
const MEDIUM_BYTES: usize = 8 << 20;
/// More than fits into what lies between storage and a client.
const MOVED_BYTES: usize = 64 << 20;
/// Just large: its reply has some bytes more.
const HOT_BYTES: usize = 1 << 20;
const HOT_READERS: usize = 8;
const HOT_READS_EACH: usize = 20;
const CHUNK_BYTES: usize = 16 << 20;
const ELEMENTS: usize = 3_000_000;
/// What a member may grow by, whatever passes through it: windows of the replies under way, and the allocator's waste.
const GROWTH_KIB_MAX: u64 = 32 << 10;
/// More than there may be under way at a time.
const LEAVERS: usize = 150;
const REPLY_MAX: Duration = Duration::from_secs(180);

/// Bytes by their place, so that none can be lost, doubled or moved unnoticed.
fn pattern(from: usize, into: &mut [u8]) {
    for (index, byte) in into.iter_mut().enumerate() {
        let place = (from + index) as u32;
        *byte = (place.wrapping_mul(0x9E37_79B1) >> 23) as u8;
    }
}

fn load(storage: &mut Client, key: &str, total: usize) {
    let mut chunk = vec![0; CHUNK_BYTES.min(total)];
    for from in (0..total).step_by(chunk.len()) {
        pattern(from, &mut chunk);
        storage.write(Command::from_args(&[b"APPEND", key.as_bytes(), &chunk]).frame()).expect("written");
        storage.frame().expect("appended");
    }
}

fn load_list(storage: &mut Client) {
    for from in (0..ELEMENTS).step_by(10_000) {
        let elements: Vec<String> = (from..from + 10_000).map(|index| format!("e{index}")).collect();
        let mut command = vec!["RPUSH", "list"];
        command.extend(elements.iter().map(String::as_str));
        storage.ask(&command).expect("pushed");
    }
}

/// A client that never holds what it reads.
struct Reader(TcpStream);

impl Reader {
    fn ask(cluster: &Cluster, command: &[&str]) -> Reader {
        let mut stream = TcpStream::connect(cluster.router(0)).expect("connected");
        stream.set_read_timeout(Some(REPLY_MAX)).expect("a timeout");
        stream.write_all(Command::from_args(command).frame()).expect("written");
        Reader(stream)
    }

    fn header(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).expect("the start of a reply");
            line.push(byte[0]);
        }
        String::from_utf8(line).expect("a line of text")
    }

    /// The next bytes of the value, which must be those of this range.
    fn expect(&mut self, mut from: usize, to: usize) {
        let (mut found, mut expected) = (vec![0; 64 << 10], vec![0; 64 << 10]);
        while from < to {
            let count = found.len().min(to - from);
            self.0.read_exact(&mut found[..count]).unwrap_or_else(|error| panic!("at {from}: {error}"));
            pattern(from, &mut expected[..count]);
            assert!(found[..count] == expected[..count], "the value differs behind {from}");
            from += count;
        }
    }

    /// All of a reply that is a string, and that the connection goes on behind it.
    fn expect_value(mut self, bytes: usize) {
        assert_eq!(self.header(), format!("${bytes}\r\n"));
        self.expect(0, bytes);
        self.expect_end();
    }

    fn expect_end(&mut self) {
        self.0.write_all(b"PING\r\n").expect("written");
        assert_eq!(self.header(), "\r\n");
        assert_eq!(self.header(), "+PONG\r\n");
    }

    fn expect_list(mut self) {
        assert_eq!(self.header(), format!("*{ELEMENTS}\r\n"));
        let mut expected = String::new();
        let mut found = Vec::new();
        for from in (0..ELEMENTS).step_by(1000) {
            expected.clear();
            for index in from..from + 1000 {
                let element = format!("e{index}");
                expected.push_str(&format!("${}\r\n{element}\r\n", element.len()));
            }
            found.resize(expected.len(), 0);
            self.0.read_exact(&mut found).expect("elements");
            assert!(found == expected.as_bytes(), "the list differs behind {from}");
        }
    }
}

/// Says so when it goes out of scope.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads and writes small values while `work` is done: each must be answered.
fn beside(cluster: &Cluster, work: impl FnOnce()) {
    let (done, answered) = (&AtomicBool::new(false), &AtomicU64::new(0));
    let mut client = cluster.connect(0);
    std::thread::scope(|scope| {
        let small = scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let number = answered.load(Ordering::Relaxed).to_string();
                assert_eq!(client.call(&["SET", "counter", &number]), Value::Simple("OK".into()));
                assert_eq!(text(&client.call(&["GET", "counter"])), number);
                answered.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Whatever goes wrong there, the others end.
        let ended = Ended(done);
        work();
        let before = answered.load(Ordering::Relaxed);
        until("others are answered", || (answered.load(Ordering::Relaxed) > before).then_some(()));
        drop(ended);
        small.join().expect("small values are served");
    });
}

/// Several ask for one key at the same time, again and again.
fn read_hot(cluster: &Cluster) {
    std::thread::scope(|scope| {
        for _ in 0..HOT_READERS {
            let mut reader = Reader::ask(cluster, &["GET", "hot"]);
            scope.spawn(move || {
                let again = Command::from_args(&["GET", "hot"]).frame().clone();
                for read in 0..HOT_READS_EACH {
                    assert_eq!(reader.header(), format!("${HOT_BYTES}\r\n"), "read {read}");
                    reader.expect(0, HOT_BYTES);
                    assert_eq!(reader.header(), "\r\n");
                    reader.0.write_all(&again).expect("written");
                }
            });
        }
    });
}

#[test]
fn large_replies_pass_through_little_memory() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let server = RedisServer::start();
    let mut storage = server.connect();
    load(&mut storage, "big", VALUE_BYTES);
    load(&mut storage, "medium", MEDIUM_BYTES);
    load(&mut storage, "hot", HOT_BYTES);
    load_list(&mut storage);
    let mut cluster = Cluster::apart(Layout::before(std::slice::from_ref(&server)));
    beside(&cluster, || ());
    let members = ["router-0", "shim-0", "leaf-0", "spine-0"];
    let before = members.map(|id| peak_kib(&mut cluster, id));

    beside(&cluster, || {
        // Nobody knows at first that the reply is large; the second time it is known.
        for _ in 0..2 {
            Reader::ask(&cluster, &["GET", "big"]).expect_value(VALUE_BYTES);
            Reader::ask(&cluster, &["LRANGE", "list", "0", "-1"]).expect_list();
        }
    });
    // A hot key is offered to nodes before anybody knows that they cannot keep it.
    beside(&cluster, || read_hot(&cluster));
    cluster.fresh_status(|status| total(status, "shims", "offers_total") > 0);
    // One who stops reading holds up nobody, and gets what was there when he asked.
    let mut slow = Reader::ask(&cluster, &["GET", "big"]);
    assert_eq!(slow.header(), format!("${VALUE_BYTES}\r\n"));
    slow.expect(0, 1 << 20);
    beside(&cluster, || {
        assert_eq!(
            cluster.connect(0).call(&["SETRANGE", "big", "0", "changed"]),
            Value::Integer(VALUE_BYTES as i64)
        );
        assert_eq!(text(&cluster.connect(0).call(&["GETRANGE", "big", "0", "6"])), "changed");
        Reader::ask(&cluster, &["GET", "medium"]).expect_value(MEDIUM_BYTES);
    });
    // Those who go half-way leave nothing behind.
    for _ in 0..LEAVERS {
        let mut leaver = Reader::ask(&cluster, &["GET", "medium"]);
        assert_eq!(leaver.header(), format!("${MEDIUM_BYTES}\r\n"));
        leaver.expect(0, 1000);
    }
    Reader::ask(&cluster, &["GET", "medium"]).expect_value(MEDIUM_BYTES);
    slow.expect(1 << 20, VALUE_BYTES);
    slow.expect_end();

    check_growth(&mut cluster, members, before);
}

fn check_growth<const COUNT: usize>(cluster: &mut Cluster, members: [&str; COUNT], before: [u64; COUNT]) {
    for (id, before) in members.into_iter().zip(before) {
        let after = peak_kib(cluster, id);
        let grown = after - before;
        assert!(grown <= GROWTH_KIB_MAX, "{id} has grown by {grown} KiB, from {before} to {after}");
    }
}

#[test]
fn large_replies_of_a_redis_cluster_pass_through_little_memory_while_slots_move() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let storage = RedisCluster::start();
    let slot = storage.slot("big");
    let owner = storage.owner(slot);
    load(&mut storage.servers[owner].connect(), "big", MOVED_BYTES);
    load(&mut storage.servers[owner].connect(), "{big}hot", HOT_BYTES);
    let mut cluster = Cluster::apart(Layout::new(vec![storage.url(); PRIMARIES]));
    beside(&cluster, || ());
    let members = ["router-0", "shim-0", "shim-1", "shim-2", "leaf-0", "spine-0"];
    let before = members.map(|id| peak_kib(&mut cluster, id));

    for _ in 0..2 {
        Reader::ask(&cluster, &["GET", "big"]).expect_value(MOVED_BYTES);
        Reader::ask(&cluster, &["GET", "{big}hot"]).expect_value(HOT_BYTES);
    }
    let mut slow = Reader::ask(&cluster, &["GET", "big"]);
    assert_eq!(slow.header(), format!("${MOVED_BYTES}\r\n"));
    slow.expect(0, 1 << 20);
    let to = (owner + 1) % PRIMARIES;
    storage.begin_move(slot, owner, to);
    while storage.move_keys(slot, owner, to) {}
    // Its server answers ASK now, and then MOVED.
    Reader::ask(&cluster, &["GET", "big"]).expect_value(MOVED_BYTES);
    storage.end_move(slot, owner, to);
    beside(&cluster, || Reader::ask(&cluster, &["GET", "big"]).expect_value(MOVED_BYTES));
    slow.expect(1 << 20, MOVED_BYTES);
    slow.expect_end();

    check_growth(&mut cluster, members, before);
}
