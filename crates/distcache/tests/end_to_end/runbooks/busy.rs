//! Each rule by which clients get `-BUSY`, provoked and cured. What each of them refuses is tried with the machines.

use rustix::process::Signal;
use wire::resp::{Command, Value};

use super::Site;
use super::page::section;
use crate::cluster::{Client, Layout, RedisServer, alone, installed, text, until};

const CLIENTS: usize = 12;
/// Writes of one client that a router has under way at once.
const WRITES: usize = 16;
/// So many clients write more than a server that answers nothing may have, which is 1024 commands.
const MANY: usize = 100;

/// Asked by all of them before anybody waits.
fn ask(clients: &mut [Client], arguments: &dyn Fn(usize) -> Vec<String>) {
    for (index, client) in clients.iter_mut().enumerate() {
        let arguments = arguments(index);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        client.write(Command::from_args(&arguments).frame()).expect("written");
    }
}

fn answers(clients: &mut [Client]) -> Vec<String> {
    let answer = |client: &mut Client| Value::parse(&client.frame().expect("a reply")).expect("RESP");
    clients.iter_mut().map(|client| text(&answer(client))).collect()
}

fn set(key: &str) -> Vec<String> {
    ["SET", key, "v"].map(str::to_owned).to_vec()
}

struct Trial {
    site: Site,
    server: [RedisServer; 1],
    clients: Vec<Client>,
}

impl Trial {
    fn counted(&self, id: &str, rule: &str) -> Option<()> {
        let page = section("Clients get `-BUSY`");
        let role =
            if id.starts_with("leaf") || id.starts_with("spine") { "node" } else { id.split('-').next()? };
        let name = match role {
            "router" => page.says("distcache_router_sheds_total"),
            "node" => page.says("distcache_node_sheds_total"),
            _ => page.says("distcache_shim_sheds_total"),
        };
        self.site.above_zero(id, name, &format!("rule=\"{rule}\""))
    }

    /// Many ask at once, again and again, until the rule is counted; somebody was told `-BUSY`.
    fn provoke(&mut self, rule: &str, arguments: &dyn Fn(usize) -> Vec<String>) {
        let mut told = Vec::new();
        until(rule, || {
            ask(&mut self.clients, arguments);
            told.extend(answers(&mut self.clients));
            self.counted("shim-0", rule).or_else(|| self.counted("router-0", rule))
        });
        assert!(told.iter().any(|told| told.starts_with("BUSY ")), "{rule}: {told:?}");
    }

    /// As `provoke`, while the server does nothing: so many clients write as much at once as each may.
    fn provoke_hanging(&mut self, rule: &str, clients: usize) {
        let mut clients: Vec<Client> = (0..clients).map(|_| self.site.cluster.connect(0)).collect();
        self.server[0].process().signal(Signal::STOP);
        (0..WRITES).for_each(|write| ask(&mut clients, &|index| set(&format!("many:{index}:{write}"))));
        // What comes late finds out, once it is seen that nothing is answered.
        let mut late = Vec::new();
        until(rule, || {
            late.push(self.site.cluster.connect(0));
            let at = late.len();
            ask(&mut late[at - 1..], &|_| set(&format!("late:{at}")));
            self.counted("shim-0", rule)
        });
        let depth = section("Writes are slow").says("distcache_shim_queue_depth");
        until("it has grown", || self.site.above_zero("shim-0", depth, ""));
        self.server[0].process().signal(Signal::CONT);
        let mut told = answers(&mut late);
        (0..WRITES).for_each(|_| told.extend(answers(&mut clients)));
        assert!(told.iter().any(|told| told.starts_with("BUSY ")), "{rule}: {told:?}");
    }

    /// Everybody is served.
    fn cured(&mut self, rule: &str) {
        until(rule, || {
            ask(&mut self.clients, &|index| set(&format!("cured:{index}")));
            answers(&mut self.clients).iter().all(|told| told == "OK").then_some(())
        });
    }
}

#[test]
fn each_rule_is_counted_by_its_name_and_cured() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let server = [RedisServer::start()];
    let tables = "[limits]\noverload = \"refuse\"\nshim_queue_max = 65536\nqueue_ms_max = 5000\n".to_owned();
    let site = Site::apart(Layout { tables, ..Layout::before(&server) });
    let clients = (0..CLIENTS).map(|_| site.cluster.connect(0)).collect();
    let mut trial = Trial { site, server, clients };

    let storage = format!("storage = \"{}\"\n", trial.server[0].url());
    trial.site.reload(&storage, &format!("{storage}rate_max = 1\n"));
    trial.provoke("rate", &|index| set(&format!("k:{index}")));
    trial.provoke("everybody-busy", &|index| vec!["GET".to_owned(), format!("k:{index}")]);
    section("Clients get `-BUSY`").says("raise it or set it to 0, and reload");
    trial.site.reload("rate_max = 1\n", "rate_max = 0\n");
    trial.cured("rate");

    trial.site.reload("shim_queue_max = 65536\n", "shim_queue_max = 5\n");
    trial.provoke_hanging("queue", CLIENTS);
    trial.site.reload("shim_queue_max = 5\n", "shim_queue_max = 65536\n");
    trial.cured("queue");
    trial.provoke_hanging("storage-limit", MANY);
    trial.cured("storage-limit");
    let limit = section("Clients get `-BUSY`").says("distcache_shim_storage_limit");
    assert!(trial.site.metric("shim-0", limit, "") < Some(65_536.0), "it has fallen");
    let (_, shown) = trial.site.status();
    assert!(shown.contains("refused since the start: ") && shown.contains("shim-0 queue "), "{shown}");

    trial.site.reload("overload = \"refuse\"", "overload = \"wait\"");
    trial.site.reload("queue_ms_max = 5000", "queue_ms_max = 300");
    // As a server that does one command a second.
    trial.site.reload("rate_max = 0\n", "rate_max = 1\n");
    trial.provoke("waited-too-long", &|index| set(&format!("k:{index}")));
    trial.site.reload("rate_max = 1\n", "rate_max = 0\n");
    trial.site.reload("queue_ms_max = 300", "queue_ms_max = 5000");
    trial.cured("waited-too-long");
    no_link(&mut trial);
}

/// The node has a copy, and then no link to its shim.
fn no_link(trial: &mut Trial) {
    let mut client = trial.site.cluster.connect(0);
    until("it is cached", || {
        (0..50).for_each(|_| drop(client.call(&["GET", "cured:1"])));
        (trial.site.row("leaf-0")?.contains(" 1/1")).then_some(())
    });
    trial.site.cluster.kill("shim-0");
    until("the node has no link", || {
        (0..50).for_each(|_| drop(client.call(&["GET", "cured:1"])));
        ["leaf-0", "spine-0"].iter().find_map(|node| trial.counted(node, "shim-unreachable"))
    });
    trial.site.cluster.start("shim-0");
    trial.site.cluster.wait_linked();
    trial.cured("shim-unreachable");
}
