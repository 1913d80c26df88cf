//! The store on a real etcd that is killed, stopped, compacted and emptied. Not what controllers make of it.

#[path = "../../../runtime/tests/tls/authority.rs"]
mod authority;
mod server;

use std::time::{Duration, Instant};

use authority::{Authority, NAMELESS};
use config::{Config, Secret, StoreTls};
use controller::store::{ControllerStore, EtcdSettings, EtcdStore, StoreChange, StoreError};
use protocol::time::Time;
use runtime::tls::{Asker, Certificates};
use server::{Etcd, installed, until};

/// Telling the store something takes no longer than a lock: it is never waited for.
const AT_ONCE: Duration = Duration::from_millis(1500);
const NOW: Time = Time(0);

/// A replica's end of the store, with all that it has seen.
struct Replica {
    store: EtcdStore,
    seen: Vec<StoreChange>,
}

impl Replica {
    fn new(endpoints: &[String]) -> Replica {
        Replica::with(endpoints, None, None)
    }

    fn with(endpoints: &[String], login: Option<(&str, &str)>, tls: Option<Asker>) -> Replica {
        let (cluster, lease) = ("test".to_owned(), Duration::from_secs(2));
        let login = login.map(|(name, password)| (name.to_owned(), password.to_owned()));
        let settings = EtcdSettings { endpoints: endpoints.to_vec(), login, tls, cluster, lease };
        Replica { store: EtcdStore::start(settings).expect("threads start"), seen: Vec::new() }
    }

    fn of(etcd: &Etcd) -> Replica {
        Replica::new(&[etcd.endpoint()])
    }

    fn look(&mut self) -> Result<(), StoreError> {
        let changes = self.store.changes(NOW)?;
        self.seen.extend(changes);
        Ok(())
    }

    /// Until it has seen `change`; what came before it is forgotten.
    fn until(&mut self, change: &StoreChange) {
        until(&format!("{change:?}"), || {
            drop(self.look());
            let position = self.seen.iter().position(|seen| seen == change)?;
            drop(self.seen.drain(..=position));
            Some(())
        });
    }

    /// Proposes until a map is there, and returns its version. `version` is that of the map before it, unless there
    /// has been another since.
    fn publish(&mut self, version: u64, map: &str) -> u64 {
        until("the map is taken", || {
            drop(self.look());
            let newest = self.seen.iter().rev().find_map(|change| match change {
                StoreChange::Map { version, value } => Some((*version, value.as_str())),
                _ => None,
            });
            match newest {
                Some((version, value)) if value == map => return Some(version),
                newest => self.store.propose(NOW, newest.map_or(version, |(version, _)| version), map),
            }
            None
        })
    }

    fn until_away(&mut self) {
        until("the store is away", || self.look().err());
    }

    fn until_there(&mut self) {
        until("the store is there", || self.look().ok());
    }
}

fn registered(member: &str) -> StoreChange {
    StoreChange::Registered { member: member.to_owned() }
}

fn gone(member: &str) -> StoreChange {
    StoreChange::Gone { member: member.to_owned() }
}

#[test]
fn members_are_there_until_their_lease_ends_or_they_leave() {
    if !installed() {
        return;
    }
    let etcd = Etcd::start();
    let (mut a, mut b) = (Replica::of(&etcd), Replica::of(&etcd));
    // Heartbeats reach all replicas: whoever is first registers the member, and all keep it.
    for replica in [&mut a, &mut b] {
        replica.store.keep(NOW, "n0");
        replica.store.keep(NOW, "n1");
        replica.store.keep(NOW, "n2");
    }
    for replica in [&mut a, &mut b] {
        until("all are registered", || {
            drop(replica.look());
            let new = replica.seen.iter().filter(|change| matches!(change, StoreChange::Registered { .. }));
            (new.count() >= 3).then_some(())
        });
        replica.seen.clear();
    }
    b.store.forget(NOW, "n1");
    a.until(&gone("n1"));
    // n2 is kept by one of them, n0 by none.
    let start = Instant::now();
    until("the lease of n0 ends", || {
        b.store.keep(NOW, "n2");
        drop(a.look());
        a.seen.contains(&gone("n0")).then_some(())
    });
    assert!(start.elapsed() > Duration::from_secs(1), "not before its time");
    assert!(!a.seen.contains(&gone("n2")));
    a.store.keep(NOW, "n0");
    b.until(&registered("n0"));
    // Whoever comes later hears of everybody that is there.
    let mut c = Replica::of(&etcd);
    c.until_there();
    assert!(c.seen.contains(&registered("n0")) && c.seen.contains(&registered("n2")), "{:?}", c.seen);
    assert!(!c.seen.contains(&registered("n1")));
}

#[test]
fn one_proposal_of_each_version_wins_and_all_see_it() {
    if !installed() {
        return;
    }
    let etcd = Etcd::start();
    let (mut a, mut b) = (Replica::of(&etcd), Replica::of(&etcd));
    let first = a.publish(0, "one");
    b.until(&StoreChange::Map { version: first, value: "one".to_owned() });
    b.store.propose(NOW, 0, "late");
    let second = b.publish(first, "two");
    assert!(second > first);
    a.until(&StoreChange::Map { version: second, value: "two".to_owned() });
    a.store.propose(NOW, first, "late as well");
    let third = a.publish(second, "three");
    b.seen.clear();
    b.until(&StoreChange::Map { version: third, value: "three".to_owned() });
    let maps =
        |replica: &Replica| replica.seen.iter().filter(|c| matches!(c, StoreChange::Map { .. })).count();
    assert_eq!(maps(&b), 0, "{:?}", b.seen);
}

#[test]
fn an_etcd_that_dies_or_hangs_holds_nobody_up_and_goes_on_where_it_was() {
    if !installed() {
        return;
    }
    let mut etcd = Etcd::start();
    let mut replica = Replica::of(&etcd);
    replica.store.keep(NOW, "n0");
    replica.until(&registered("n0"));
    let mut version = replica.publish(0, "one");
    for trouble in ["killed", "stopped"] {
        match trouble {
            "killed" => etcd.kill(),
            _ => etcd.signal("STOP"),
        }
        replica.until_away();
        let start = Instant::now();
        replica.store.keep(NOW, "n0");
        replica.store.forget(NOW, "nobody");
        replica.store.propose(NOW, version, trouble);
        assert!(replica.look().is_err());
        assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
        match trouble {
            "killed" => etcd.run(),
            _ => etcd.signal("CONT"),
        }
        replica.until_there();
        version = replica.publish(version, trouble);
        replica.seen.clear();
        // Its lease may have ended meanwhile; a heartbeat brings the member back in any case.
        until("n0 is there", || {
            replica.store.keep(NOW, "n0");
            let mut other = Replica::of(&etcd);
            other.until_there();
            other.seen.contains(&registered("n0")).then_some(())
        });
    }
}

/// One that is heard of for the last time while etcd is away would be taken for alive for ever otherwise.
#[test]
fn who_was_kept_while_etcd_was_away_is_registered_and_gone_afterwards() {
    if !installed() {
        return;
    }
    let mut etcd = Etcd::start();
    let mut replica = Replica::of(&etcd);
    replica.until_there();
    etcd.kill();
    replica.until_away();
    replica.store.keep(NOW, "n0");
    replica.store.keep(NOW, "n1");
    let start = Instant::now();
    until("it has been tried", || {
        drop(replica.look());
        (start.elapsed() > Duration::from_secs(1)).then_some(())
    });
    replica.store.forget(NOW, "n1");
    replica.store.propose(NOW, 0, "map");
    etcd.run();
    replica.until(&registered("n0"));
    replica.until(&gone("n0"));
    assert!(!replica.seen.contains(&registered("n1")), "it has left");
}

#[test]
fn a_watch_survives_compaction_and_a_loss_of_everything() {
    if !installed() {
        return;
    }
    let mut etcd = Etcd::start();
    let (mut a, mut b) = (Replica::of(&etcd), Replica::of(&etcd));
    a.store.keep(NOW, "n0");
    let version = a.publish(0, "one");
    b.until(&StoreChange::Map { version, value: "one".to_owned() });
    // The watch is asked for anew every few seconds, from a revision that is compacted away by then.
    let start = Instant::now();
    until("watches have begun anew", || {
        etcd.compact();
        (start.elapsed() > Duration::from_secs(4)).then_some(())
    });
    let version = a.publish(version, "two");
    b.until(&StoreChange::Map { version, value: "two".to_owned() });

    etcd.kill();
    etcd.empty();
    etcd.run();
    b.seen.clear();
    b.until(&StoreChange::NoMap);
    b.publish(0, "three");
    a.until(&StoreChange::NoMap);
    until("the new map", || {
        drop(a.look());
        a.seen
            .iter()
            .find(|change| matches!(change, StoreChange::Map { value, .. } if value == "three"))
            .cloned()
    });
}

#[test]
fn one_server_of_three_may_die_and_two_may_not() {
    if !installed() {
        return;
    }
    let mut etcds = Etcd::start_cluster(3);
    let endpoints: Vec<String> = etcds.iter().map(Etcd::endpoint).collect();
    let mut replica = Replica::new(&endpoints);
    let version = replica.publish(0, "one");
    replica.store.keep(NOW, "n0");
    replica.until(&registered("n0"));
    // The one that the replica talks to; perhaps the leader.
    etcds[0].kill();
    let version = replica.publish(version, "two");
    etcds[1].kill();
    replica.until_away();
    replica.store.propose(NOW, version, "nobody decides");
    assert!(replica.look().is_err());
    etcds[0].run();
    replica.until_there();
    replica.publish(version, "three");
    let mut other = Replica::new(&endpoints[2..]);
    other.until_there();
    let maps: Vec<_> = other.seen.iter().filter(|change| matches!(change, StoreChange::Map { .. })).collect();
    assert!(matches!(maps[..], [StoreChange::Map { value, .. }] if value == "three"), "{maps:?}");
}

#[test]
fn servers_that_are_gone_are_passed_over() {
    if !installed() {
        return;
    }
    let (mut dead, etcd) = (Etcd::start(), Etcd::start());
    dead.kill();
    let mut replica = Replica::new(&[dead.endpoint(), etcd.endpoint()]);
    replica.publish(0, "one");
    replica.store.keep(NOW, "n0");
    replica.until(&registered("n0"));
    let mut nowhere = Replica::new(&[dead.endpoint()]);
    let StoreError(reason) = until("a reason", || {
        let error = nowhere.look().err()?;
        error.0.contains("127.0.0.1").then_some(error)
    });
    assert!(reason.contains(&dead.endpoint()), "{reason}");
}

/// What `[tls.store]` makes of these files of an authority.
fn asker(authority: &Authority, own: Option<&str>) -> Asker {
    let certificates = Certificates::load(&secured(authority, own)).expect("good certificates");
    certificates.store().expect("there is a table for it").clone()
}

fn secured(authority: &Authority, own: Option<&str>) -> Config {
    let mut config = Config::new("test", Secret([3; 16]));
    config.tls.store = Some(StoreTls {
        ca_file: authority.path("ca.crt"),
        certificate_file: own.map(|name| authority.path(&format!("{name}.crt"))),
        key_file: own.map(|name| authority.path(&format!("{name}.key"))),
    });
    config
}

#[test]
fn an_etcd_with_tls_and_users_is_asked_as_one_of_them() {
    if !installed() {
        return;
    }
    let (authority, another) = (Authority::new(), Authority::new());
    another.sign("stranger");
    for file in ["stranger.crt", "stranger.key"] {
        std::fs::copy(another.path(file), authority.path(file)).expect("copied");
    }
    ["etcd", "named", NAMELESS].iter().for_each(|name| authority.sign(name));
    let mut etcd = Etcd::start();
    // `/distcache/test/` up to `/distcache/test0`.
    etcd.demand_users("pass word", "L2Rpc3RjYWNoZS90ZXN0Lw==", "L2Rpc3RjYWNoZS90ZXN0MA==");
    etcd.kill();
    etcd.run_secured(&authority);
    let endpoints = [etcd.endpoint()];
    let certificates = Certificates::load(&secured(&authority, Some(NAMELESS))).expect("good certificates");
    let own = certificates.store().expect("there is a table for it").clone();
    let user = Some(("distcache", "pass word"));
    let mut replica = Replica::with(&endpoints, user, Some(own.clone()));
    replica.until_there();
    replica.store.keep(NOW, "n0");
    replica.until(&registered("n0"));
    let version = replica.publish(0, "one");
    // Whom it was known by it forgets with its process.
    etcd.kill();
    etcd.run_secured(&authority);
    replica.until_away();
    replica.until_there();
    replica.publish(version, "two");
    for (login, tls, expected) in [
        (
            Some(("distcache", "other")),
            Some(own.clone()),
            "authentication failed, invalid user ID or password",
        ),
        (None, Some(own), "user name is empty"),
        (user, Some(asker(&authority, Some("named"))), "no certificate that has a CommonName"),
        (
            user,
            Some(asker(&another, None)),
            "the other end's certificate is refused: no CA in ca_file has signed it",
        ),
        (user, Some(asker(&authority, None)), "wants one and none is configured"),
        (user, Some(asker(&authority, Some("stranger"))), "it takes our certificate for bad"),
        (user, None, "it closes the connection; if it speaks TLS, write etcds:// in `store`"),
    ] {
        let mut stranger = Replica::with(&endpoints, login, tls);
        until(expected, || stranger.look().err().filter(|error| error.to_string().contains(expected)));
    }
    // Another CA for everybody: new files are enough.
    ["etcd", NAMELESS].iter().for_each(|name| another.sign(name));
    etcd.kill();
    etcd.run_secured(&another);
    until("it is refused", || {
        replica.look().err().filter(|error| error.to_string().contains("no CA in ca_file"))
    });
    for name in ["ca.crt".to_owned(), format!("{NAMELESS}.crt"), format!("{NAMELESS}.key")] {
        std::fs::copy(another.path(&name), authority.path(&name)).expect("copied");
    }
    certificates.reload().expect("good certificates");
    replica.until_there();
}
