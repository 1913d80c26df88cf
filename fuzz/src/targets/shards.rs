//! A shim's slots on a Redis Cluster whose servers say anything: every command has one outcome, and none goes to a server
//! that is not there.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use protocol::coherence::lease::EarlierIncarnations;
use protocol::shards::{Effect, Input, Shards, ShardsConfig};
use protocol::storage::{CommandControl, Lane, Reach, StorageEvent, StorageTraits, Store};
use protocol::time::Time;
use wire::ShimId;
use wire::resp::Command;

const REPLIES: &[&str] = &[
    "+OK\r\n",
    ":1\r\n",
    "$-1\r\n",
    "*0\r\n",
    "-MOVED 7 127.0.0.1:7002\r\n",
    "-ASK 7 127.0.0.1:7001\r\n",
    "-ASK 7 :7003\r\n",
    "-ASK 7\r\n",
    "-TRYAGAIN multiple keys\r\n",
    "-CLUSTERDOWN Hash slot not served\r\n",
    "-EXECABORT no\r\n",
    "$-9\r\n",
    "",
];
const COMMANDS: &[&str] = &[
    "GET a",
    "DBSIZE",
    "SCAN 7",
    "FLUSHALL",
    "RANDOMKEY",
    "EVAL x 0",
    "SUBSCRIBE __key",
    "PING",
    "INFO",
    "nonsense",
];
const FLAGS: &[&str] = &["master", "slave", "master,fail", "myself,master", "noaddr"];

pub(crate) fn run(data: &[u8]) {
    // Running out of bytes is the end of the story.
    let _ = play(&mut Unstructured::new(data));
}

struct World {
    shards: Shards,
    now: Time,
    servers: BTreeSet<SocketAddr>,
    /// At servers: whose, and how many replies are due.
    sent: BTreeMap<u64, (SocketAddr, usize)>,
    /// Commands of the shim that are under way: how many replies each wants.
    open: BTreeMap<u64, usize>,
}

fn play(bytes: &mut Unstructured<'_>) -> Result<()> {
    let shims_count = bytes.int_in_range(1..=3)?;
    let config = ShardsConfig {
        shim: ShimId(0),
        shims_count,
        seeds: vec![server(1)],
        patience: Duration::from_millis(100),
        seed: 1,
    };
    let mut world = World {
        shards: Shards::new(config),
        now: Time(1_000_000),
        servers: BTreeSet::new(),
        sent: BTreeMap::new(),
        open: BTreeMap::new(),
    };
    let mut tickets = 0;
    for _ in 0..200 {
        let server = server(bytes.int_in_range(1..=3)?);
        let input = match bytes.int_in_range(0..=8)? {
            0 => Input::Seen { server, text: view(bytes)? },
            1 | 2 => {
                tickets += 1;
                let store = store(bytes, tickets)?;
                world.open.insert(tickets, store.commands.len());
                Input::Store(store)
            }
            3 => {
                world.now = world.now.after(Duration::from_millis(u64::from(bytes.arbitrary::<u8>()?)));
                Input::Tick
            }
            4 => Input::Control { ticket: bytes.int_in_range(0..=tickets)?, control: CommandControl::Abort },
            5 => Input::Release { number: bytes.int_in_range(0..=9)?, clean: bytes.arbitrary()? },
            6 => {
                let event = match bytes.int_in_range(0..=4)? {
                    0 => StorageEvent::Down { reason: "told to".to_owned(), gone: true },
                    1 => StorageEvent::Fenced,
                    2 => StorageEvent::Unsubscribed,
                    3 => StorageEvent::Published(Bytes::from_static(
                        b">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n",
                    )),
                    _ => {
                        let incarnation = bytes.int_in_range(7..=8)?;
                        StorageEvent::Up {
                            incarnation,
                            traits: StorageTraits::default(),
                            earlier: EarlierIncarnations::NONE,
                        }
                    }
                };
                Input::Server { server, event }
            }
            _ => match answer(bytes, &mut world)? {
                Some(input) => input,
                None => continue,
            },
        };
        world.step(input);
    }
    Ok(())
}

impl World {
    fn step(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.shards.step(self.now, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Report(StorageEvent::Replies { ticket, replies }) => {
                    let wanted = self.open.remove(&ticket);
                    assert_eq!(wanted, Some(replies.len()), "{ticket}: {replies:?}");
                }
                Effect::Report(StorageEvent::Lost { ticket, .. }) => {
                    assert!(self.open.remove(&ticket).is_some(), "{ticket} has ended before");
                }
                Effect::Connect { server } => assert!(self.servers.insert(server), "{server} is connected"),
                Effect::Leave { server } => {
                    assert!(self.servers.remove(&server), "{server} is not connected");
                    assert!(self.sent.values().all(|(at, _)| *at != server), "{server} owes replies");
                }
                Effect::Store { server, store } => {
                    assert!(self.servers.contains(&server), "{server} is not connected");
                    let before = self.sent.insert(store.ticket, (server, store.commands.len()));
                    assert_eq!(before, None, "a ticket is used twice");
                }
                Effect::Control { server, ticket, control: CommandControl::Abort } => {
                    assert_eq!(self.sent[&ticket].0, server);
                }
                Effect::Control { server, ticket, .. } => {
                    let elsewhere = self.sent.get(&ticket).is_some_and(|(at, _)| *at != server);
                    assert!(!elsewhere, "{ticket} is not at {server}");
                }
                Effect::Report(_) | Effect::Release { .. } | Effect::Ask { .. } | Effect::Warn(_) => {}
            }
        }
    }
}

fn server(number: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7000 + number))
}

fn view(bytes: &mut Unstructured<'_>) -> Result<Bytes> {
    if bytes.ratio(1, 8)? {
        return Ok(Bytes::copy_from_slice(bytes.arbitrary::<&[u8]>()?));
    }
    let mut text = String::new();
    for number in 1..=3 {
        let (flags, epoch) = (bytes.choose(FLAGS)?, bytes.arbitrary::<u8>()?);
        let first: u16 = bytes.int_in_range(0..=16_383)?;
        let last = bytes.int_in_range(first..=16_383)?;
        let moving = if bytes.ratio(1, 4)? { format!("[{first}->-x]") } else { String::new() };
        let address = server(number);
        text += &format!("{number} {address}@1 {flags} - 0 0 {epoch} connected {first}-{last} {moving}\n");
    }
    Ok(text.into())
}

fn store(bytes: &mut Unstructured<'_>, ticket: u64) -> Result<Store> {
    let resp3 = bytes.arbitrary()?;
    let lane = match bytes.int_in_range(0..=5)? {
        0 => Lane::Pinned { resp3 },
        1 => Lane::Subscriber,
        2 => Lane::Watching { number: bytes.int_in_range(1..=9)?, resp3 },
        3 => Lane::Scripts { resp3 },
        _ => Lane::Shared { resp3 },
    };
    let reach = match bytes.int_in_range(0..=3)? {
        0 => Reach::Whole,
        1 => Reach::Proof,
        _ => Reach::Slot(bytes.int_in_range(0..=16_383)?),
    };
    let frame = |text: &str| Command::from_args(&text.split(' ').collect::<Vec<_>>()).frame().clone();
    let one = frame(bytes.choose(COMMANDS)?);
    let commands = match bytes.int_in_range(0..=3)? {
        0 if reach != Reach::Proof => vec![frame("MULTI"), one, frame("EXEC")],
        _ => vec![one],
    };
    Ok(Store { ticket, lane, reach, commands: commands.into() })
}

/// An outcome of something that a server was asked.
fn answer(bytes: &mut Unstructured<'_>, world: &mut World) -> Result<Option<Input>> {
    if world.sent.is_empty() {
        return Ok(None);
    }
    let index = bytes.choose_index(world.sent.len())?;
    let Some((&ticket, &(server, count))) = world.sent.iter().nth(index) else { return Ok(None) };
    world.sent.remove(&ticket);
    if bytes.ratio(1, 8)? {
        let event = StorageEvent::Lost { ticket, sent: bytes.arbitrary()? };
        return Ok(Some(Input::Server { server, event }));
    }
    let mut replies = Vec::with_capacity(count);
    for _ in 0..count {
        replies.push(Bytes::from_static(bytes.choose(REPLIES)?.as_bytes()));
    }
    let event = StorageEvent::Replies { ticket, replies: replies.into() };
    Ok(Some(Input::Server { server, event }))
}
