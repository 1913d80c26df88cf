//! What goes wrong with processes, connections and any server, and how it ends. Not what follows from it.

use protocol::storage::network::{ConnectionId, StorageInput};

use super::world::{Event, Party, Scene, World};

const PROCESSES_MAX: usize = 3;
/// Between two troubles, mostly.
const PEACE: u64 = 300_000;
/// How long one that hands over is waited for.
const HANDOVER_MAX: u64 = 2_000_000;
/// How long somebody does nothing, at most.
const PAUSE: u64 = 1_500_000;

impl<S: Scene> World<S> {
    pub(super) fn trouble(&mut self) -> Result<(), String> {
        if self.now >= self.troubled_until {
            self.sites.iter_mut().for_each(|site| site.habits.late_percent = 0);
            return S::end_trouble(self);
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
                let (site, time) = (self.random.index(self.sites.len()), self.random.below(PAUSE));
                self.pause(Party::Server(site), time);
            }
            50..60 => {
                let time = self.random.below(PAUSE);
                self.pause(Party::Process(process), time);
            }
            60..66 => self.end_process(process),
            66..68 => {
                self.step(process, StorageInput::Leave)?;
                self.end_process(process);
            }
            68..72 => {
                let Some(process) = (0..self.processes.len()).find(|process| self.serves(*process)) else {
                    return Ok(());
                };
                self.processes[process].leaves = true;
                S::hands_over(self, process);
                // Whoever runs it does not wait for ever.
                self.queue.push(self.now + HANDOVER_MAX, Event::Left(process));
                self.step(process, StorageInput::HandOver)?;
            }
            72..76 => self.processes_but(process, StorageInput::Vacant { gone: true })?,
            76..98 => {
                let draw = self.random.below(100);
                S::trouble(self, draw)?;
            }
            _ => {}
        }
        let alive = self.processes.iter().filter(|process| process.machine.is_some()).count();
        if alive == 0 || alive < PROCESSES_MAX && self.random.percent(6) {
            self.start_process();
        }
        Ok(())
    }

    /// Whether it is up and means to stay.
    fn serves(&self, process: usize) -> bool {
        self.is_up(process) && !self.processes[process].leaves
    }

    /// All others believe that one is gone, rightly or not.
    fn processes_but(&mut self, one: usize, input: StorageInput) -> Result<(), String> {
        let others = (0..self.processes.len()).filter(|process| *process != one);
        others.collect::<Vec<_>>().into_iter().try_for_each(|process| self.step(process, input.clone()))
    }

    pub(super) fn own_event(&mut self, wait_max: u64, what: S::Own) {
        let due = self.now + self.random.below(wait_max);
        self.queue.push(due, Event::Own(what));
    }

    /// A server has another state from now on.
    pub(super) fn changes(&mut self, site: usize) {
        self.changes.push((self.now, site));
    }

    /// Both ends find out, each in its time. What has arrived at the server is carried out until then.
    fn break_connection(&mut self, process: usize) {
        let all: Vec<ConnectionId> = self.processes[process].links.all().collect();
        if all.is_empty() {
            return;
        }
        let connection = self.random.pick(&all);
        self.at_site(self.routes[&connection], |site, at| {
            let rest = if at.random.percent(50) { at.random.below(400_000) } else { 0 };
            let waits = (at.random.below(100_000), at.random.below(PAUSE), rest);
            site.break_connection(at.now, connection, waits);
        });
    }

    /// The process is gone at once; what it has written may still arrive.
    pub(super) fn end_process(&mut self, process: usize) {
        let own = &mut self.processes[process];
        (own.machine, own.up) = (None, None);
        let all: Vec<ConnectionId> = own.links.all().collect();
        for connection in all {
            self.at_site(self.routes[&connection], |site, at| {
                let wait = at.random.below(300_000);
                site.gone(at.now, connection, wait);
            });
        }
    }
}
