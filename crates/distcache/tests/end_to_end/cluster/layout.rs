//! Which members a cluster has, and the configuration that says so. Not its processes.

use std::fmt::Write;
use std::net::SocketAddr;

use super::{Directory, RedisServer, free_port};

/// One leaf node per rack; shims are dealt to the racks in turn.
pub(crate) struct Layout {
    /// One shim for each.
    pub(crate) storage: Vec<String>,
    /// So many stand by for each shim.
    pub(crate) standbys: usize,
    pub(crate) racks: usize,
    pub(crate) spines: usize,
    pub(crate) routers: Vec<SocketAddr>,
    pub(crate) controller: SocketAddr,
    /// Further controllers, which need a shared store.
    pub(crate) replicas: Vec<SocketAddr>,
    pub(crate) lease_ms: u64,
    pub(crate) objects_max: usize,
    pub(crate) routing: &'static str,
    /// Further keys of all nodes.
    pub(crate) node_keys: String,
    /// Further keys of all controllers.
    pub(crate) controller_keys: String,
    /// What clients of the routers speak.
    pub(crate) protocol: &'static str,
    /// How many each router has.
    pub(crate) threads: usize,
    /// Further keys of the first router.
    pub(crate) router_keys: String,
    /// Name and password of a user who may do everything, where routers ask for one.
    pub(crate) login: Option<(&'static str, &'static str)>,
    /// Further tables, such as `[limits]`.
    pub(crate) tables: String,
}

impl Layout {
    pub(crate) fn new(storage: Vec<String>) -> Layout {
        Layout {
            storage,
            standbys: 0,
            racks: 1,
            spines: 1,
            routers: vec![loopback()],
            controller: loopback(),
            replicas: Vec::new(),
            lease_ms: 1000,
            objects_max: 1000,
            routing: "learned",
            node_keys: String::new(),
            controller_keys: String::new(),
            protocol: "redis",
            threads: 2,
            router_keys: String::new(),
            login: None,
            tables: String::new(),
        }
    }

    pub(crate) fn before(servers: &[RedisServer]) -> Layout {
        Layout::new(servers.iter().map(RedisServer::url).collect())
    }

    pub(crate) fn embedded(shims: usize) -> Layout {
        Layout::new(vec!["embedded:".to_owned(); shims])
    }

    pub(crate) fn nodes(&self) -> Vec<String> {
        let leaves = (0..self.racks).map(|rack| format!("leaf-{rack}"));
        leaves.chain((0..self.spines).map(|spine| format!("spine-{spine}"))).collect()
    }

    pub(crate) fn controllers(&self) -> impl Iterator<Item = (String, SocketAddr)> + '_ {
        let replicas = self.replicas.iter().enumerate();
        let replicas = replicas.map(|(index, listen)| (format!("controller-{}", index + 1), *listen));
        std::iter::once(("controller".to_owned(), self.controller)).chain(replicas)
    }

    /// Every member, in an order that makes peers dial members that are not there yet.
    pub(crate) fn ids(&self) -> Vec<String> {
        let mut ids: Vec<String> = self.controllers().map(|(id, _)| id).collect();
        ids.extend((0..self.routers.len()).map(|index| format!("router-{index}")));
        ids.extend(self.nodes());
        ids.extend((0..self.storage.len()).map(|index| format!("shim-{index}")));
        ids.extend(self.standbys().map(|(_, id)| id));
        ids
    }

    /// Each with the shim that it stands by for.
    fn standbys(&self) -> impl Iterator<Item = (usize, String)> + '_ {
        (0..self.storage.len()).flat_map(|shim| {
            (0..self.standbys).map(move |index| match index {
                0 => (shim, format!("shim-{shim}-standby")),
                more => (shim, format!("shim-{shim}-standby-{}", more + 1)),
            })
        })
    }

    /// Leaf nodes and shims listen on TCP, spine nodes on Unix sockets, so that both are used.
    pub(crate) fn toml(&self, directory: &Directory) -> String {
        let mut text = String::new();
        self.write(directory, &mut text).expect("writing to a String cannot fail");
        text
    }

    fn write(&self, directory: &Directory, out: &mut String) -> std::fmt::Result {
        writeln!(out, "[cluster]\nname = \"test\"\nsecret = \"00112233445566778899aabbccddeeff\"")?;
        writeln!(out, "lease_ms = {}\nrouting = \"{}\"\n{}", self.lease_ms, self.routing, self.tables)?;
        for (id, listen) in self.controllers() {
            writeln!(out, "[[controller]]\nid = \"{id}\"\nlisten = \"{listen}\"\n{}", self.controller_keys)?;
        }
        writeln!(out, "[[layer]]\nname = \"leaf\"\npartition = \"rack\"")?;
        writeln!(out, "[[layer]]\nname = \"spine\"\npartition = \"hash\"")?;
        let objects = self.objects_max;
        for rack in 0..self.racks {
            writeln!(out, "[[node]]\nid = \"leaf-{rack}\"\nlayer = \"leaf\"\nrack = \"r{rack}\"")?;
            writeln!(out, "listen = \"{}\"\nobjects_max = {objects}\n{}", loopback(), self.node_keys)?;
        }
        for spine in 0..self.spines {
            let socket = directory.join(&format!("spine-{spine}.sock"));
            writeln!(out, "[[node]]\nid = \"spine-{spine}\"\nlayer = \"spine\"")?;
            writeln!(out, "listen = \"unix://{}\"\nobjects_max = {objects}", socket.display())?;
            writeln!(out, "{}", self.node_keys)?;
        }
        for (shim, storage) in self.storage.iter().enumerate() {
            let rack = shim % self.racks;
            writeln!(out, "[[shim]]\nid = \"shim-{shim}\"\nrack = \"r{rack}\"\nstorage = \"{storage}\"")?;
            writeln!(out, "listen = \"{}\"", loopback())?;
        }
        for (shim, _) in self.standbys() {
            writeln!(out, "[[standby]]\nof = \"shim-{shim}\"\nlisten = \"{}\"", loopback())?;
        }
        for (router, address) in self.routers.iter().enumerate() {
            let socket = directory.join(&format!("router-{router}.sock"));
            writeln!(out, "[[router]]\nid = \"router-{router}\"\nlisten = \"{address}\"")?;
            writeln!(out, "protocol = \"{}\"\nthreads = {}", self.protocol, self.threads)?;
            writeln!(out, "listen_unix = \"{}\"", socket.display())?;
            if router == 0 {
                writeln!(out, "{}", self.router_keys)?;
            }
        }
        Ok(())
    }
}

/// A free loopback address.
pub(crate) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}
