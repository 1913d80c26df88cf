//! Processes that another one takes the place of (SIGUSR2): what clients see, old ones and new. Not members of two releases.

use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::cluster::{
    Client, Cluster, Directory, Layout, Process, RedisServer, UP, alone, distcache, installed, shared, text,
    total, until,
};
use crate::coherence::{hit_ratio, layout};
use crate::history::History;

/// A process that has taken the place of one that the test has started. It is nobody's child in the end.
struct Successor(Pid);

impl Successor {
    /// Has another process take the place of `pid`.
    fn of(pid: Pid) -> Successor {
        kill_process(pid, Signal::USR2).expect("the process is there");
        let path = |thread: &str| format!("/proc/{0}/task/{thread}/children", pid.as_raw_nonzero());
        until("there is another process", || {
            let threads = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).ok()?;
            let threads = threads.filter_map(|thread| thread.ok()?.file_name().into_string().ok());
            let children = threads.filter_map(|thread| std::fs::read_to_string(path(&thread)).ok());
            let child = children
                .flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
                .next()?;
            Some(Successor(Pid::from_raw(child.parse().ok()?)?))
        })
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.0, signal).expect("the process is there");
    }

    /// Whether it is there, and no corpse.
    fn runs(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/stat", self.0.as_raw_nonzero()));
        let is_dead = status.map_or(true, |line| {
            line.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
        });
        test_kill_process(self.0).is_ok() && !is_dead
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        // It may have ended.
        let _ = kill_process(self.0, Signal::KILL);
    }
}

fn pid(cluster: &mut Cluster, id: &str) -> Pid {
    Pid::from_raw(cluster.process(id).id() as i32).expect("a process")
}

/// As the nodes count, which began with nothing: old clients' routers are with the process before.
fn hit_again(cluster: &Cluster) {
    until("copies are hit again", || (total(&cluster.status(), "nodes", "hits_total") > 100).then_some(()));
}

/// Clients that come with a connection for each command.
struct Newcomers {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    thread: Option<JoinHandle<Vec<String>>>,
}

impl Newcomers {
    fn start(cluster: &Cluster) -> Newcomers {
        let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (address, stopped, count) = (cluster.router(0), Arc::clone(&stop), Arc::clone(&served));
        let thread = std::thread::spawn(move || {
            let mut errors = Vec::new();
            while !stopped.load(SeqCst) {
                let answer =
                    Client::try_tcp(address).and_then(|mut client| client.ask(&["INCR", "newcomers"]));
                match answer {
                    Ok(frame) if frame.starts_with(b":") => _ = count.fetch_add(1, SeqCst),
                    Ok(frame) => errors.push(frame.escape_ascii().to_string()),
                    Err(error) => errors.push(error.to_string()),
                }
            }
            errors
        });
        Newcomers { stop, served, thread: Some(thread) }
    }

    /// Until more have come.
    fn wait(&self) {
        let before = self.served.load(SeqCst);
        until("new clients are served", || (self.served.load(SeqCst) > before + 50).then_some(()));
    }

    /// Their errors.
    fn finish(mut self) -> Vec<String> {
        self.stop.store(true, SeqCst);
        self.thread.take().expect("it runs").join().expect("it does not panic")
    }
}

#[test]
fn every_member_is_replaced_in_place_without_an_error_for_old_or_new_clients() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let servers = [RedisServer::durable(), RedisServer::durable()];
    let mut cluster = Cluster::apart(layout(&servers));
    let history = History::start(&cluster.layout.routers, 6, 4);
    let newcomers = Newcomers::start(&cluster);
    until("copies are hit", || (hit_ratio(&cluster.status()) > 0.3).then_some(()));
    let mut successors = Vec::new();
    for id in cluster.layout.ids() {
        let successor = Successor::of(pid(&mut cluster, &id));
        // Who has clients goes on for them.
        if !id.starts_with("router") {
            assert_eq!(cluster.process(&id).wait().code(), Some(0), "{}", cluster.process(&id).log());
        }
        cluster.process(&id).wait_for_line("ready");
        history.wait_for(300, 30);
        newcomers.wait();
        assert!(successor.runs(), "{id}: {}", cluster.process(&id).log());
        successors.push((id, successor));
    }
    hit_again(&cluster);
    assert!(cluster.process("router-0").try_wait().is_none(), "it has clients");
    let report = history.finish();
    assert!(report.errors.is_empty(), "{report:?}");
    // Its last client has left.
    assert_eq!(cluster.process("router-0").wait().code(), Some(0), "{}", cluster.process("router-0").log());
    newcomers.wait();
    // Once more, from the other numbers of its threads back to the first.
    let (_, router) = successors.iter().find(|(id, _)| id == "router-0").expect("it was replaced");
    let again = Successor::of(router.0);
    cluster.process("router-0").wait_for_line("ready");
    until("the one before has ended", || (!router.runs()).then_some(()));
    newcomers.wait();
    assert!(again.runs());
    let errors = newcomers.finish();
    assert!(errors.is_empty(), "{} errors, the first: {}", errors.len(), errors[0]);
    again.signal(Signal::TERM);
    until("it stops like any other", || (!again.runs()).then_some(()));
}

#[test]
fn a_process_with_all_members_is_replaced_as_a_whole() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let servers = [RedisServer::durable()];
    let mut cluster = Cluster::up(layout(&servers));
    let history = History::start(&cluster.layout.routers, 4, 2);
    let newcomers = Newcomers::start(&cluster);
    until("copies are hit", || (hit_ratio(&cluster.status()) > 0.3).then_some(()));
    let successor = Successor::of(pid(&mut cluster, UP));
    cluster.process(UP).wait_for_line("ready");
    history.wait_for(500, 50);
    newcomers.wait();
    hit_again(&cluster);
    let (report, errors) = (history.finish(), newcomers.finish());
    assert!(report.errors.is_empty() && errors.is_empty(), "{report:?} {errors:?}");
    assert_eq!(cluster.process(UP).wait().code(), Some(0), "{}", cluster.process(UP).log());
    assert!(successor.runs());
}

#[test]
fn a_process_goes_on_where_the_next_one_cannot() {
    let _machine = shared();
    let mut cluster =
        Cluster::up(Layout { router_keys: "retire_ms_max = 0".to_owned(), ..Layout::embedded(1) });
    let mut client = cluster.connect(0);
    assert_eq!(text(&client.call(&["SET", "a", "1"])), "OK");
    let goes_on = |cluster: &mut Cluster, client: &mut Client, why: &str| {
        cluster.signal(UP, Signal::USR2);
        until(why, || cluster.process(UP).log().contains(why).then_some(()));
        assert_eq!(text(&client.call(&["GET", "a"])), "1");
        assert_eq!(text(&cluster.connect(0).call(&["GET", "a"])), "1");
    };
    goes_on(&mut cluster, &mut client, "would be lost");
    let toml = std::fs::read_to_string(&cluster.config).expect("the configuration");
    let folder = format!("embedded://{}", cluster.config.with_extension("store").display());
    std::fs::write(&cluster.config, toml.replace("embedded:", &folder) + "\n[nonsense]\n").expect("written");
    drop(client);
    cluster.kill(UP);
    std::fs::write(&cluster.config, toml.replace("embedded:", &folder)).expect("written");
    cluster.start(UP);
    cluster.wait_linked();
    let mut client = cluster.connect(0);
    assert_eq!(text(&client.call(&["SET", "a", "1"])), "OK");
    cluster.append("\n[nonsense]\nx = 1\n");
    goes_on(&mut cluster, &mut client, "no other process takes the place of this one");
    std::fs::write(&cluster.config, toml.replace("embedded:", &folder)).expect("written");
    // A store on disk is there for the next process, and clients are closed at once where the file says so.
    let successor = Successor::of(pid(&mut cluster, UP));
    assert_eq!(cluster.process(UP).wait().code(), Some(0), "{}", cluster.process(UP).log());
    assert_eq!(text(&cluster.connect(0).call(&["GET", "a"])), "1");
    assert!(successor.runs());
}

#[test]
fn a_supervisor_follows_from_one_process_to_the_next() {
    let _machine = shared();
    let folder = Directory::new();
    let cluster = Cluster::unstarted(Layout::embedded(1));
    let toml = std::fs::read_to_string(&cluster.config).expect("the configuration");
    let store = format!("embedded://{}", folder.join("store").display());
    std::fs::write(&cluster.config, toml.replace("embedded:", &store)).expect("written");
    let socket = UnixDatagram::bind(folder.join("notify")).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    let heard = || {
        let mut bytes = [0; 256];
        let count = socket.recv(&mut bytes).expect("a word");
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    };
    let mut command = distcache();
    command
        .args(["up", "--adopt", "--config"])
        .arg(&cluster.config)
        .env("NOTIFY_SOCKET", folder.join("notify"));
    let mut process = Process::start(UP, command, &folder.join("up.log"));
    process.wait_for_line("ready");
    assert_eq!(heard(), "READY=1\n");
    let successor = Successor::of(Pid::from_raw(process.id() as i32).expect("a process"));
    assert_eq!(heard(), format!("MAINPID={}\nREADY=1\n", successor.0.as_raw_nonzero()));
    assert_eq!(process.wait().code(), Some(0), "{}", process.log());
    // As it is once every listener accepts, whichever process it is.
    assert_eq!(heard(), "READY=1\n");
    successor.signal(Signal::TERM);
    assert_eq!(heard(), "STOPPING=1\n");
}
