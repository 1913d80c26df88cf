//! The embedded store on disk: the same replies as Redis', across restarts, and what becomes of it after accidents.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use config::Durability;
use protocol::coherence::lease::{EarlierIncarnations, LeaseLimits};
use protocol::storage::durable::StoreLife;
use protocol::storage::redis::LeaseRecord;
use protocol::storage::{MarkedPart, StorageEvent};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use shim::storage::Storage as Backed;
use shim::storage::durable::{Durable, DurableSettings};
use shim::storage::embedded::{Embedded, StoreClock};
use wire::resp::Command;

use crate::embedded::{Twins, random_commands};
use crate::redis::{PATIENCE, RESP2, RESP3, Storage};
use crate::server::Server;

const WAIT: Duration = Duration::from_millis(1020);

fn settings(path: &Path) -> DurableSettings {
    let lease_record = LeaseRecord { wait: WAIT, limits: LeaseLimits::default(), is_first: true };
    let life = StoreLife { boot: "boot".to_owned(), part: None, lease_record, adopts: false };
    DurableSettings { path: path.to_owned(), durability: Durability::Always, life, seed: 1 }
}

fn start(settings: DurableSettings) -> Storage {
    Storage::over(|io| Backed::new(Box::new(Durable::new(settings, io.waker())), None, None))
}

/// A process that has got the store.
fn started(path: &Path) -> Storage {
    let mut process = start(settings(path));
    process.until_up();
    process
}

fn up(process: &mut Storage) -> (u64, EarlierIncarnations) {
    process.until("up", |event| match event {
        StorageEvent::Up { incarnation, earlier, .. } => Some((*incarnation, *earlier)),
        _ => None,
    })
}

fn ask(process: &mut Storage, args: &[&str]) -> String {
    String::from_utf8_lossy(&process.ask(RESP2, args)).into_owned()
}

/// In order, with everything on disk.
fn leave(mut process: Storage) {
    process.stop();
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// The process is killed: what it has written so far is what another one finds.
fn as_after_a_kill(path: &Path, copy: &Path) {
    for entry in fs::read_dir(path).expect("a folder") {
        let entry = entry.expect("an entry");
        let to = copy.join(entry.file_name());
        if entry.file_type().expect("a kind").is_dir() {
            fs::create_dir(&to).expect("a folder");
            as_after_a_kill(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), &to).expect("a copy");
        }
    }
}

#[test]
fn random_commands_are_answered_as_by_redis_across_restarts() {
    let Some(server) = Server::start(&["--databases", "1"]) else { return };
    let folder = folder();
    let path = folder.path().to_owned();
    let (mut process, mut asked) = (None, 0);
    let answer = Box::new(move |command: &Command| {
        asked += 1;
        if asked % 500 == 0
            && let Some(process) = process.take()
        {
            leave(process);
        }
        let process = process.get_or_insert_with(|| started(&path));
        let ticket = process.store_frames(RESP3, std::iter::once(command.frame().clone()));
        process.ended(ticket).expect("a reply")
    });
    random_commands(&mut Twins::new(&server, true, answer), 2, 2_500);
}

/// Commits begin and end in between, so that keys are read from disk and from both kinds of changes that are not there yet.
#[test]
fn pipelined_commands_see_what_those_before_them_have_done() {
    const FORMS: [&str; 14] = [
        "SET K V",
        "SET K V",
        "SET K V EX 1000",
        "GET K",
        "GET K",
        "INCR N",
        "APPEND K V",
        "DEL K",
        "EXISTS K K",
        "PERSIST K",
        "RENAME K K",
        "DBSIZE",
        "KEYS *",
        "FLUSHALL",
    ];
    let clock = StoreClock { now: 1, unix: 1_700_000_000_000 };
    for case in cases::seeds(6) {
        let mut random = SmallRng::seed_from_u64(case.seed);
        let folder = folder();
        let mut process = started(folder.path());
        let mut twin = Embedded::new(1);
        for _ in 0..10 {
            let mut asked = Vec::new();
            for _ in 0..300 {
                // FLUSHALL, the last one, is rare.
                let forms = if random.random_ratio(1, 10) { FORMS.len() } else { FORMS.len() - 1 };
                let form = FORMS[random.random_range(0..forms)];
                let words = form.split(' ').map(|word| match word {
                    "K" => format!("key:{}", random.random_range(0..20)),
                    "N" => format!("number:{}", random.random_range(0..3)),
                    "V" => random.random_range(0..1000).to_string(),
                    word => word.to_owned(),
                });
                let words: Vec<String> = words.collect();
                let arguments: Vec<&str> = words.iter().map(String::as_str).collect();
                asked.push((process.store(RESP2, &[&arguments]), words));
            }
            for (ticket, words) in asked {
                let expected = twin.execute(clock, &Command::from_args(&words), false);
                let found = process.ended(ticket).expect("a reply");
                let same =
                    if words[0] == "KEYS" { sorted(&found) == sorted(&expected) } else { found == expected };
                assert!(same, "seed {}: {words:?}: {found:?} instead of {expected:?}", case.seed);
            }
        }
    }
}

fn sorted(keys: &[u8]) -> Vec<String> {
    let mut lines: Vec<_> = String::from_utf8_lossy(keys).lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill() {
    for durability in
        [Durability::Always, Durability::Interval(Duration::from_millis(100)), Durability::Never]
    {
        let (first, second) = (folder(), folder());
        let mut process = start(DurableSettings { durability, ..settings(first.path()) });
        assert_eq!(up(&mut process), (1, EarlierIncarnations::NONE));
        let tickets: Vec<u64> =
            (0..2_000).map(|number| process.store(RESP2, &[&["SET", &format!("k{number}"), "v"]])).collect();
        for ticket in tickets {
            assert_eq!(process.ended(ticket).as_deref(), Some(&b"+OK\r\n"[..]));
        }
        ask(&mut process, &["DEL", "k7"]);
        as_after_a_kill(first.path(), second.path());
        drop(process);
        let mut process = start(settings(second.path()));
        assert_eq!(up(&mut process).0, 2);
        assert_eq!(ask(&mut process, &["DBSIZE"]), ":1999\r\n");
        assert_eq!(ask(&mut process, &["EXISTS", "k0", "k7", "k1999"]), ":2\r\n");
    }
}

#[test]
fn flushall_is_one_step_and_what_comes_after_it_stays() {
    let (first, second) = (folder(), folder());
    let mut process = started(first.path());
    for number in 0..10 {
        ask(&mut process, &["SET", &format!("k{number}"), "v", "EX", "1000"]);
    }
    let flush = process.store(RESP2, &[&["FLUSHALL"]]);
    let set = process.store(RESP2, &[&["SET", "new", "v"]]);
    assert_eq!(process.ended(flush), process.ended(set));
    assert_eq!(ask(&mut process, &["DBSIZE"]), ":1\r\n");
    assert_eq!(ask(&mut process, &["KEYS", "*"]), "*1\r\n$3\r\nnew\r\n");
    as_after_a_kill(first.path(), second.path());
    drop(process);
    let mut process = started(second.path());
    assert_eq!(ask(&mut process, &["KEYS", "*"]), "*1\r\n$3\r\nnew\r\n");
    leave(process);
    let mut process = started(second.path());
    assert_eq!(ask(&mut process, &["DBSIZE"]), ":1\r\n");
}

#[test]
fn keys_expire_without_being_asked_for_and_while_nobody_has_the_store() {
    let folder = folder();
    let mut process = started(folder.path());
    ask(&mut process, &["SET", "soon", "v", "PX", "20"]);
    ask(&mut process, &["SET", "never", "v"]);
    ask(&mut process, &["SET", "later", "v", "PX", "150"]);
    let deadline = Instant::now() + PATIENCE;
    while ask(&mut process, &["DBSIZE"]) != ":2\r\n" {
        assert!(Instant::now() < deadline);
    }
    leave(process);
    let mut process = started(folder.path());
    let deadline = Instant::now() + PATIENCE;
    while ask(&mut process, &["DBSIZE"]) != ":1\r\n" {
        assert!(Instant::now() < deadline);
    }
    assert_eq!(ask(&mut process, &["GET", "never"]), "$1\r\nv\r\n");
}

#[test]
fn one_process_has_the_store_and_the_next_one_waits() {
    let folder = folder();
    let mut first = start(settings(folder.path()));
    up(&mut first);
    let mut second = start(settings(folder.path()));
    assert!(second.until_down().contains("another process has it open"));
    ask(&mut first, &["SET", "k", "v"]);
    leave(first);
    let (incarnation, earlier) = up(&mut second);
    assert_eq!((incarnation, earlier), (2, EarlierIncarnations::recorded(WAIT)));
    assert_eq!(ask(&mut second, &["GET", "k"]), "$1\r\nv\r\n");
}

#[test]
fn a_store_of_another_shim_is_refused_in_words() {
    let folder = folder();
    let part = |shim: &str| MarkedPart {
        id: "1".to_owned(),
        cluster: "main".to_owned(),
        shims: vec!["a".to_owned(), "b".to_owned()],
        shim: shim.to_owned(),
        next: Vec::new(),
    };
    let of = |shim: &str, adopts: bool| {
        let mut settings = settings(folder.path());
        (settings.life.part, settings.life.adopts) = (Some(part(shim)), adopts);
        settings
    };
    let mut process = start(of("a", false));
    up(&mut process);
    leave(process);
    let mut process = start(of("b", false));
    let reason = process.until_down();
    assert!(reason.contains("the store holds the keys of a, and is `storage` of b now"), "{reason}");
    assert!(process.until_refused().contains("--adopt"));
    let ticket = process.store(RESP2, &[&["GET", "k"]]);
    assert!(!process.until_lost(ticket));
    drop(process);
    let mut process = start(of("b", true));
    up(&mut process);
}

#[test]
fn a_copy_is_known_for_what_it_is() {
    let (first, copy) = (folder(), folder());
    leave(started(first.path()));
    as_after_a_kill(first.path(), copy.path());
    let mut process = start(settings(first.path()));
    assert_eq!(up(&mut process), (2, EarlierIncarnations::recorded(WAIT)));
    let mut process = start(settings(copy.path()));
    assert!(!up(&mut process).1.same_data, "it may be older than what readers have seen");
}

#[test]
fn a_first_start_may_end_anywhere_and_a_folder_without_its_record_is_refused() {
    let (whole, cut) = (folder(), folder());
    leave(started(whole.path()));
    fs::copy(whole.path().join("record"), cut.path().join("record")).expect("a copy");
    let mut process = start(settings(cut.path()));
    assert_eq!(up(&mut process).0, 2, "nothing was stored yet");
    fs::remove_file(whole.path().join("record")).expect("it was there");
    let mut process = start(settings(whole.path()));
    assert!(process.until_refused().contains("restore a whole backup"));
    drop(process);
    let mut adopting = settings(whole.path());
    adopting.life.adopts = true;
    up(&mut start(adopting));
}

/// The journal is a file of whole commits: damage in the middle ends it early, and nothing else tells.
#[test]
fn commits_that_are_missing_are_noticed() {
    let (first, cut) = (folder(), folder());
    let mut process = started(first.path());
    for number in 0..20 {
        ask(&mut process, &["SET", &format!("k{number}"), "v"]);
    }
    as_after_a_kill(first.path(), cut.path());
    drop(process);
    let journals =
        fs::read_dir(cut.path().join("data")).expect("a folder").map(|entry| entry.expect("one").path());
    let journal =
        journals.filter(|path| path.extension().is_some_and(|kind| kind == "jnl")).max().expect("a journal");
    let file = fs::OpenOptions::new().write(true).open(&journal).expect("a journal");
    file.set_len(used_bytes(&journal) * 2 / 3).expect("a shorter journal");
    let mut process = start(settings(cut.path()));
    let reason = process.until_down();
    assert!(reason.contains("commits that were on disk are not there any more"), "{reason}");
    drop(process);
    let mut adopting = settings(cut.path());
    adopting.life.adopts = true;
    let mut process = start(adopting);
    let (_, earlier) = up(&mut process);
    assert!(!earlier.same_data, "readers have seen what is gone");
    // Nobody writes, and the next life asks no person any more.
    leave(process);
    assert_eq!(up(&mut start(settings(cut.path()))).0, 3);
}

/// Without the room at its end.
fn used_bytes(path: &PathBuf) -> u64 {
    let bytes = fs::read(path).expect("a file");
    bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last as u64 + 1)
}

#[test]
fn keys_that_are_too_long_are_refused_in_words() {
    let folder = folder();
    let mut process = started(folder.path());
    let key = "k".repeat(65_527);
    assert!(ask(&mut process, &["SET", &key, "v"]).contains("takes keys of up to 65526 bytes"));
    assert_eq!(ask(&mut process, &["GET", &key]), "$-1\r\n");
    assert_eq!(ask(&mut process, &["SET", &key[1..], "v"]), "+OK\r\n");
    assert_eq!(ask(&mut process, &["DBSIZE"]), ":1\r\n");
}
