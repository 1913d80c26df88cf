//! Several threads of one router: what each tells the others comes when the test says so.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use protocol::router::{
    ClientId, Effect, Input, Router, RouterConfig, SiblingMessage, ThreadPlace, UserSource,
};
use protocol::time::Time;
use wire::message::{Changed, Follow, Reply};
use wire::resp::Command;
use wire::{Message, Peer, ShimId, Status};

use crate::world;

const SHIM: Peer = Peer::Shim(ShimId(0));

struct Threads {
    now: Time,
    threads: Vec<Router>,
    /// To which thread, from which, and what.
    mail: VecDeque<(u16, u16, Box<SiblingMessage>)>,
    /// By thread and client.
    told: BTreeMap<(u16, u32), Vec<String>>,
    closed: Vec<(u16, u32)>,
    sent: Vec<(u16, Message)>,
}

impl Threads {
    fn of(count: u16, users: UserSource) -> Threads {
        let thread = |own| {
            let mut config = RouterConfig { users: users.clone(), seed: 1, ..RouterConfig::default() };
            config.place = ThreadPlace { own, count };
            (config.settings.slow_log.slower_than_us, config.settings.slow_log.entries_max) = (0, 128);
            world::router(config, world::map(1, 1, 1, &[]))
        };
        Threads {
            now: Time(5_000_000),
            threads: (0..count).map(thread).collect(),
            mail: VecDeque::new(),
            told: BTreeMap::new(),
            closed: Vec::new(),
            sent: Vec::new(),
        }
    }

    /// Two, each with two clients.
    fn two() -> Threads {
        let mut threads = Threads::of(2, UserSource::Given(std::sync::Arc::default()));
        for (thread, client) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            threads.open(thread, client);
        }
        threads
    }

    fn open(&mut self, thread: u16, client: u32) {
        let client = ClientId(client);
        self.step(thread, Input::Opened { client });
        let address = format!("10.0.0.{thread}:{}", client.0);
        self.step(thread, Input::Known { client, address, local_address: "10.9.9.9:7000".to_owned() });
    }

    fn step(&mut self, thread: u16, input: Input) {
        let mut effects = Vec::new();
        self.threads[usize::from(thread)].step(self.now, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Tell { thread: to, message } => self.mail.push_back((to, thread, message)),
                Effect::Reply { client, bytes } | Effect::Push { client, bytes } => {
                    let text = String::from_utf8_lossy(&bytes).replace("\r\n", " ").trim_end().to_owned();
                    self.told.entry((thread, client.0)).or_default().push(text);
                }
                Effect::Close { client, .. } => {
                    self.closed.push((thread, client.0));
                    self.step(thread, Input::Closed { client });
                }
                Effect::Send { message, .. } => self.sent.push((thread, message)),
                Effect::Part { .. } | Effect::Resume { .. } => {}
            }
        }
    }

    fn say(&mut self, thread: u16, client: u32, words: &[&str]) {
        let (client, command) = (ClientId(client), Command::from_args(words));
        assert!(self.threads[usize::from(thread)].ready(client), "{words:?} is not read yet");
        self.step(thread, Input::Command { client, command });
    }

    fn deliver_one(&mut self) {
        let (to, thread, message) = self.mail.pop_front().expect("something was told");
        self.step(to, Input::Sibling { thread, message });
    }

    fn deliver(&mut self) {
        while !self.mail.is_empty() {
            self.deliver_one();
        }
    }

    fn heard(&mut self, thread: u16, client: u32) -> Vec<String> {
        self.told.remove(&(thread, client)).unwrap_or_default()
    }

    /// What comes back once every thread has said what it has to say.
    fn ask(&mut self, thread: u16, client: u32, words: &[&str]) -> String {
        self.say(thread, client, words);
        assert_eq!(self.heard(thread, client), [""; 0], "{words:?} is answered before all have obeyed");
        self.deliver();
        self.heard(thread, client).join(" | ")
    }

    fn tick_after(&mut self, passed: Duration) {
        self.now = self.now.after(passed);
        (0..self.threads.len() as u16).for_each(|thread| self.step(thread, Input::Tick));
    }

    /// Answers everything that a thread has asked of the shim.
    fn answer(&mut self, thread: u16, value: &'static str) {
        let sent = std::mem::take(&mut self.sent);
        let (own, others) = sent.into_iter().partition(|(from, _)| *from == thread);
        self.sent = others;
        let own: Vec<(u16, Message)> = own;
        for (_, message) in own {
            let request = match message {
                Message::Read(read) => read.request,
                Message::Execute(execute) => execute.request,
                Message::Subscribe(subscribe) => subscribe.request,
                Message::Follow(Follow { request: Some(request), .. }) => request,
                _ => continue,
            };
            let (status, value) = (Status::Ok, Bytes::from_static(value.as_bytes()));
            let reply = Reply { request, status, value, ..Reply::default() };
            self.step(thread, Input::Message { from: SHIM, message: Message::Reply(reply) });
        }
    }

    /// The commands that a thread has sent and nobody has answered.
    fn asked(&self, thread: u16) -> Vec<String> {
        let own = self.sent.iter().filter(|(from, _)| *from == thread);
        let shown = own.filter_map(|(_, message)| match message {
            Message::Read(read) => Some(format!("GET {}", String::from_utf8_lossy(&read.key.bytes))),
            Message::Execute(execute) => {
                let command = Command::parse(execute.command.clone()).expect("a command");
                Some(command.args().map(String::from_utf8_lossy).collect::<Vec<_>>().join(" "))
            }
            _ => None,
        });
        shown.collect()
    }
}

fn field(info: &str, name: &str) -> Option<u64> {
    let value = info.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix(':'))?;
    value.parse().ok()
}

#[test]
fn clients_are_listed_and_numbered_over_all_threads() {
    let mut threads = Threads::two();
    let numbers: Vec<String> = [(0, 0), (0, 1), (1, 0), (1, 1)]
        .map(|(thread, client)| {
            threads.say(thread, client, &["CLIENT", "ID"]);
            threads.heard(thread, client).remove(0)
        })
        .into();
    assert_eq!(numbers, [":1", ":3", ":2", ":4"]);
    let list = threads.ask(1, 0, &["CLIENT", "LIST"]);
    let ids: Vec<&str> = list.split("id=").skip(1).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(&ids[..], ["1", "2", "3", "4"], "{list}");
    assert_eq!(threads.ask(0, 0, &["CLIENT", "LIST", "ID", "4"]).matches("addr=10.0.0.1:1").count(), 1);
}

#[test]
fn a_client_of_any_thread_is_killed() {
    let mut threads = Threads::two();
    assert_eq!(threads.ask(0, 0, &["CLIENT", "KILL", "ID", "4"]), ":1");
    assert_eq!(threads.closed, [(1, 1)]);
    assert_eq!(threads.ask(0, 0, &["CLIENT", "KILL", "ID", "4"]), ":0");
    assert_eq!(threads.ask(0, 0, &["CLIENT", "KILL", "10.0.0.9:9"]), "-ERR No such client");
    assert_eq!(threads.ask(0, 0, &["CLIENT", "KILL", "10.0.0.1:0"]), "+OK");
    // Itself too, but it hears of it first.
    threads.closed.clear();
    threads.say(0, 0, &["CLIENT", "KILL", "SKIPME", "no"]);
    assert_eq!(threads.closed, [(0, 1)]);
    threads.deliver();
    assert_eq!((threads.heard(0, 0).join(""), &threads.closed[1..]), (":2".to_owned(), &[(0, 0)][..]));
}

#[test]
fn a_pause_holds_when_it_is_answered() {
    let mut threads = Threads::two();
    threads.say(0, 0, &["CLIENT", "PAUSE", "10000"]);
    threads.say(1, 0, &["GET", "before"]);
    assert_eq!(threads.asked(1), ["GET before"], "nobody has said that the pause stands");
    threads.deliver();
    assert_eq!(threads.heard(0, 0), ["+OK"]);
    threads.say(1, 1, &["GET", "behind"]);
    assert_eq!(threads.asked(1), ["GET before"]);
    assert_eq!(threads.ask(1, 0, &["CLIENT", "UNPAUSE"]), "", "its GET comes first");
    threads.tick_after(Duration::from_millis(10));
    assert_eq!(threads.asked(1), ["GET before", "GET behind"]);
    threads.answer(1, "$1\r\nv\r\n");
    assert_eq!(threads.heard(1, 0), ["$1 v", "+OK"], "in the order of what was asked");
}

#[test]
fn a_client_that_blocks_in_another_thread_is_let_go() {
    let mut threads = Threads::two();
    threads.say(1, 1, &["BLPOP", "list", "0"]);
    assert_eq!(threads.ask(0, 0, &["CLIENT", "UNBLOCK", "3"]), ":0", "that one does not wait");
    assert_eq!(threads.ask(0, 0, &["CLIENT", "UNBLOCK", "4"]), ":1");
    assert_eq!(threads.asked(1), ["BLPOP list 0", "CLIENT UNBLOCK TIMEOUT"]);
}

#[test]
fn info_and_logs_are_those_of_the_router() {
    let mut threads = Threads::two();
    for (thread, key) in [(0, "a"), (1, "b"), (0, "c")] {
        threads.now = threads.now.after(Duration::from_secs(1));
        threads.say(thread, 0, &["GET", key]);
        threads.answer(thread, "$1\r\nv\r\n");
        threads.heard(thread, 0);
    }
    let clients = threads.ask(0, 1, &["INFO", "clients", "stats"]);
    assert_eq!(field(&clients, "connected_clients"), Some(4));
    assert!(field(&clients, "total_commands_processed") >= Some(4), "{clients}");
    let log = threads.ask(1, 1, &["SLOWLOG", "GET", "2"]);
    let (newest, next) = (log.find("GET $1 c"), log.find("GET $1 b"));
    assert!(newest.is_some() && newest < next && !log.contains("GET $1 a"), "{log}");
    assert_eq!(threads.ask(0, 1, &["SLOWLOG", "LEN"]), ":3");
    assert_eq!(threads.ask(0, 1, &["DISTCACHE", "SLOWLOG", "-1"]).matches("duration-us").count(), 3);
    assert_eq!(threads.ask(0, 1, &["SLOWLOG", "RESET"]), "+OK");
    assert_eq!(threads.ask(1, 1, &["SLOWLOG", "LEN"]), ":0");
    assert_eq!(threads.ask(1, 1, &["CONFIG", "SET", "slowlog-log-slower-than", "-1"]), "+OK");
    threads.say(0, 0, &["GET", "a"]);
    threads.answer(0, "$1\r\nv\r\n");
    assert_eq!(threads.ask(1, 1, &["SLOWLOG", "LEN"]), ":0", "no thread writes anything down any more");
    threads.say(0, 1, &["AUTH", "nobody", "nothing"]);
    threads.say(1, 1, &["AUTH", "somebody", "nothing"]);
    threads.heard(0, 1);
    threads.heard(1, 1);
    assert_eq!(threads.ask(0, 1, &["ACL", "LOG"]).matches("reason $4 auth").count(), 2);
    assert_eq!(threads.ask(0, 1, &["ACL", "LOG", "1"]).matches("reason $4 auth").count(), 1);
    assert_eq!(threads.ask(1, 1, &["ACL", "LOG", "RESET"]), "+OK");
    assert_eq!(threads.ask(0, 1, &["ACL", "LOG"]), "*0");
}

#[test]
fn what_is_wrong_is_told_at_once() {
    let mut threads = Threads::two();
    for words in [
        &["CLIENT", "LIST", "TYPE", "x"][..],
        &["CLIENT", "PAUSE", "-1"],
        &["CLIENT", "UNBLOCK", "x"],
        &["SLOWLOG", "GET", "x"],
        &["ACL", "LOG", "x"],
        &["CONFIG", "SET", "slowlog-max-len", "x"],
    ] {
        threads.say(0, 0, words);
        let heard = threads.heard(0, 0);
        assert!(heard.len() == 1 && heard[0].starts_with("-ERR"), "{words:?}: {heard:?}");
    }
    assert!(threads.mail.is_empty());
}

#[test]
fn a_transaction_waits_for_no_other_thread() {
    let mut threads = Threads::two();
    threads.say(0, 0, &["MULTI"]);
    threads.say(0, 0, &["CLIENT", "LIST"]);
    threads.say(0, 0, &["CLIENT", "ID"]);
    threads.heard(0, 0);
    threads.say(0, 0, &["EXEC"]);
    let heard = threads.heard(0, 0).join("");
    assert!(heard.starts_with("*2 -ERR DistCache: 'client|list' is about all threads"), "{heard}");
    assert!(heard.ends_with(":1") && threads.mail.is_empty());
}

#[test]
fn who_tracks_is_told_by_a_client_of_another_thread() {
    let mut threads = Threads::two();
    threads.say(1, 1, &["SUBSCRIBE", "__redis__:invalidate"]);
    threads.answer(1, "+OK\r\n");
    assert!(threads.heard(1, 1).join("").contains("subscribe"));
    threads.say(0, 0, &["CLIENT", "TRACKING", "ON", "REDIRECT", "9"]);
    threads.deliver();
    assert_eq!(threads.heard(0, 0), ["-ERR The client ID you want redirect to does not exist"]);
    assert_eq!(
        threads.ask(0, 0, &["CLIENT", "TRACKING", "OFF", "REDIRECT", "98", "OPTIN", "OPTOUT"]),
        "-ERR The client ID you want redirect to does not exist",
        "it is said as early as Redis says it"
    );
    assert!(threads.ask(0, 0, &["CLIENT", "TRACKING", "OFF", "REDIRECT", "4"]).starts_with("+OK"));
    threads.say(0, 0, &["CLIENT", "TRACKING", "ON", "REDIRECT", "4"]);
    // What it reads next depends on the answer.
    assert!(!threads.threads[0].ready(ClientId(0)));
    threads.deliver();
    threads.answer(0, "+OK\r\n");
    assert_eq!(threads.heard(0, 0), ["+OK"]);
    threads.say(0, 0, &["CLIENT", "GETREDIR"]);
    assert_eq!(threads.heard(0, 0), [":4"]);
    let read = |threads: &mut Threads| {
        threads.say(0, 0, &["GET", "k"]);
        threads.answer(0, "$1\r\nv\r\n");
        threads.heard(0, 0);
    };
    let change = |threads: &mut Threads| {
        let changed = Changed { writer: None, keys: Command::from_args(&["k"]).frame().clone() };
        threads.step(0, Input::Message { from: SHIM, message: Message::Changed(changed) });
        threads.deliver();
    };
    read(&mut threads);
    change(&mut threads);
    assert_eq!(threads.heard(1, 1), ["*3 $7 message $20 __redis__:invalidate *1 $1 k"]);
    // It is gone, and who tracks hears of that where it can.
    threads.say(0, 0, &["HELLO", "3"]);
    threads.heard(0, 0);
    read(&mut threads);
    threads.step(1, Input::Closed { client: ClientId(1) });
    threads.open(1, 1);
    change(&mut threads);
    assert_eq!(threads.heard(1, 1), [""; 0], "another has its place");
    assert_eq!(threads.heard(0, 0), [">2 $21 tracking-redir-broken :4"]);
}

#[test]
fn a_thread_that_has_ended_is_not_waited_for() {
    let mut threads = Threads::two();
    threads.say(0, 0, &["CLIENT", "KILL", "ID", "99"]);
    threads.mail.clear();
    threads.step(0, Input::Sibling { thread: 1, message: Box::new(SiblingMessage::Ended) });
    assert_eq!(threads.heard(0, 0), [":0"]);
    // It says so until its sockets are flushed.
    threads.step(0, Input::Sibling { thread: 1, message: Box::new(SiblingMessage::Ended) });
    threads.say(0, 0, &["SLOWLOG", "LEN"]);
    assert_eq!(threads.heard(0, 0), [":0"]);

    let mut threads = Threads::of(3, UserSource::Given(std::sync::Arc::default()));
    (0..3).for_each(|thread| threads.open(thread, 0));
    for _ in 0..3 {
        threads.step(0, Input::Sibling { thread: 1, message: Box::new(SiblingMessage::Ended) });
    }
    threads.say(0, 0, &["CLIENT", "KILL", "ID", "3"]);
    assert_eq!(threads.heard(0, 0), [""; 0], "one of the others is there");
    assert_eq!(threads.mail.iter().map(|(to, ..)| *to).collect::<Vec<_>>(), [2]);
    threads.deliver();
    assert_eq!(threads.heard(0, 0), [":1"]);
}

#[test]
fn who_comes_in_the_place_of_one_that_asked_hears_nothing_of_that() {
    let mut threads = Threads::two();
    threads.say(0, 0, &["CLIENT", "LIST"]);
    threads.step(0, Input::Closed { client: ClientId(0) });
    threads.open(0, 0);
    threads.say(0, 0, &["CLIENT", "UNPAUSE"]);
    threads.deliver_one();
    threads.deliver_one();
    assert!(threads.mail.is_empty() || threads.heard(0, 0).is_empty());
    threads.deliver();
    assert_eq!(threads.heard(0, 0), ["+OK"]);
}

/// One thread may have asked storage for its users before they changed, and be answered after.
#[test]
fn a_change_of_users_is_answered_when_every_thread_acts_on_it() {
    let mut threads = Threads::of(2, UserSource::Storage);
    const BEFORE: &str = "*1\r\n$34\r\nuser default on nopass ~* &* +@all\r\n";
    const AFTER: &str = "*1\r\n$39\r\nuser default on nopass ~* &* +@all -get\r\n";
    threads.tick_after(Duration::from_millis(60));
    for thread in [0, 1] {
        threads.open(thread, 0);
        threads.answer(thread, BEFORE);
    }
    // Its regular question is on its way.
    threads.tick_after(Duration::from_secs(2));
    assert_eq!(threads.asked(1), ["ACL LIST"]);
    threads.answer(0, BEFORE);
    threads.say(0, 0, &["ACL", "SETUSER", "default", "-get"]);
    threads.answer(0, "+OK\r\n");
    threads.answer(0, AFTER);
    threads.deliver();
    assert_eq!(threads.heard(0, 0), [""; 0]);
    // The answer to the question from before, and then to the one that was asked because of the change.
    threads.answer(1, BEFORE);
    threads.deliver();
    assert_eq!((threads.heard(0, 0), threads.asked(1)), (Vec::new(), vec!["ACL LIST".to_owned()]));
    threads.answer(1, AFTER);
    threads.deliver();
    assert_eq!(threads.heard(0, 0), ["+OK"]);
    threads.say(1, 0, &["GET", "k"]);
    assert!(threads.heard(1, 0).join("").starts_with("-NOPERM"));
}

/// Who pings hears of a script that holds the only server up, whose client it is.
#[test]
fn a_script_that_runs_for_long_is_known_to_all_threads() {
    let mut threads = Threads::two();
    threads.say(0, 0, &["EVAL", "while true do end", "0"]);
    threads.tick_after(Duration::from_millis(500));
    threads.deliver();
    threads.say(1, 0, &["PING"]);
    assert_eq!(threads.heard(1, 0), ["+PONG"], "many scripts are short");
    threads.tick_after(Duration::from_secs(1));
    threads.deliver();
    threads.say(1, 0, &["PING"]);
    assert_eq!(threads.asked(1), ["PING"]);
    threads.answer(1, "-BUSY Redis is busy running a script\r\n");
    threads.heard(1, 0);
    threads.answer(0, "$-1\r\n");
    threads.tick_after(Duration::from_millis(10));
    threads.deliver();
    threads.say(1, 0, &["PING"]);
    assert_eq!(threads.heard(1, 0), ["+PONG"]);
}
