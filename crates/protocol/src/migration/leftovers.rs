//! What a server has of keys that are about to come to it, from an earlier life of the keys or of the server: it goes before the first
//! of them comes, since afterwards nobody can tell the one from the other. Not when they may come.
//!
//! A shim that has had no keys has a server without any. If there are some, nobody knows whose they are: they stay, and it is said.
//!
//! That nothing is there goes on record at the server before anything comes. So a process that takes the server over and finds it on record
//! deletes nothing, whatever map it has heard of last.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use wire::resp::Value;

use super::Departures;
use super::scan::{PAGE, REST, page};
use super::transfer::{frame, text};
use crate::storage::{Lane, Reach, StorageEvent, Store};
use crate::time::Time;

/// The machine's tickets are no shim's, and none of `Migration`'s.
const OWN: u64 = 1 << 62;

/// All that it can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftoversEffect {
    Store(Store),
    /// Nothing of what comes is there, and nothing that was asked can be carried out late.
    Gone,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum LeftoversQuestion {
    #[default]
    None,
    Count,
    Scan,
    /// For keys of the page that ends before this cursor.
    Unlink(Bytes),
}

/// The keys at one server that have to go.
#[derive(Clone, Debug, Default)]
pub struct Leftovers {
    /// Whose keys come, until it has been said that they may.
    departures: Option<Arc<dyn Departures>>,
    /// Another process may have looked already.
    again: bool,
    /// The server was on record when it was taken over.
    divided: bool,
    /// Nothing of them is there.
    gone: bool,
    up: bool,
    incarnation: Option<u64>,
    owes_fence: bool,
    question: LeftoversQuestion,
    /// Tells the answer to the last question from those to others.
    number: u64,
    rests_until: Time,
    reason: Option<String>,
}

impl Leftovers {
    /// Whether the ticket is this machine's.
    pub fn owns(ticket: u64) -> bool {
        ticket & OWN != 0 && ticket >> 63 == 0
    }

    /// Whether something may be there still.
    pub fn is_busy(&self) -> bool {
        self.departures.is_some() && !self.gone
    }

    /// Whether nothing is there, and that was not said yet.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// Why it takes longer.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Keys come from now on, once `Gone` has been said. `again`: another process may have begun with it.
    pub fn begin(
        &mut self,
        now: Time,
        departures: Arc<dyn Departures>,
        again: bool,
        effects: &mut Vec<LeftoversEffect>,
    ) {
        (self.departures, self.again) = (Some(departures), again);
        (self.gone, self.reason) = (false, None);
        self.restart(now, effects);
    }

    /// Keys may come from now on, or none does: never is anything deleted again.
    pub fn end(&mut self) {
        (self.departures, self.gone, self.reason) = (None, false, None);
    }

    /// Takes what the server reports; its own tickets' events are for nobody else.
    pub fn event(&mut self, now: Time, event: &StorageEvent, effects: &mut Vec<LeftoversEffect>) {
        match event {
            StorageEvent::Up { incarnation, traits, .. } => {
                if self.incarnation.replace(*incarnation) != Some(*incarnation) {
                    // What another one was asked cannot be carried out any more, it may have had other keys, and another process may
                    // have had it meanwhile.
                    self.owes_fence = false;
                    self.gone &= self.departures.is_none();
                    (self.again, self.divided) = (true, traits.divided);
                }
                self.up = true;
                self.restart(now, effects);
            }
            StorageEvent::Down { .. } => self.up = false,
            StorageEvent::Fenced if self.owes_fence => {
                self.owes_fence = false;
                self.restart(now, effects);
            }
            StorageEvent::Lost { ticket, sent } if Leftovers::owns(*ticket) => {
                self.owes_fence |= sent;
                self.question = LeftoversQuestion::None;
                self.rests_until = now.after(REST);
            }
            StorageEvent::Replies { ticket, replies } if *ticket == OWN | self.number => {
                let reply = replies.first().cloned().unwrap_or_default();
                self.answered(now, &reply, effects);
            }
            _ => {}
        }
    }

    pub fn tick(&mut self, now: Time, effects: &mut Vec<LeftoversEffect>) {
        if self.question == LeftoversQuestion::None && now >= self.rests_until {
            self.restart(now, effects);
        }
    }

    /// From the beginning.
    fn restart(&mut self, now: Time, effects: &mut Vec<LeftoversEffect>) {
        self.rests_until = now;
        let may_ask = self.up && !self.owes_fence && !self.gone;
        let Some(departures) = self.departures.as_ref().filter(|_| may_ask) else { return };
        if self.again && self.divided {
            // What is there now may have come.
            return self.has_ended(effects);
        }
        match departures.is_first() {
            true => self.ask(LeftoversQuestion::Count, frame(&[b"DBSIZE"]), effects),
            false => self.scan(b"0", effects),
        }
    }

    fn scan(&mut self, cursor: &[u8], effects: &mut Vec<LeftoversEffect>) {
        self.ask(LeftoversQuestion::Scan, frame(&[b"SCAN", cursor, b"COUNT", PAGE]), effects);
    }

    fn ask(&mut self, question: LeftoversQuestion, command: Bytes, effects: &mut Vec<LeftoversEffect>) {
        self.question = question;
        self.number = (self.number + 1) % OWN;
        let (lane, commands) = (Lane::Shared { resp3: false }, SmallVec::from_elem(command, 1));
        let store = Store { ticket: OWN | self.number, lane, reach: Reach::Whole, commands };
        effects.push(LeftoversEffect::Store(store));
    }

    fn answered(&mut self, now: Time, reply: &Bytes, effects: &mut Vec<LeftoversEffect>) {
        let Some(departures) = self.departures.clone().filter(|_| !self.gone) else { return };
        let value = Value::parse(reply).ok();
        match (std::mem::take(&mut self.question), value) {
            (LeftoversQuestion::Count, Some(Value::Integer(0))) => self.has_ended(effects),
            (LeftoversQuestion::Count, Some(Value::Integer(keys))) => {
                let reason = format!(
                    "its server has {keys} keys already, and nobody knows whose they are: empty it (FLUSHALL), and it goes on"
                );
                self.rest(now, reason);
            }
            (LeftoversQuestion::Scan, Some(value)) => match page(&value) {
                Some((cursor, mut keys)) => {
                    keys.retain(|key| departures.arrives(key));
                    self.unlink(cursor, &keys, effects);
                }
                None => self.rest(now, format!("SCAN: {}", text(reply))),
            },
            (LeftoversQuestion::Unlink(cursor), Some(Value::Integer(_))) => self.next_page(&cursor, effects),
            (question, _) => self.rest(now, format!("{question:?}: {}", text(reply))),
        }
    }

    fn unlink(&mut self, cursor: Bytes, keys: &[Bytes], effects: &mut Vec<LeftoversEffect>) {
        if keys.is_empty() {
            return self.next_page(&cursor, effects);
        }
        let words: Vec<&[u8]> =
            std::iter::once(&b"UNLINK"[..]).chain(keys.iter().map(|key| &key[..])).collect();
        self.ask(LeftoversQuestion::Unlink(cursor), frame(&words), effects);
    }

    /// SCAN meets every key that is there all the time, and none comes.
    fn next_page(&mut self, cursor: &Bytes, effects: &mut Vec<LeftoversEffect>) {
        match &cursor[..] {
            b"0" => self.has_ended(effects),
            cursor => self.scan(cursor, effects),
        }
    }

    fn rest(&mut self, now: Time, reason: String) {
        self.reason = Some(reason);
        self.rests_until = now.after(REST);
    }

    fn has_ended(&mut self, effects: &mut Vec<LeftoversEffect>) {
        (self.gone, self.reason) = (true, None);
        effects.push(LeftoversEffect::Gone);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use smallvec::SmallVec;
    use wire::ShimId;
    use wire::resp::Command;

    use super::{Leftovers, LeftoversEffect};
    use crate::coherence::lease::EarlierIncarnations;
    use crate::migration::Departures;
    use crate::storage::{StorageEvent, StorageTraits, Store};
    use crate::time::Time;

    /// Keys whose names begin with an `a` arrive.
    #[derive(Debug)]
    struct Arrivals {
        is_first: bool,
    }

    impl Departures for Arrivals {
        fn destination(&self, _: &[u8]) -> Option<ShimId> {
            None
        }

        fn arrives(&self, key: &[u8]) -> bool {
            key.starts_with(b"a")
        }

        fn is_first(&self) -> bool {
            self.is_first
        }
    }

    fn up(incarnation: u64) -> StorageEvent {
        taken_over(incarnation, false)
    }

    /// A server that is on record, or is not.
    fn taken_over(incarnation: u64, divided: bool) -> StorageEvent {
        let traits = StorageTraits { divided, ..StorageTraits::default() };
        StorageEvent::Up { incarnation, traits, earlier: EarlierIncarnations::NONE }
    }

    /// A server that tells its keys in pages of two.
    struct World {
        machine: Leftovers,
        now: Time,
        keys: BTreeSet<String>,
        asked: Vec<Store>,
        gone: bool,
    }

    impl World {
        fn new(keys: &[&str], is_first: bool) -> World {
            let keys = keys.iter().map(|key| (*key).to_owned()).collect();
            let machine = Leftovers::default();
            let mut world = World { machine, now: Time(0), keys, asked: Vec::new(), gone: false };
            world.event(&up(1));
            assert!(world.asked.is_empty());
            world.act(|machine, now, effects| {
                machine.begin(now, Arc::new(Arrivals { is_first }), false, effects)
            });
            world
        }

        fn act(&mut self, step: impl FnOnce(&mut Leftovers, Time, &mut Vec<LeftoversEffect>)) {
            let mut effects = Vec::new();
            step(&mut self.machine, self.now, &mut effects);
            for effect in effects {
                match effect {
                    LeftoversEffect::Store(store) => self.asked.push(store),
                    LeftoversEffect::Gone => self.gone = true,
                }
            }
        }

        fn event(&mut self, event: &StorageEvent) {
            self.act(|machine, now, effects| machine.event(now, event, effects));
        }

        fn pass(&mut self, ms: u64) {
            self.now = self.now.after(Duration::from_millis(ms));
            self.act(Leftovers::tick);
        }

        fn carry_out(&mut self, store: &Store) -> Bytes {
            let command = Command::parse(store.commands[0].clone()).expect("a command");
            let words: Vec<String> =
                command.args().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
            let reply = match &words[0][..] {
                "DBSIZE" => format!(":{}\r\n", self.keys.len()),
                "SCAN" => {
                    let at: usize = words[1].parse().expect("a cursor");
                    let all: Vec<&String> = self.keys.iter().collect();
                    // Cursors are places in the alphabet, so that what is deleted moves nobody.
                    let rest = all.iter().filter(|key| usize::from(key.as_bytes()[1]) >= at);
                    let page: Vec<&&String> = rest.take(2).collect();
                    let next = page.get(1).map_or(0, |last| usize::from(last.as_bytes()[1]) + 1);
                    let keys: String =
                        page.iter().map(|key| format!("${}\r\n{key}\r\n", key.len())).collect();
                    let next = next.to_string();
                    format!("*2\r\n${}\r\n{next}\r\n*{}\r\n{keys}", next.len(), page.len())
                }
                "UNLINK" => {
                    let gone = words[1..].iter().filter(|key| self.keys.remove(*key)).count();
                    format!(":{gone}\r\n")
                }
                other => panic!("{other}"),
            };
            Bytes::from(reply)
        }

        fn answer(&mut self, reply: Option<&'static str>) {
            let store = self.asked.remove(0);
            assert!(Leftovers::owns(store.ticket));
            let reply =
                reply.map_or_else(|| self.carry_out(&store), |reply| Bytes::from_static(reply.as_bytes()));
            let replies = SmallVec::from_elem(reply, 1);
            self.event(&StorageEvent::Replies { ticket: store.ticket, replies });
        }

        fn answer_all(&mut self) {
            while !self.asked.is_empty() {
                self.answer(None);
            }
        }

        fn left(&self) -> Vec<&str> {
            self.keys.iter().map(String::as_str).collect()
        }
    }

    const KEYS: [&str; 6] = ["xa", "ab", "ac", "xd", "ae", "xf"];

    #[test]
    fn what_comes_goes_first_and_nothing_else() {
        let mut world = World::new(&KEYS, false);
        world.answer_all();
        assert!(world.gone && !world.machine.is_busy());
        assert_eq!(world.left(), ["xa", "xd", "xf"]);
        world.keys.insert("ab".to_owned());
        world.event(&up(2));
        world.answer_all();
        assert_eq!(world.left(), ["xa", "xd", "xf"], "another server may have what the one before had not");
        world.machine.end();
        world.event(&up(3));
        world.pass(10_000);
        assert!(world.asked.is_empty(), "what is there now has come");
    }

    #[test]
    fn a_first_server_with_keys_is_left_as_it_is() {
        let mut world = World::new(&KEYS, true);
        world.answer_all();
        assert!(
            !world.gone && world.machine.reason().is_some_and(|reason| reason.contains("has 6 keys already"))
        );
        world.keys.clear();
        world.pass(500);
        assert!(world.asked.is_empty());
        world.pass(500);
        world.answer_all();
        assert!(world.gone && world.machine.reason().is_none());
    }

    #[test]
    fn what_was_lost_is_fenced_before_anything_ends() {
        let mut world = World::new(&KEYS, false);
        world.answer(None);
        assert!(
            world.asked[0].commands[0].windows(6).any(|word| word == b"UNLINK"),
            "what comes is on the first page"
        );
        let store = world.asked.remove(0);
        world.event(&StorageEvent::Lost { ticket: store.ticket, sent: true });
        world.pass(5000);
        assert!(world.asked.is_empty() && !world.gone, "it may be carried out late");
        world.carry_out(&store);
        world.event(&StorageEvent::Fenced);
        world.answer_all();
        assert!(world.gone);
        assert_eq!(world.left(), ["xa", "xd", "xf"]);
    }

    #[test]
    fn another_server_is_gone_through_from_the_beginning() {
        let mut world = World::new(&KEYS, false);
        world.answer(None);
        let stale = world.asked.remove(0);
        world.event(&StorageEvent::Down { reason: "it has ended".into(), gone: true });
        assert!(world.asked.is_empty());
        world.event(&up(2));
        let reply = Bytes::from_static(b"*2\r\n$1\r\n0\r\n*0\r\n");
        world.event(&StorageEvent::Replies { ticket: stale.ticket, replies: SmallVec::from_elem(reply, 1) });
        assert!(!world.gone, "that was said of the one before");
        world.answer_all();
        assert!(world.gone);
        assert_eq!(world.left(), ["xa", "xd", "xf"]);
    }

    #[test]
    fn an_answer_that_is_none_is_said_and_asked_for_again() {
        let mut world = World::new(&KEYS, false);
        world.answer(Some("-NOPERM no permissions to run the 'scan' command\r\n"));
        assert!(world.machine.reason().is_some_and(|reason| reason.contains("NOPERM")));
        world.pass(1000);
        world.answer_all();
        assert!(world.gone);
    }

    #[test]
    fn who_takes_over_a_server_that_is_on_record_deletes_nothing() {
        let mut world = World::new(&KEYS, false);
        world.answer(None);
        // Another process has had it meanwhile, has looked through it, and keys have come.
        world.event(&StorageEvent::Down { reason: "another process serves it".into(), gone: false });
        world.event(&taken_over(2, true));
        world.answer(Some("*2\r\n$1\r\n0\r\n*1\r\n$2\r\nab\r\n"));
        assert!(world.gone && world.asked.is_empty());
        assert_eq!(
            world.left(),
            KEYS.iter().copied().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        );
        // A server that has come back without the record is another one.
        world.gone = false;
        world.event(&taken_over(3, false));
        world.answer_all();
        assert!(world.gone);
        assert_eq!(world.left(), ["xa", "xd", "xf"]);
    }

    #[test]
    fn one_that_stands_by_hears_that_keys_may_come_before_it_has_the_server() {
        let mut world = World::new(&KEYS, false);
        world.answer(None);
        world.asked.clear();
        world.event(&StorageEvent::Down { reason: "another process serves it".into(), gone: false });
        world.machine.end();
        world.event(&taken_over(2, false));
        world.pass(10_000);
        assert!(world.asked.is_empty() && !world.gone);
    }
}
