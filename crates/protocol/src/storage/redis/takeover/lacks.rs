//! What a takeover makes of errors, and how it goes on without what the server does not allow, if it may. Not what it asks.

use std::time::Duration;

use rand::RngExt as _;
use wire::resp::Value;

use super::super::server;
use super::{
    EarlierIncarnations, FenceDemand, Incarnation, Legacy, Progress, Step, StorageTraits, Takeover, Trouble,
    Unrecorded,
};
use crate::time::Time;

/// What the server has answered in place of what was asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Lacks {
    /// So that nobody knows which run of which server this is.
    pub(super) identity: Option<String>,
    /// So that no incarnation has a user of its own.
    pub(super) users: Option<String>,
    /// So that nobody knows what becomes of what a lost connection had.
    pub(super) kills: Option<String>,
}

impl Lacks {
    pub(super) fn forget_fences(&mut self) {
        (self.users, self.kills) = (None, None);
    }

    /// For people.
    pub(super) fn told(&self) -> Option<String> {
        let identity = self.identity.as_ref().map(|error| {
            format!("which run of the server this is stays unknown ({error}), so each new connection drops every copy")
        });
        let users = self.users.as_ref().map(|error| {
            format!("earlier processes of this shim cannot be fenced off ({error}), and are followed like others who write")
        });
        let kills = self.kills.as_ref().map(|error| {
            format!("a lost connection cannot be ended ({error}): what it had may be written late, and is followed then")
        });
        let told: Vec<String> = [identity, users, kills].into_iter().flatten().collect();
        (!told.is_empty())
            .then(|| format!("mode bounded does without what the server refuses: {}", told.join("; ")))
    }
}

/// Whether the server does not have or does not allow what it was asked. It may be busy, or full, and allow it.
fn is_refusal(error: &str) -> bool {
    let code = error.split(' ').next().unwrap_or_default();
    matches!(code, "NOPERM" | "ERR") && !error.contains("max number of clients")
}

impl Takeover {
    /// Goes on where the server refuses what there may be done without.
    pub(super) fn does_without(&mut self, now: Time, error: &str) -> Option<Progress> {
        if self.demand == FenceDemand::Always || !is_refusal(error) {
            return None;
        }
        // Of what it does not know it shows what it was told.
        let error = error.split(", with args").next().unwrap_or_default();
        let lack = Some(format!("{}: {error}", self.asked()));
        self.step = match self.step {
            Step::Server | Step::Replication => {
                self.lacks.identity = lack;
                Step::Greeting
            }
            Step::Clock => return Some(self.identified()),
            // Who stands by has to know who serves.
            Step::WhoAmI | Step::Rules | Step::TryDelete | Step::Look | Step::Make if self.stands_by => {
                return None;
            }
            Step::Successor if !self.stands_by => Step::WhoAmI,
            Step::WhoAmI | Step::Rules | Step::TryDelete => {
                self.lacks.users = lack;
                Step::TryKill
            }
            Step::TryKill => {
                self.lacks.kills = lack;
                self.after_permissions()
            }
            Step::Keyspace => {
                self.hear_keyspace(Value::Null);
                Step::Mark
            }
            Step::Look | Step::Make => {
                self.lacks.users = self.lacks.users.take().or(lack);
                self.govern_beside(now)
            }
            Step::Fence => {
                self.lacks.kills = lack;
                self.fence_or(if self.incarnation.is_some() { Step::Settled } else { Step::Server })
            }
            _ => return None,
        };
        Some(Progress::Next)
    }

    pub(super) fn hear_keyspace(&mut self, keyspace: Value) {
        if let Some(mark) = &mut self.mark {
            mark.hear_keyspace(keyspace);
        }
    }

    pub(super) fn is_first_here(&self) -> bool {
        self.record.is_first && !self.has_governed
    }

    pub(super) fn draw_number(&mut self) -> u64 {
        self.random.random_range(1..=u64::MAX)
    }

    pub(super) fn after_permissions(&self) -> Step {
        if self.mark.is_some() { Step::Keyspace } else { Step::Look }
    }

    /// What is next if lost connections are fenced, or cannot be.
    pub(super) fn fence_or(&mut self, next: Step) -> Step {
        if self.lacks.kills.is_some() {
            self.unfenced.clear();
        }
        if self.unfenced.is_empty() { next } else { Step::Fence }
    }

    /// A run that is none of those before: whatever the connection was made to, the next one may be made to another.
    pub(super) fn unknown_run(&self) -> String {
        format!("connection-{}", self.connections)
    }

    /// Takes the reply to HELLO, or to TIME behind it; nothing if it does not say what the server is.
    pub(super) fn met(&mut self, now: Time, reply: &Value) -> Result<Option<Progress>, Trouble> {
        if self.step == Step::Clock {
            if let (Some(mark), Some(time)) = (&mut self.mark, server::time(reply)) {
                mark.hear_time(now, time);
            }
            return Ok(Some(self.identified()));
        }
        let Some(greeting) = server::Greeting::read(reply) else { return Ok(None) };
        self.traits = server::traits(&greeting.info(), self.cluster_mode).map_err(Trouble::Refused)?;
        if !greeting.is_primary {
            return Err(self.replica());
        }
        self.identity = server::Identity { run_id: self.unknown_run(), ..server::Identity::default() };
        self.step = Step::Clock;
        Ok(Some(Progress::Next))
    }

    /// Other users are known.
    pub(super) fn looked(&mut self, now: Time) -> Step {
        match () {
            () if self.lacks.users.is_some() => self.govern_beside(now),
            () if self.others.strangers.is_empty() => Step::Make,
            () => Step::Strangers,
        }
    }

    /// Governs as the user of the settings. An earlier incarnation may do so, too, and is one more of those who write.
    pub(super) fn govern_beside(&mut self, now: Time) -> Step {
        let (user, password) = self.configured.clone();
        let earlier = self.earlier_beside(now);
        self.candidate = Some(Incarnation {
            number: self.draw_number(),
            user: user.unwrap_or_else(|| "default".to_owned()),
            password,
            has_user: false,
            traits: StorageTraits { short_leases: true, unfenced: true, ..self.traits },
            legacy: Legacy { wait: self.record.wait, data: Some(self.identity.tag()) },
            earlier,
            identity: self.identity.clone(),
        });
        let lost = std::mem::take(&mut self.unfenced);
        self.govern(now);
        (self.shrinks_at, self.unfenced) = (None, lost);
        self.fence_or(Step::Settled)
    }

    /// Incarnations without a user have granted short leases. Others are on record, as users or in the mark.
    fn earlier_beside(&self, now: Time) -> EarlierIncarnations {
        let mark = self.mark.as_ref().filter(|mark| mark.is_found());
        let known = match mark {
            Some(_) => self.without_users(now),
            None if self.is_first_here() => EarlierIncarnations::NONE,
            None => EarlierIncarnations::unrecorded(Unrecorded::Within(Duration::ZERO)),
        };
        match &self.others.legacy {
            Some(legacy) => {
                EarlierIncarnations { recorded: known.recorded.max(legacy.wait), same_data: false, ..known }
            }
            None => known,
        }
    }

    pub(super) fn asked(&self) -> &'static str {
        match self.step {
            Step::Login => "AUTH",
            Step::Server => "INFO server",
            Step::Replication => "INFO replication",
            Step::Greeting => "HELLO",
            Step::Clock => "TIME",
            Step::WhoAmI => "ACL WHOAMI",
            Step::Rules => "ACL LIST",
            Step::TryKill | Step::Fence => "CLIENT KILL",
            Step::Make | Step::Shrink => "ACL SETUSER",
            Step::Look | Step::List | Step::Successor => "ACL USERS",
            Step::Connections | Step::Strangers => "CLIENT LIST",
            Step::Keyspace => "INFO keyspace",
            Step::Mark => "FUNCTION LIST",
            Step::TryDelete | Step::Delete => "ACL DELUSER",
            Step::Settled => "nothing",
        }
    }

    /// What an error means, if it means anything.
    pub(super) fn trouble(&self, error: &str) -> Option<Trouble> {
        let asked = self.asked();
        let code = error.split(' ').next().unwrap_or_default();
        Some(match code {
            "BUSY" | "LOADING" | "MASTERDOWN" => Trouble::Wait(error.to_owned()),
            // The server knows of no functions, or does not tell of them: it keeps no mark.
            _ if self.step == Step::Mark => return None,
            _ if error.contains("max number of clients") => Trouble::Broken(error.to_owned()),
            "NOAUTH" => Trouble::Refused(format!(
                "{error} The URL in `storage` has to hold a password: redis://USER:PASSWORD@HOST:PORT"
            )),
            _ if self.step == Step::Login => Trouble::Refused(format!(
                "{asked}: {error} Check user and password in `storage` (redis://USER:PASSWORD@HOST:PORT)"
            )),
            _ if is_refusal(error) => {
                let error = error.split(", with args").next().unwrap_or_default();
                Trouble::Refused(format!("{asked}: {error}: {}", self.remedy()))
            }
            "DENIED" => Trouble::Refused(error.to_owned()),
            _ => Trouble::Broken(format!("{asked}: {error}")),
        })
    }

    /// What to do about a server that refuses what a fence needs.
    fn remedy(&self) -> &'static str {
        match self.demand {
            FenceDemand::Always => {
                "give the storage user +acl +info +client, without which earlier shims and lost connections cannot be fenced \
                 off, as mode strict needs it; where the server allows no such user, write mode = \"bounded\" in [cluster]. \
                 `distcache doctor` shows what the server allows"
            }
            FenceDemand::WherePossible if self.stands_by => {
                "give the storage user +acl +info +client, without which nobody knows which process of a shim serves; where the \
                 server allows no such user, there can be no [[standby]]. `distcache doctor` shows what the server allows"
            }
            FenceDemand::WherePossible => "give the storage user +acl +info +client",
        }
    }
}
