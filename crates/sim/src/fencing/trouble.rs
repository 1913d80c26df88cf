//! What goes wrong with processes, connections and the server, and how it ends. Not what follows from it.

use protocol::storage::network::{ConnectionId, StorageInput};

use super::{Event, PROCESSES_MAX, Party, World};

/// What ends by itself.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trouble {
    Replica,
    /// For long enough that everybody knows, with no other trouble beside.
    LongReplica,
    Busy,
}

/// Pauses that have begun before, a new connection and a second look fit into it.
const REPLICA: u64 = 8_000_000;
/// Between two troubles, mostly.
const PEACE: u64 = 300_000;

impl World {
    pub(super) fn trouble(&mut self) -> Result<(), String> {
        if self.now >= self.troubled_until {
            return self.end_all();
        }
        let due = self.now + self.random.wait(PEACE) + 1;
        self.queue.push(due, Event::Trouble);
        if self.alone_until > self.now {
            return Ok(());
        }
        let process = self.random.index(self.processes.len());
        match self.random.below(100) {
            0..35 => self.break_connection(process),
            35..50 => {
                let time = self.random.below(1_500_000);
                self.pause(Party::Server, time);
            }
            50..55 => {
                self.changes.push(self.now);
                self.at_site(|site, at| {
                    let gone = site.server.restart(at.random.percent(50), at.random.percent(30));
                    site.cut(at, &gone);
                });
            }
            55..60 => {
                self.at_site(|site, at| {
                    let gone = site.server.lose_users();
                    site.cut(at, &gone);
                });
            }
            60..64 => {
                self.site.server.set_primary(false);
                self.heals(Trouble::Replica, 800_000);
            }
            64 => {
                self.site.server.set_primary(false);
                self.alone_until = self.now + REPLICA;
                self.queue.push(self.alone_until, Event::Heal(Trouble::LongReplica));
            }
            65..72 => {
                self.site.server.is_busy = true;
                self.heals(Trouble::Busy, 600_000);
            }
            72..82 => {
                let time = self.random.below(1_500_000);
                self.pause(Party::Process(process), time);
            }
            82..88 => self.end_process(process),
            88..91 => {
                self.step(process, StorageInput::Leave)?;
                self.end_process(process);
            }
            _ => {}
        }
        let alive = self.processes.iter().filter(|process| process.machine.is_some()).count();
        if alive == 0 || alive < PROCESSES_MAX && self.random.percent(6) {
            self.start_process();
        }
        Ok(())
    }

    fn heals(&mut self, trouble: Trouble, most: u64) {
        let due = self.now + self.random.below(most);
        self.queue.push(due, Event::Heal(trouble));
    }

    pub(super) fn heal(&mut self, trouble: Trouble) -> Result<(), String> {
        match trouble {
            Trouble::LongReplica => {
                let begun = self.now - REPLICA;
                let served = (0..self.processes.len()).find(|process| self.is_up(*process));
                if let Some(process) = served.filter(|_| !self.site.server.is_primary) {
                    return Err(format!("process {process} serves what is a replica since {begun} us"));
                }
                return self.heal(Trouble::Replica);
            }
            Trouble::Replica if !self.site.server.is_primary => {
                self.changes.push(self.now);
                self.site.server.set_primary(true);
            }
            Trouble::Replica => {}
            Trouble::Busy => self.site.server.is_busy = false,
        }
        Ok(())
    }

    /// Nothing is wrong any more, but for pauses that run.
    fn end_all(&mut self) -> Result<(), String> {
        self.site.habits.late_percent = 0;
        self.heal(Trouble::Busy)?;
        self.heal(Trouble::Replica)
    }

    /// Both ends find out, each in its time. What has arrived at the server is carried out until then.
    fn break_connection(&mut self, process: usize) {
        let all: Vec<ConnectionId> = self.processes[process].links.all().collect();
        if all.is_empty() {
            return;
        }
        let connection = self.random.pick(&all);
        self.at_site(|site, at| {
            let rest = if at.random.percent(50) { at.random.below(400_000) } else { 0 };
            let waits = (at.random.below(100_000), at.random.below(1_500_000), rest);
            site.break_connection(at.now, connection, waits);
        });
    }

    /// The process is gone at once; what it has written may still arrive.
    fn end_process(&mut self, process: usize) {
        let own = &mut self.processes[process];
        (own.machine, own.up) = (None, None);
        let all: Vec<ConnectionId> = own.links.all().collect();
        self.at_site(|site, at| {
            for connection in all {
                let wait = at.random.below(300_000);
                site.gone(at.now, connection, wait);
            }
        });
    }
}
