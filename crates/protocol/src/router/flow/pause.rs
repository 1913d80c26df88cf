//! CLIENT PAUSE: commands for storage wait in their clients' pipelines until it is over. What the router answers itself,
//! it answers.

use std::time::Duration;

use bytes::Bytes;
use wire::resp::Command;

use crate::router::flow::answer::Freed;
use crate::router::flow::plan;
use crate::router::front::client::Client;
use crate::router::{Effect, Router, replies};
use crate::time::Time;
use commands::{CommandKind, integer};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    until: Time,
    /// Reads as well.
    all: bool,
}

impl Pause {
    /// CLIENT PAUSE timeout [WRITE | ALL]
    fn parse(now: Time, command: &Command) -> Result<Pause, Bytes> {
        let all = match command.len() {
            3 => true,
            4 if plan::is(command, 3, "ALL") => true,
            4 if plan::is(command, 3, "WRITE") => false,
            _ => return Err(replies::error("ERR syntax error")),
        };
        match integer(command.arg(2)) {
            None => Err(replies::error("ERR timeout is not an integer or out of range")),
            Some(ms) if ms < 0 => Err(replies::error("ERR timeout is negative")),
            Some(ms) => Ok(Pause { until: now.after(Duration::from_millis(ms as u64)), all }),
        }
    }

    /// The later end and the wider kind, as in Redis.
    fn joined(self, other: Pause) -> Pause {
        Pause { until: self.until.max(other.until), all: self.all || other.all }
    }
}

impl Router {
    pub(crate) fn begin_pause(&mut self, now: Time, command: &Command) -> Bytes {
        match Pause::parse(now, command) {
            Ok(pause) => {
                self.pause = Some(self.pause.map_or(pause, |before| before.joined(pause)));
                replies::OK
            }
            Err(error) => error,
        }
    }

    /// CLIENT UNPAUSE; the clients go on with the next tick.
    pub(crate) fn cut_pause(&mut self, now: Time) -> Bytes {
        if let Some(pause) = &mut self.pause {
            pause.until = now;
        }
        replies::OK
    }

    pub(crate) fn is_paused(&self, now: Time, kind: CommandKind) -> bool {
        let writes = matches!(
            kind,
            CommandKind::Write | CommandKind::BlockingWrite | CommandKind::Barrier | CommandKind::Publish
        );
        self.pause.is_some_and(|pause| now < pause.until && (pause.all || writes))
    }

    /// How many clients a pause holds back: INFO counts them among the blocked ones.
    pub(crate) fn paused_count(&self, now: Time) -> usize {
        if self.pause.is_none() {
            return 0;
        }
        let held = |client: &&Client| client.pipeline.waiting_kinds().any(|kind| self.is_paused(now, kind));
        self.clients.all().filter(held).count()
    }

    pub(crate) fn end_pause(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if self.pause.take_if(|pause| now >= pause.until).is_none() {
            return;
        }
        let waiting: Vec<u32> = self.clients.numbered().map(|(client, _)| client).collect();
        for client in waiting {
            self.advance(now, client, Freed::All, effects);
        }
    }
}
