//! One Redis server: a run ends, users go, it becomes a replica, a script keeps it busy. Not what a machine makes of it.

use std::time::Duration;

use bytes::Bytes;
use protocol::coherence::lease::{EarlierIncarnations, LeaseLimits};
use protocol::storage::network::{Backend, Endpoint};
use protocol::storage::redis::{LeaseRecord, Redis, RedisSettings};
use wire::resp::{Command, reply};

use super::leases::LeaseBook;
use super::world::{Event, HABITS, Scene, World};
use crate::random::SimRandom;
use crate::shape::RefusedFences;
use crate::storage::redis::{Outcome, RedisServer};
use crate::storage::site::{Done, Site};
use crate::storage::{Effect, settings};

/// How long successors wait for leases of one process or the other.
const WAITS: [Duration; 3] = [Duration::from_secs(3), Duration::from_secs(1), Duration::from_millis(20)];
/// What is waited for whoever has left no record.
const LIMITS: LeaseLimits = LeaseLimits { wait_max: WAITS[0], short: Duration::from_millis(100), growth: 2 };
/// A server that is silent for this long is taken for lost.
pub(super) const PATIENCE: Duration = Duration::from_millis(300);
/// Pauses that have begun before, a new connection and a second look fit into it.
const REPLICA: u64 = 8_000_000;

#[derive(Debug)]
pub(super) struct RedisScene {
    leases: LeaseBook,
}

/// What ends by itself.
#[derive(Clone, Copy, Debug)]
pub(super) enum Heal {
    Replica,
    /// For long enough that everybody knows, with no other trouble beside.
    LongReplica,
    Busy,
}

/// For the machine of a process.
pub(super) fn redis_settings(seed: u64) -> RedisSettings {
    let wait = WAITS[seed as usize % WAITS.len()];
    let record = LeaseRecord { wait, limits: LIMITS, is_first: false };
    // Some of them know that there are others.
    let standby = ((seed >> 8) % 4).checked_sub(1).map(|place| place as u8);
    RedisSettings { pinned_max: 4, standby, ..settings("the server".to_owned(), PATIENCE, seed, record) }
}

/// The command with this number: carried out twice it would be answered otherwise.
pub(super) fn request(number: u64) -> Command {
    let number = number.to_string();
    Command::from_args(&["INCRBY", &number, &number])
}

pub(super) fn reply_to(number: u64) -> Bytes {
    let mut out = Vec::new();
    reply::integer(number as i64, &mut out);
    out.into()
}

pub(super) fn number(outcome: &Outcome) -> Option<u64> {
    let text = std::str::from_utf8(outcome.command.get(1)?).ok()?;
    text.parse().ok().filter(|_| outcome.effect != Effect::Read)
}

impl RedisScene {
    fn users_may_be_lost(world: &mut World<RedisScene>) {
        if world.sites[0].server.has_no_users() {
            world.scene.leases.lost(world.now);
        }
    }
}

impl Scene for RedisScene {
    type Server = RedisServer;
    type Own = Heal;

    const LANES: bool = true;
    const NOTICED: u64 = 10_000_000;

    fn build(_random: &mut SimRandom) -> (RedisScene, Vec<Site<RedisServer>>) {
        (
            RedisScene { leases: LeaseBook::new(LIMITS) },
            vec![Site::new(RedisServer::new(RefusedFences::default()), HABITS)],
        )
    }

    fn machine(&self, seed: u64) -> Box<dyn Backend> {
        Box::new(Redis::new(redis_settings(seed)))
    }

    fn site(&self, _endpoint: Endpoint) -> usize {
        0
    }

    fn request(number: u64) -> Command {
        request(number)
    }

    fn reply(number: u64) -> Bytes {
        reply_to(number)
    }

    fn number(outcome: &Outcome) -> Option<u64> {
        number(outcome)
    }

    fn trouble(world: &mut World<RedisScene>, draw: u64) -> Result<(), String> {
        match draw {
            0..25 => {
                world.changes(0);
                world.at_site(0, |site, at| {
                    // What its file has may be of long ago.
                    if at.random.percent(50) {
                        site.server.save();
                    }
                    let gone = site.server.restart(at.random.percent(50), at.random.percent(30));
                    site.cut(at, &gone);
                });
                RedisScene::users_may_be_lost(world);
            }
            25..50 => {
                world.at_site(0, |site, at| {
                    let gone = site.server.lose_users();
                    site.cut(at, &gone);
                });
                RedisScene::users_may_be_lost(world);
            }
            50..70 => {
                world.sites[0].server.set_primary(false);
                world.own_event(800_000, Heal::Replica);
            }
            70..74 => {
                world.sites[0].server.set_primary(false);
                world.alone_until = world.now + REPLICA;
                world.queue.push(world.alone_until, Event::Own(Heal::LongReplica));
            }
            _ => {
                world.sites[0].server.is_busy = true;
                world.own_event(600_000, Heal::Busy);
            }
        }
        Ok(())
    }

    fn executes(world: &mut World<RedisScene>, _site: usize, done: &Done) {
        world.scene.leases.executed(world.now, &done.outcome.command);
    }

    fn hands_over(world: &mut World<RedisScene>, process: usize) {
        world.scene.leases.hands_over(world.processes[process].up);
    }

    fn comes_up(
        world: &mut World<RedisScene>,
        process: usize,
        earlier: EarlierIncarnations,
    ) -> Result<(), String> {
        let number = world.processes[process].up.unwrap_or_default();
        world.scene.leases.up(world.now, number, earlier)?;
        world.book.tally.inherited = world.scene.leases.inherited;
        world.book.tally.marked = world.scene.leases.marked;
        world.book.tally.handed_over = world.scene.leases.handed_over;
        Ok(())
    }

    fn end_trouble(world: &mut World<RedisScene>) -> Result<(), String> {
        RedisScene::happens(world, Heal::Busy)?;
        RedisScene::happens(world, Heal::Replica)
    }

    fn happens(world: &mut World<RedisScene>, heal: Heal) -> Result<(), String> {
        match heal {
            Heal::LongReplica => {
                let begun = world.now - REPLICA;
                let served = (0..world.processes.len()).find(|process| world.is_up(*process));
                if let Some(process) = served.filter(|_| !world.sites[0].server.is_primary) {
                    return Err(format!("process {process} serves what is a replica since {begun} us"));
                }
                return RedisScene::happens(world, Heal::Replica);
            }
            Heal::Replica if !world.sites[0].server.is_primary => {
                world.changes(0);
                world.sites[0].server.set_primary(true);
            }
            Heal::Replica => {}
            Heal::Busy => world.sites[0].server.is_busy = false,
        }
        Ok(())
    }
}
