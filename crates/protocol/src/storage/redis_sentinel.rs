//! Storage on whichever Redis server the sentinels say is the primary. Not how one server is reached and fenced.

use core::net::{IpAddr, SocketAddr};
use std::time::Duration;

use wire::resp::{Command, Value};

use super::discovery::{Discovery, Found};
use super::login::Login;
use super::network::{Backend, ConnectionId, Endpoint, Network, StorageInput};
use super::redis::{Redis, RedisSettings};
use super::step::StorageStep;
use super::{NoteLevel, StorageEvent};
use crate::time::Time;

/// How often the next sentinel is asked, while storage is up and while it is not.
const ASK_INTERVAL: Duration = Duration::from_millis(500);
const ASK_INTERVAL_DOWN: Duration = Duration::from_millis(100);
/// How long one sentinel is waited for: the others have their turns behind it.
const ANSWERS_MAX: Duration = Duration::from_secs(1);

/// `server` is for the primary but for its address.
#[derive(Clone, Debug)]
pub struct RedisSentinelSettings {
    pub sentinels: Vec<SocketAddr>,
    /// Name of the group of servers, as the sentinels call it.
    pub name: String,
    pub sentinel_user: Option<String>,
    pub sentinel_password: Option<String>,
    pub server: RedisSettings,
}

/// What a sentinel says of the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Primary {
    address: SocketAddr,
    /// Grows with every failover.
    epoch: u64,
}

pub struct RedisSentinel {
    settings: RedisSettings,
    sentinels: Vec<SocketAddr>,
    discovery: Discovery,
    asked: usize,
    asked_at: Time,
    /// What each sentinel has said last, and when it was asked.
    said: Vec<Option<(Time, Primary)>>,
    /// The primary of the last failover that any sentinel has told of.
    newest: Option<Primary>,
    /// The last primary that was used.
    known: Option<Primary>,
    current: Option<Redis>,
    /// Reconnects of the servers before this one.
    reconnects: u64,
    switches: u64,
    /// Number of the last watch that a server before this one was told of.
    watches: u64,
}

impl Backend for RedisSentinel {
    fn step(
        &mut self,
        now: Time,
        input: StorageInput,
        network: &mut dyn Network,
        events: &mut Vec<StorageEvent>,
    ) {
        let step = &mut StorageStep { now, network, events };
        match &input {
            StorageInput::Connected(connection)
            | StorageInput::Data { connection, .. }
            | StorageInput::Closed { connection, .. }
                if self.discovery.owns(*connection) =>
            {
                self.discovery.step(input, step.network, step.events);
                return self.discovered(step);
            }
            StorageInput::Tick => {
                self.leave_unvouched(step);
                self.ask(step);
            }
            _ => {}
        }
        match (&mut self.current, input) {
            (Some(redis), input) => redis.step(step.now, input, step.network, step.events),
            (None, StorageInput::Store(store)) => {
                step.events.push(StorageEvent::Lost { ticket: store.ticket, sent: false });
            }
            (None, StorageInput::HandOver) => step.events.push(StorageEvent::Left),
            (None, _) => {}
        }
    }

    fn owns(&self, id: ConnectionId) -> bool {
        self.discovery.owns(id) || self.redis().is_some_and(|redis| redis.owns(id))
    }

    fn is_up(&self) -> bool {
        self.redis().is_some_and(Redis::is_up)
    }

    fn refusal(&self) -> Option<&str> {
        match self.redis() {
            Some(redis) => redis.refusal(),
            None => self.discovery.refusal(),
        }
    }

    fn is_replaced(&self) -> bool {
        self.redis().is_some_and(Redis::is_replaced)
    }

    fn reconnects(&self) -> u64 {
        self.reconnects + self.redis().map_or(0, Redis::reconnects)
    }

    fn pending_count(&self) -> usize {
        self.redis().map_or(0, Redis::pending_count)
    }
}

impl RedisSentinel {
    pub fn new(settings: RedisSentinelSettings) -> RedisSentinel {
        let RedisSentinelSettings { sentinels, name, sentinel_user, sentinel_password, server } = settings;
        let question = Command::from_args(&["SENTINEL", "MASTER", &name]);
        let login = Login::new(sentinel_user, sentinel_password);
        RedisSentinel {
            discovery: Discovery::new(login, question, remedy, server.timeout.min(ANSWERS_MAX)),
            settings: server,
            said: vec![None; sentinels.len()],
            sentinels,
            asked: 0,
            asked_at: Time(0),
            newest: None,
            known: None,
            current: None,
            reconnects: 0,
            switches: 0,
            watches: 0,
        }
    }

    fn redis(&self) -> Option<&Redis> {
        self.current.as_ref()
    }

    /// The sentinels in turn: one that is cut off from the others knows old news only.
    fn ask(&mut self, step: &mut StorageStep<'_>) {
        let interval =
            if self.is_up() && !self.hears_of_another() { ASK_INTERVAL } else { ASK_INTERVAL_DOWN };
        if step.now.since(self.asked_at) < interval {
            return;
        }
        (self.asked_at, self.asked) = (step.now, self.asked + 1);
        let sentinel = self.sentinels[self.asked % self.sentinels.len()];
        self.discovery.ask(step.network, step.now, sentinel);
    }

    fn discovered(&mut self, step: &mut StorageStep<'_>) {
        let Some(Found { server: sentinel, asked, value }) = self.discovery.take_found() else { return };
        match primary(&value, sentinel.ip()) {
            Some(primary) => {
                if let Some(place) = self.sentinels.iter().position(|known| *known == sentinel) {
                    self.said[place] = Some((asked, primary));
                    if self.newest.is_none_or(|newest| primary.epoch > newest.epoch) {
                        self.newest = Some(primary);
                    }
                }
                if !self.needs_majority() || self.is_agreed(step.now, primary) {
                    self.adopt(step, primary);
                }
            }
            None => {
                let text = format!("{sentinel}: an answer without an address");
                step.events.push(StorageEvent::Note { level: NoteLevel::Warning, text });
            }
        }
    }

    /// Where another process may be this shim, on another host, a few sentinels that are cut off from the others must not keep two
    /// of them at work, each before a primary of its own.
    fn needs_majority(&self) -> bool {
        self.settings.standby.is_some()
    }

    fn majority(&self) -> usize {
        self.sentinels.len() / 2 + 1
    }

    /// For how long a sentinel's word counts: each has its turn meanwhile, however many do not answer.
    fn word_max(&self) -> Duration {
        (ANSWERS_MAX + ASK_INTERVAL) * self.sentinels.len() as u32 + ANSWERS_MAX
    }

    /// How many sentinels have named this primary lately.
    fn vouching(&self, now: Time, address: SocketAddr) -> usize {
        let counts = |(at, primary): &&(Time, Primary)| {
            primary.address == address && now.since(*at) <= self.word_max()
        };
        self.said.iter().flatten().filter(counts).count()
    }

    /// Whether most sentinels name this primary, and none a later one.
    fn is_agreed(&self, now: Time, primary: Primary) -> bool {
        self.vouching(now, primary.address) >= self.majority() && !self.is_earlier(primary)
    }

    /// Whether there was a failover to another one after the one to this.
    fn is_earlier(&self, primary: Primary) -> bool {
        let newest = self.newest.filter(|newest| newest.address != primary.address);
        newest.is_some_and(|newest| newest.epoch > primary.epoch)
    }

    /// Whether some sentinel names another primary than the one that is used: the others are asked at once.
    fn hears_of_another(&self) -> bool {
        let used = self.known.map(|primary| primary.address);
        self.needs_majority() && self.said.iter().flatten().any(|(_, primary)| Some(primary.address) != used)
    }

    /// Serves nothing any more on the word of a few, and takes nothing over.
    fn leave_unvouched(&mut self, step: &mut StorageStep<'_>) {
        let used = self.known.filter(|_| self.current.is_some() && self.needs_majority());
        let Some(primary) = used else { return };
        let (address, all) = (primary.address, self.sentinels.len());
        let vouching = self.vouching(step.now, address);
        if vouching < self.majority() {
            self.leave(step, format!("only {vouching} of {all} sentinels say that {address} is the primary"));
        } else if self.is_earlier(primary) && !self.is_up() {
            self.leave(
                step,
                format!("a sentinel knows a later primary than {address}, and the others not yet"),
            );
        }
    }

    /// Lets go of the server that is used.
    fn leave(&mut self, step: &mut StorageStep<'_>, reason: String) {
        let Some(mut redis) = self.current.take() else { return };
        self.watches = redis.watch_last();
        self.reconnects += redis.reconnects() + u64::from(redis.is_up());
        redis.step(step.now, StorageInput::Leave, step.network, step.events);
        step.events.push(StorageEvent::Down { reason, gone: false });
    }

    /// Another server is another storage state: its takeover has a number of its own. What was sent to the old one and is
    /// carried out late there is lost with that one's data.
    fn adopt(&mut self, step: &mut StorageStep<'_>, primary: Primary) {
        let up = self.is_up();
        match &mut self.known {
            Some(known) if known.address == primary.address => {
                known.epoch = known.epoch.max(primary.epoch);
                if self.current.is_some() {
                    return;
                }
            }
            Some(known) => {
                let newer = primary.epoch > known.epoch || primary.epoch == known.epoch && !up;
                if !newer {
                    return;
                }
                let reason = format!("the primary is {} now", primary.address);
                let text = format!("sentinels have switched: {reason}, was {}", known.address);
                step.events.push(StorageEvent::Note { level: NoteLevel::Warning, text });
                self.leave(step, reason);
            }
            None => {}
        }
        let epoch = self.known.map_or(0, |known| known.epoch).max(primary.epoch);
        self.known = Some(Primary { epoch, ..primary });
        // What the one before has granted is on record there.
        let settings = self.settings.clone();
        let settings = if self.switches == 0 { settings } else { settings.after_another() };
        self.switches += 1;
        let mut redis = Redis::new(RedisSettings {
            endpoint: Endpoint::Discovered(primary.address),
            address: primary.address.to_string(),
            seed: self.settings.seed.wrapping_add(self.switches),
            ..settings
        });
        redis.forget_watches(self.watches);
        self.current = Some(redis);
    }
}

/// From the reply to SENTINEL MASTER, names and values in turn.
fn primary(found: &Value, sentinel: IpAddr) -> Option<Primary> {
    let text = |value: &Value| value.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let field = |name: &str| {
        let pair = found.elements()?.chunks_exact(2).find(|pair| text(&pair[0]).as_deref() == Some(name))?;
        text(&pair[1])
    };
    let ip: IpAddr = field("ip")?.parse().ok()?;
    // A sentinel beside its primary may know it as the loopback address of its own machine.
    let ip = if ip.is_loopback() && !sentinel.is_loopback() { sentinel } else { ip };
    let address = SocketAddr::new(ip, field("port")?.parse().ok()?);
    let epoch = field("config-epoch")?.parse().ok()?;
    // Who leads a failover has its epoch before the address that goes with it: until it is over, its word is the last
    // that counts.
    let is_leading = field("flags")?.split(',').any(|flag| flag == "failover_in_progress");
    Some(Primary { address, epoch: if is_leading { 0 } else { epoch } })
}

/// What a person has to do about a sentinel's error; none if it may pass.
fn remedy(error: &str, logging_in: bool) -> Option<&'static str> {
    Some(match error.split(' ').next().unwrap_or_default() {
        "NOAUTH" => "write redis+sentinel://.../NAME?sentinel_password=PASSWORD in `storage`",
        "NOPERM" => "give the sentinel user +sentinel|master",
        _ if logging_in => "check sentinel_user and sentinel_password in `storage`",
        _ if error.contains("No such master") => {
            "the sentinels call it by another name: redis+sentinel://HOST:PORT/NAME"
        }
        _ if error.contains("unknown command") => {
            "this is no sentinel; its port is 26379 unless set otherwise"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wire::resp::Value;

    use super::{Primary, primary, remedy};

    #[test]
    fn the_primary_is_read_from_what_a_sentinel_says() {
        let check = |words: &str, expected: Option<(&str, u64)>| {
            let bulk = |word: &str| Value::Bulk(Bytes::copy_from_slice(word.as_bytes()));
            let reply = Value::Array(words.split(' ').map(bulk).collect());
            let expected = expected
                .map(|(address, epoch)| Primary { address: address.parse().expect("an address"), epoch });
            assert_eq!(primary(&reply, "127.0.0.1".parse().expect("an IP")), expected, "{words}");
        };
        check("name m ip 127.0.0.1 port 7000 flags master config-epoch 3", Some(("127.0.0.1:7000", 3)));
        check("ip ::1 port 7000 flags master config-epoch 0", Some(("[::1]:7000", 0)));
        check("ip redis.example port 7000 flags master config-epoch 0", None);
        check("ip 127.0.0.1 flags master config-epoch 0", None);
        let leading = "ip 127.0.0.1 port 7000 flags s_down,master,failover_in_progress config-epoch 3";
        check(leading, Some(("127.0.0.1:7000", 0)));
    }

    #[test]
    fn an_error_says_what_to_do() {
        let check = |logging_in, error, expected: &str| {
            let found = remedy(error, logging_in);
            assert!(found.is_some_and(|text| text.contains(expected)), "{found:?}");
        };
        check(false, "ERR No such master with that name", "by another name");
        check(false, "ERR unknown command 'SENTINEL', with args", "no sentinel");
        check(false, "NOAUTH Authentication required.", "sentinel_password=");
        check(true, "WRONGPASS invalid", "check sentinel_user");
        assert_eq!(remedy("LOADING", false), None);
    }
}
