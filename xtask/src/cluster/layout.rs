//! Which members a cluster has, where each listens, and the configuration that says so. Not its processes.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::ports::free_address;

/// What to build. Rack layers have `nodes` in each rack, hash layers `nodes` in all.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) layers: Vec<Layer>,
    pub(crate) racks: usize,
    pub(crate) servers_per_rack: usize,
    pub(crate) storage: LayoutStorage,
    /// What the file says of the last shim, if not that it has had keys from the beginning.
    pub(crate) last_shim_state: Option<&'static str>,
    /// Another process stands by for each shim.
    pub(crate) standbys: bool,
    /// Where folders for shims are.
    pub(crate) folders: PathBuf,
    /// Further options of each storage server.
    pub(crate) storage_options: Vec<String>,
    pub(crate) routers: usize,
    pub(crate) controllers: usize,
    /// What the controllers share is in an etcd, instead of the memory of the only one.
    pub(crate) etcd: bool,
    pub(crate) objects_max: usize,
    /// Requests per second of a node and of a shim; 0 for no limit.
    pub(crate) node_rate_max: u64,
    pub(crate) shim_rate_max: u64,
    /// The most memory that each member may have for its data, unless it is counted; the system's limit if none.
    pub(crate) member_mib_max: Option<u64>,
    /// Further lines of `[cluster]`, of each `[[controller]]` and of each `[[router]]`.
    pub(crate) cluster_lines: String,
    /// The member whose instructions callgrind counts; it says how many in its log.
    pub(crate) counted: Option<String>,
    pub(crate) controller_lines: String,
    pub(crate) router_lines: String,
    /// Further tables, such as `[limits]`.
    pub(crate) tables: String,
    /// Each member a process of its own; otherwise all in one.
    pub(crate) separate: bool,
    /// With the chaos proxy in front of every address that members dial.
    pub(crate) proxied: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer {
    pub(crate) name: &'static str,
    /// Partitioned by rack, otherwise by hash.
    pub(crate) by_rack: bool,
    pub(crate) nodes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LayoutStorage {
    /// A redis-server that keeps nothing on disk.
    Redis,
    /// A redis-server whose data survive `kill -9`.
    DurableRedis,
    /// A primary for each shim, and a replica of each; its data survive `kill -9`.
    RedisCluster,
    Memcached,
    /// A folder for each shim.
    Folder,
}

impl LayoutStorage {
    /// Whether each shim may find its server at an address of its own. The servers of a Redis Cluster have one
    /// address for all, and a shim has to know its connections in memcached's list.
    pub(crate) fn is_proxied_for_each(self) -> bool {
        matches!(self, LayoutStorage::Redis | LayoutStorage::DurableRedis)
    }
}

impl Default for Layout {
    /// Leaves and spines over two racks of one server each.
    fn default() -> Layout {
        Layout {
            layers: vec![Layer::leaves(1), Layer::spines(2)],
            racks: 2,
            servers_per_rack: 1,
            storage: LayoutStorage::Redis,
            last_shim_state: None,
            standbys: false,
            folders: PathBuf::new(),
            storage_options: Vec::new(),
            routers: 1,
            controllers: 1,
            etcd: false,
            objects_max: 10_000,
            node_rate_max: 0,
            shim_rate_max: 0,
            member_mib_max: None,
            cluster_lines: String::new(),
            counted: None,
            controller_lines: String::new(),
            router_lines: String::new(),
            tables: String::new(),
            separate: true,
            proxied: false,
        }
    }
}

impl Layer {
    pub(crate) fn leaves(per_rack: usize) -> Layer {
        Layer { name: "leaf", by_rack: true, nodes: per_rack }
    }

    pub(crate) fn spines(nodes: usize) -> Layer {
        Layer { name: "spine", by_rack: false, nodes }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LayoutRole {
    Controller,
    Node,
    Shim,
    /// Stands by for the shim of its number.
    Standby,
    Router,
    Redis,
}

/// One process of the cluster to be.
#[derive(Clone, Debug)]
pub(crate) struct LayoutMember {
    pub(crate) id: String,
    pub(crate) role: LayoutRole,
    /// Layer of a node.
    layer: usize,
    /// Rack of a shim, of its storage server, and of a node of a rack layer.
    rack: Option<usize>,
    pub(crate) listen: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl LayoutMember {
    /// Whether it opens connections to `other`.
    pub(crate) fn dials(&self, other: &LayoutMember) -> bool {
        match (self.role, other.role) {
            (LayoutRole::Router, LayoutRole::Node | LayoutRole::Shim | LayoutRole::Standby)
            | (LayoutRole::Node, LayoutRole::Shim | LayoutRole::Standby) => true,
            (
                LayoutRole::Router | LayoutRole::Node | LayoutRole::Shim | LayoutRole::Standby,
                LayoutRole::Controller,
            ) => true,
            (LayoutRole::Shim | LayoutRole::Standby, LayoutRole::Redis)
            | (LayoutRole::Standby, LayoutRole::Shim) => self.number() == other.number(),
            _ => false,
        }
    }

    /// Its position among those of its kind, as its id says.
    fn number(&self) -> &str {
        self.id.rsplit('-').next().unwrap_or_default()
    }
}

impl Layout {
    /// Every member with free addresses, storage servers first and routers last.
    pub(crate) fn members(&self) -> anyhow::Result<Vec<LayoutMember>> {
        let mut members = Vec::new();
        let mut add = |role, id: String, layer, rack| -> anyhow::Result<()> {
            members.push(LayoutMember {
                id,
                role,
                layer,
                rack,
                listen: free_address()?,
                admin: free_address()?,
            });
            Ok(())
        };
        let servers = self.racks * self.servers_per_rack;
        let processes = match self.storage {
            LayoutStorage::Redis | LayoutStorage::DurableRedis | LayoutStorage::Memcached => servers,
            LayoutStorage::RedisCluster => 2 * servers,
            LayoutStorage::Folder => 0,
        };
        for server in 0..processes {
            add(LayoutRole::Redis, format!("redis-{server}"), 0, None)?;
        }
        for controller in 0..self.controllers {
            add(LayoutRole::Controller, format!("controller-{controller}"), 0, None)?;
        }
        for (index, layer) in self.layers.iter().enumerate() {
            let count = if layer.by_rack { layer.nodes * self.racks } else { layer.nodes };
            for node in 0..count {
                let rack = layer.by_rack.then_some(node / layer.nodes);
                add(LayoutRole::Node, format!("{}-{node}", layer.name), index, rack)?;
            }
        }
        for shim in 0..servers {
            add(LayoutRole::Shim, format!("shim-{shim}"), 0, Some(shim / self.servers_per_rack))?;
        }
        for shim in (0..servers).filter(|_| self.standbys) {
            add(LayoutRole::Standby, format!("standby-{shim}"), 0, None)?;
        }
        for router in 0..self.routers {
            add(LayoutRole::Router, format!("router-{router}"), 0, None)?;
        }
        Ok(members)
    }

    /// The configuration file; `at` says where the reader of the file finds a member.
    pub(crate) fn toml(&self, members: &[LayoutMember], at: impl Fn(&LayoutMember) -> SocketAddr) -> String {
        let mut text = format!(
            "[cluster]\nname = \"xtask\"\nsecret = \"00112233445566778899aabbccddeeff\"\n{}\n{}\n",
            self.cluster_lines, self.tables
        );
        for layer in &self.layers {
            let partition = if layer.by_rack { "rack" } else { "hash" };
            push(&mut text, format_args!("[[layer]]\nname = {:?}\npartition = {partition:?}\n", layer.name));
        }
        for member in members {
            self.section(member, members, &at, &mut text);
        }
        text
    }

    fn section(
        &self,
        member: &LayoutMember,
        members: &[LayoutMember],
        at: &impl Fn(&LayoutMember) -> SocketAddr,
        text: &mut String,
    ) {
        let section = match member.role {
            LayoutRole::Redis => return,
            LayoutRole::Controller => "controller",
            LayoutRole::Node => "node",
            LayoutRole::Shim => "shim",
            LayoutRole::Standby => "standby",
            LayoutRole::Router => "router",
        };
        push(text, format_args!("[[{section}]]\nid = {:?}\nlisten = \"{}\"\n", member.id, at(member)));
        if let Some(rack) = member.rack {
            push(text, format_args!("rack = \"r{rack}\"\n"));
        }
        if member.role != LayoutRole::Controller {
            push(text, format_args!("admin = \"{}\"\n", member.admin));
        }
        match member.role {
            LayoutRole::Controller => push(text, format_args!("{}\n", self.controller_lines)),
            LayoutRole::Node => push(
                text,
                format_args!(
                    "layer = {:?}\nobjects_max = {}\nrate_max = {}\n",
                    self.layers[member.layer].name, self.objects_max, self.node_rate_max
                ),
            ),
            LayoutRole::Shim => {
                let servers = |all: bool| {
                    let servers = members.iter().filter(|other| other.role == LayoutRole::Redis);
                    let servers = servers.filter(|other| all || member.dials(other));
                    servers.map(|server| at(server).to_string()).collect::<Vec<_>>().join(",")
                };
                let url = match self.storage {
                    LayoutStorage::Redis | LayoutStorage::DurableRedis => {
                        format!("redis://{}", servers(false))
                    }
                    LayoutStorage::RedisCluster => format!("redis-cluster://{}", servers(true)),
                    LayoutStorage::Memcached => format!("memcached://{}", servers(false)),
                    LayoutStorage::Folder => {
                        format!("embedded://{}", self.folders.join(format!("store-{}", member.id)).display())
                    }
                };
                push(text, format_args!("storage = {url:?}\nrate_max = {}\n", self.shim_rate_max));
                let is_last = member.number() == (self.racks * self.servers_per_rack - 1).to_string();
                if let Some(state) = self.last_shim_state.filter(|_| is_last) {
                    push(text, format_args!("state = {state:?}\n"));
                }
            }
            LayoutRole::Standby => push(text, format_args!("of = \"shim-{}\"\n", member.number())),
            LayoutRole::Router => push(text, format_args!("{}\n", self.router_lines)),
            LayoutRole::Redis => {}
        }
    }
}

fn push(text: &mut String, more: std::fmt::Arguments<'_>) {
    text.write_fmt(more).expect("writing to a String cannot fail");
}

/// A configuration without one of its shims, and who stands by for it.
pub(crate) fn without_shim(text: &str, id: &str) -> String {
    let tables = text.split("\n[[").enumerate();
    let is_its = |table: &str| {
        let of = format!("of = {id:?}");
        let stands_by = table.starts_with("standby]]") && table.lines().any(|line| line == of);
        stands_by || table.starts_with(&format!("shim]]\nid = {id:?}\n"))
    };
    let kept = tables.filter(|(_, table)| !is_its(table));
    let tables: Vec<String> = kept
        .map(|(index, table)| if index == 0 { table.to_owned() } else { format!("\n[[{table}") })
        .collect();
    tables.concat()
}

#[cfg(test)]
mod tests {
    use super::without_shim;

    #[test]
    fn a_file_loses_one_shim_and_nothing_else() {
        let standby = "[[standby]]\nid = \"s\"\nof = \"shim-2\"\n";
        let text = format!(
            "[cluster]\n[[shim]]\nid = \"shim-1\"\nlisten = \"x\"\n[[shim]]\nid = \"shim-2\"\nlisten = \"y\"\n{standby}[[router]]\n"
        );
        assert_eq!(
            without_shim(&text, "shim-2"),
            "[cluster]\n[[shim]]\nid = \"shim-1\"\nlisten = \"x\"\n[[router]]\n"
        );
    }
}
