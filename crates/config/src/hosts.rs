//! The hosts that members are on, where one file describes several: which member is started where, and what is lost at once.
//! Not how a member is started.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;
use wire::ShimId;

use super::load::ConfigError;
use super::{Config, StorageConfig, words};
use crate::Address;

/// `[[host]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostConfig {
    pub name: String,
    /// Where members of other hosts reach those of this one.
    pub address: IpAddr,
    /// For each of its members that says no other: those of one process share it.
    #[serde(default)]
    pub admin: Option<SocketAddr>,
}

/// What a cluster of several hosts loses, although it need not, when one of them is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRisk {
    pub what: String,
    pub advice: String,
}

/// A member, and where the file says that it is.
struct PlacedMember<'a> {
    section: &'static str,
    id: &'a str,
    host: Option<&'a str>,
    /// Where other members dial it; routers are dialled by clients only.
    listen: Option<Address>,
}

impl Config {
    /// The ids of the members on this host, in the order in which they start.
    pub fn members_on(&self, host: &str) -> Vec<&str> {
        let here: BTreeSet<&str> =
            placed(self).filter(|member| member.host == Some(host)).map(|member| member.id).collect();
        self.member_ids().filter(|id| here.contains(id)).collect()
    }

    /// What would be lost with one host, and need not be.
    pub fn host_risks(&self) -> Vec<HostRisk> {
        let mut risks = Vec::new();
        if self.hosts.len() < 2 {
            return risks;
        }
        let mut alone =
            |who: &str, hosts: &mut dyn Iterator<Item = Option<&str>>, lost: &str, advice: &str| {
                let hosts: BTreeSet<&str> = hosts.flatten().collect();
                if let (Some(host), 1) = (hosts.first(), hosts.len()) {
                    let what = format!("{who} on host {host:?} alone: {lost} with it");
                    risks.push(HostRisk { what, advice: advice.to_owned() });
                }
            };
        alone(
            "every controller is",
            &mut self.controllers.iter().map(|controller| controller.host.as_deref()),
            "nobody notices a node that is lost",
            "add a [[controller]] on another host, all of them with store = \"etcd://...\"",
        );
        for (index, shim) in self.shims.iter().enumerate() {
            let standbys = self.standbys_of(ShimId(index as u16)).map(|standby| standby.host.as_deref());
            let advice = match &shim.storage {
                StorageConfig::Embedded | StorageConfig::Durable(_) => {
                    "give it a Redis, Valkey or memcached server, which may have a [[standby]]".to_owned()
                }
                storage if storage.is_redis_cluster() => {
                    "standbys do not serve a Redis Cluster yet: have it started elsewhere by hand".to_owned()
                }
                _ => format!("add a [[standby]] of = {:?} on another host", shim.id),
            };
            alone(
                &format!("shim {:?} and who stands by for it are", shim.id),
                &mut std::iter::once(shim.host.as_deref()).chain(standbys),
                "nobody reaches its storage server",
                &advice,
            );
        }
        for layer in &self.layers {
            let nodes = self.nodes.iter().filter(|node| node.layer == layer.name);
            alone(
                &format!("every node of layer {:?} is", layer.name),
                &mut nodes.map(|node| node.host.as_deref()),
                "its copies are gone",
                "add a [[node]] of that layer on another host",
            );
        }
        alone(
            "every router is",
            &mut self.routers.iter().map(|router| router.host.as_deref()),
            "no client is served",
            "add a [[router]] on another host, and name both to the clients",
        );
        risks
    }
}

fn placed(config: &Config) -> impl Iterator<Item = PlacedMember<'_>> {
    macro_rules! of {
        ($section:literal, $members:ident, $listen:expr) => {
            config.$members.iter().map(|member| PlacedMember {
                section: $section,
                id: &member.id,
                host: member.host.as_deref(),
                listen: $listen(member),
            })
        };
    }
    let controllers =
        of!("controller", controllers, |member: &super::ControllerConfig| Some(Address::Tcp(member.listen)));
    let nodes = of!("node", nodes, |member: &super::NodeConfig| Some(member.listen.clone()));
    let shims = of!("shim", shims, |member: &super::ShimConfig| Some(member.listen.clone()));
    let standbys = of!("standby", standbys, |member: &super::StandbyConfig| Some(member.listen.clone()));
    let routers = of!("router", routers, |_: &super::RouterConfig| None);
    controllers.chain(nodes).chain(shims).chain(standbys).chain(routers)
}

fn wrong<T>(what: String) -> Result<T, ConfigError> {
    Err(ConfigError::new(what))
}

fn names(config: &Config) -> String {
    config.hosts.iter().map(|host| format!("{:?}", host.name)).collect::<Vec<_>>().join(", ")
}

/// What must hold of hosts and of the members that name one.
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    for (index, HostConfig { name, address, .. }) in config.hosts.iter().enumerate() {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > 64 || !name.bytes().all(legal) {
            return wrong(format!(
                "[[host]] name = {name:?}: write 1 to 64 letters, digits, '-', '_' or '.'"
            ));
        }
        if address.is_unspecified() || address.is_multicast() {
            return wrong(format!(
                "[[host]] {name:?}: address = \"{address}\": nobody can dial it; write the address at which other hosts \
                 reach this one"
            ));
        }
        let earlier = &config.hosts[..index];
        if earlier.iter().any(|other| other.name == *name) {
            return wrong(format!("[[host]] name = {name:?}: two hosts have this name; give each its own"));
        }
        if let Some(other) = earlier.iter().find(|other| other.address == *address) {
            return wrong(format!(
                "[[host]] {name:?}: address = \"{address}\": host {:?} has it; give each its own",
                other.name
            ));
        }
    }
    placed(config).try_for_each(|member| check_member(config, &member))
}

fn check_member(config: &Config, member: &PlacedMember<'_>) -> Result<(), ConfigError> {
    let PlacedMember { section, id, host: Some(name), listen } = member else { return Ok(()) };
    let at = format!("[[{section}]] {id:?}");
    let Some(host) = config.hosts.iter().find(|host| host.name == *name) else {
        let hint = words::hint(name, config.hosts.iter().map(|host| host.name.as_str()));
        let there = match config.hosts.is_empty() {
            true => "add it, with its name and its address".to_owned(),
            false => format!("there are {}", names(config)),
        };
        return wrong(format!("{at}: host = {name:?}: no [[host]] has this name{hint}; {there}"));
    };
    let Some(listen) = listen.as_ref().filter(|_| config.hosts.len() > 1) else { return Ok(()) };
    let own = host.address;
    let unreachable = match listen {
        Address::Unix(_) => Some("a Unix socket is reached from its own host only".to_owned()),
        Address::Tcp(tcp) if tcp.ip() == own => None,
        Address::Tcp(tcp) => match config.hosts.iter().find(|other| other.address == tcp.ip()) {
            Some(other) => Some(format!("that is host {:?}, and the member is on {name:?}", other.name)),
            None if tcp.ip().is_unspecified() => Some("other members dial what is written here".to_owned()),
            None if tcp.ip().is_loopback() => Some("members on other hosts cannot reach it".to_owned()),
            None => None,
        },
    };
    match unreachable {
        Some(why) => wrong(format!(
            "{at}: listen = \"{listen}\": {why}; write the address of its host, {own}, or leave listen away"
        )),
        None => Ok(()),
    }
}

/// Nobody would start a member of a file that says where all others are. Members that a running cluster tells of say nothing of
/// hosts, so this is a rule of files alone.
pub(super) fn check_all_placed(config: &Config) -> Result<(), ConfigError> {
    let unplaced = placed(config).find(|member| member.host.is_none());
    match unplaced.filter(|_| !config.hosts.is_empty()) {
        Some(PlacedMember { section, id, .. }) => wrong(format!(
            "[[{section}]] {id:?}: host is missing: where there are [[host]]s, each member says on which it is; there are {}",
            names(config)
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;

    const HOSTS: &str = r#"
[cluster]
secret = "00112233445566778899aabbccddeeff"
[security]
insecure_listen = true
[[host]]
name = "a"
address = "10.0.0.1"
[[host]]
name = "b"
address = "10.0.0.2"
[[controller]]
host = "a"
store = "etcd://10.0.0.9:2379"
[[controller]]
host = "b"
store = "etcd://10.0.0.9:2379"
[[shim]]
host = "a"
storage = "redis://10.0.0.9:6379"
[[standby]]
host = "b"
[[node]]
host = "a"
rack = "shim-0"
[[node]]
host = "b"
rack = "shim-0"
[[node]]
host = "a"
[[node]]
host = "b"
[[router]]
host = "a"
[[router]]
host = "b"
"#;

    fn refused(old: &str, new: &str, expected: &str) {
        assert!(HOSTS.contains(old), "{old:?}");
        let error = Config::parse(&HOSTS.replacen(old, new, 1)).expect_err(new).to_string();
        assert!(error.contains(expected), "for {new:?}\nexpected: {expected}\n     got: {error}");
    }

    #[test]
    fn members_are_where_their_host_is_each_with_the_first_ports() {
        let config = Config::parse(HOSTS).unwrap();
        assert_eq!(config.members_on("a"), ["controller", "shim-0", "leaf-0", "spine-0", "router-0"]);
        assert_eq!(
            config.members_on("b"),
            ["controller-1", "shim-0-standby", "leaf-1", "spine-1", "router-1"]
        );
        assert!(config.members_on("c").is_empty());
        let listens: Vec<String> = config.nodes.iter().map(|node| node.listen.to_string()).collect();
        assert_eq!(listens, ["10.0.0.1:7200", "10.0.0.2:7200", "10.0.0.1:7300", "10.0.0.2:7300"]);
        assert_eq!(config.controllers[1].listen.to_string(), "10.0.0.2:7000");
        assert_eq!(config.standbys[0].listen.to_string(), "10.0.0.2:7600");
        assert_eq!(config.routers[1].listen.as_ref().map(ToString::to_string).unwrap(), "10.0.0.2:6380");
        assert!(config.host_risks().is_empty(), "{:?}", config.host_risks());
        assert_eq!(config.admin("leaf-0"), None);
        let shared = HOSTS.replacen("10.0.0.1\"", "10.0.0.1\"\nadmin = \"10.0.0.1:6390\"", 1);
        let shared = Config::parse(&shared).unwrap();
        for id in ["shim-0", "leaf-0", "router-0"] {
            assert_eq!(shared.admin(id), "10.0.0.1:6390".parse().ok(), "{id}");
        }
        assert_eq!(shared.admin("shim-0-standby"), None);
        let v6 = Config::parse(&HOSTS.replace("10.0.0.2\"", "fd00::2\"")).unwrap();
        assert_eq!(v6.controllers[1].listen.to_string(), "[fd00::2]:7000");
    }

    #[test]
    fn one_more_member_at_the_end_moves_nobody() {
        let more = format!("{HOSTS}[[router]]\nhost = \"a\"\n[[node]]\nhost = \"a\"\n");
        let (before, after) = (Config::parse(HOSTS).unwrap(), Config::parse(&more).unwrap());
        assert_eq!(after.routers[2].listen.as_ref().map(ToString::to_string).unwrap(), "10.0.0.1:6381");
        assert_eq!(after.nodes[4].listen.to_string(), "10.0.0.1:7301");
        let grown = before.grown(&after.roster()).expect("it grows").expect("there are more");
        assert_eq!(grown.nodes.len(), 5);
    }

    #[test]
    fn what_no_host_can_be_is_refused() {
        refused("name = \"b\"", "name = \"a\"", "[[host]] name = \"a\": two hosts have this name");
        refused("name = \"b\"", "name = \"b b\"", "letters, digits");
        refused("10.0.0.2", "10.0.0.1", "[[host]] \"b\": address = \"10.0.0.1\": host \"a\" has it");
        refused("10.0.0.2", "0.0.0.0", "nobody can dial it");
        refused("10.0.0.2", "cache-b", "\"cache-b\" is no address: write an IP address");
        refused("address = \"10.0.0.2\"\n", "", "`address` is missing");
        let spine = "[[node]]\nhost = \"a\"\n[[node]]\nhost = \"b\"\n[[router]]";
        refused(
            spine,
            "[[node]]\nhost = \"c\"\n[[router]]",
            "\"spine-0\": host = \"c\": no [[host]] has this name",
        );
        refused(spine, "[[node]]\n[[router]]", "[[node]] \"spine-0\": host is missing");
        let listen = |address: &str| format!("[[node]]\nhost = \"a\"\nlisten = \"{address}\"\n[[router]]");
        refused(spine, &listen("127.0.0.1:7300"), "members on other hosts cannot reach it");
        refused(spine, &listen("0.0.0.0:7300"), "other members dial what is written here");
        refused(spine, &listen("10.0.0.2:7300"), "that is host \"b\", and the member is on \"a\"");
        refused(spine, &listen("unix:///run/x"), "a Unix socket is reached from its own host only");
        let elsewhere = HOSTS.replacen(spine, &listen("192.168.0.1:7300"), 1);
        assert!(Config::parse(&elsewhere).is_ok(), "a host may have several addresses");
        let none = HOSTS.replace("[[host]]", "[[policy]]").replace("name = ", "prefix = ");
        let none: String =
            none.lines().filter(|line| !line.starts_with("address")).flat_map(|l| [l, "\n"]).collect();
        let error = Config::parse(&none).unwrap_err().to_string();
        assert!(error.contains("no [[host]] has this name; add it"), "{error}");
    }

    #[test]
    fn a_file_with_hosts_says_which_nodes_it_has() {
        let short = HOSTS.split("[[node]]").next().unwrap();
        let error = Config::parse(short).unwrap_err().to_string();
        assert!(error.contains("[[node]]: there is none; where there are [[host]]s"), "{error}");
    }

    #[test]
    fn what_one_host_would_take_with_it_is_told() {
        let risks = |old: &str, new: &str| {
            let config = Config::parse(&HOSTS.replacen(old, new, 1)).unwrap();
            config.host_risks().into_iter().map(|risk| risk.what).collect::<Vec<_>>()
        };
        assert_eq!(
            risks("[[standby]]\nhost = \"b\"", "[[standby]]\nhost = \"a\""),
            [
                r#"shim "shim-0" and who stands by for it are on host "a" alone: nobody reaches its storage server with it"#
            ]
        );
        let everything = HOSTS.replace("host = \"b\"", "host = \"a\"");
        let told = Config::parse(&everything).unwrap().host_risks();
        assert_eq!(told.len(), 5, "{told:?}");
        let alone = everything.replace("[[host]]\nname = \"b\"\naddress = \"10.0.0.2\"\n", "");
        assert!(Config::parse(&alone).unwrap().host_risks().is_empty(), "there is only one");
    }
}
