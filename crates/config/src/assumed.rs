//! What a short configuration file leaves out, filled in the same way by everybody who reads it. Not its secret.
//!
//! Each value follows from the file alone. Ids and ports are those of a member's place among its kind, so that a
//! member added at the end of its kind changes nobody else's. None of it decides where a key's data are: that is the
//! secret's and the list of shims.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use toml::{Table, Value};

use super::load::ConfigError;

/// How many members of a kind (for nodes: of a layer) have a port assumed. The next port is another kind's.
const PORTS: usize = 100;
const CONTROLLER_PORT: u16 = 7000;
const SHIM_PORT: u16 = 7100;
/// The first layer's; each has its own hundred.
const NODE_PORT: u16 = 7200;
/// Behind those of four layers.
const STANDBY_PORT: u16 = 7600;
const ROUTER_PORT: u16 = 6380;

const LEAF: &str = "leaf";
const SPINE: &str = "spine";

/// Fills in what is missing; what it was, one line for a member.
///
/// Fields are filled in wherever they are missing. Layers, nodes, a controller and a router are added to a file that
/// lists no layers or no nodes: one that lists both is complete.
pub(super) fn complete(table: &mut Table) -> Result<Vec<String>, ConfigError> {
    let is_short = members(table, "layer").is_empty() || members(table, "node").is_empty();
    if is_short && members(table, "shim").is_empty() {
        return Err(ConfigError::new(
            "[[shim]]: there is none; add one per storage server, with storage = \"redis://HOST:PORT\""
                .to_owned(),
        ));
    }
    let mut places = HostPlaces::new(table);
    if members(table, "node").is_empty() && !places.addresses.is_empty() {
        return Err(ConfigError::new(
            "[[node]]: there is none; where there are [[host]]s, list every member with its host: nobody else knows which \
             host is to have it"
                .to_owned(),
        ));
    }
    let mut said = Vec::new();
    shims(table, &mut places, &mut said)?;
    standbys(table, &mut places, &mut said)?;
    let racks = racks(table);
    layers(table, &mut said);
    nodes(table, &racks, &mut places, &mut said)?;
    if is_short && places.addresses.is_empty() {
        one_of(table, "controller");
        one_of(table, "router");
    }
    controllers(table, &mut places, &mut said)?;
    routers(table, &mut places, &mut said)?;
    Ok(said)
}

/// Which address is whose. Hosts count for themselves, so that a role has the same ports on each.
struct HostPlaces {
    /// By the name of the host.
    addresses: BTreeMap<String, IpAddr>,
    /// Where all members of a host say how they are, by its name.
    admins: BTreeMap<String, String>,
    /// How many have had a port of those that begin here, by the host's name.
    taken: BTreeMap<(Option<String>, u16), usize>,
}

impl HostPlaces {
    fn new(table: &Table) -> HostPlaces {
        let hosts = members(table, "host").iter().filter_map(Value::as_table);
        let address = |host: &Table| Some((text(host, "name")?, text(host, "address")?.parse().ok()?));
        let admin = |host: &Table| Some((text(host, "name")?, text(host, "admin")?));
        let (addresses, admins) = (hosts.clone().filter_map(address), hosts.filter_map(admin));
        HostPlaces { addresses: addresses.collect(), admins: admins.collect(), taken: BTreeMap::new() }
    }

    /// The address of the next member there whose ports begin at `first`; `None` beyond the last that is assumed. On a host
    /// that there is not, which validation names, and without one it is loopback.
    fn next(&mut self, first: u16, member: &Table) -> Option<SocketAddr> {
        let host = text(member, "host").filter(|host| self.addresses.contains_key(host));
        let ip = host.as_ref().and_then(|host| self.addresses.get(host)).copied();
        let taken = self.taken.entry((host, first)).or_default();
        let place = *taken;
        *taken += 1;
        let port = first.saturating_add(u16::try_from(place).ok().filter(|_| place < PORTS)?);
        Some(SocketAddr::new(ip.unwrap_or(Ipv4Addr::LOCALHOST.into()), port))
    }
}

fn members<'a>(table: &'a Table, section: &str) -> &'a [Value] {
    table.get(section).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The entries of a section; other types than tables were refused when the file was parsed.
fn each<'a>(table: &'a mut Table, section: &str) -> impl Iterator<Item = &'a mut Table> {
    let entries = table.get_mut(section).and_then(Value::as_array_mut);
    entries.into_iter().flatten().filter_map(Value::as_table_mut)
}

fn text(member: &Table, key: &str) -> Option<String> {
    member.get(key)?.as_str().map(str::to_owned)
}

fn one_of(table: &mut Table, section: &str) {
    if members(table, section).is_empty() {
        table.insert(section.to_owned(), Value::Array(vec![Value::Table(Table::new())]));
    }
}

/// One member of the file on its way to being complete.
struct Filling<'a> {
    section: &'a str,
    index: usize,
    member: &'a mut Table,
    assumed: Vec<String>,
}

impl<'a> Filling<'a> {
    fn new(section: &'a str, index: usize, member: &'a mut Table) -> Filling<'a> {
        Filling { section, index, member, assumed: Vec::new() }
    }

    fn assume(&mut self, key: &str, value: &str) {
        if !self.member.contains_key(key) {
            self.member.insert(key.to_owned(), Value::String(value.to_owned()));
            self.assumed.push(format!("{key} = {value:?}"));
        }
    }

    /// One that has an address takes its place all the same: otherwise, to write it out would move the others.
    fn listen(&mut self, first: u16, places: &mut HostPlaces) -> Result<(), ConfigError> {
        let next = places.next(first, self.member);
        if self.member.contains_key("listen") {
            return Ok(());
        }
        let Some(address) = next else {
            return Err(ConfigError::new(format!(
                "[[{}]] number {}: listen is missing: ports are assumed for the first {PORTS} only; write listen = \
                 \"IP:PORT\"",
                self.section,
                self.index + 1
            )));
        };
        self.assume("listen", &address.to_string());
        Ok(())
    }

    fn admin(&mut self, places: &HostPlaces) {
        let host = text(self.member, "host");
        if let Some(admin) = host.and_then(|host| places.admins.get(&host)) {
            self.assume("admin", admin);
        }
    }

    fn say(self, said: &mut Vec<String>) {
        if !self.assumed.is_empty() {
            said.push(format!("[[{}]] {}: {}", self.section, self.index + 1, self.assumed.join(", ")));
        }
    }
}

/// A server without a rack is one.
fn shims(table: &mut Table, places: &mut HostPlaces, said: &mut Vec<String>) -> Result<(), ConfigError> {
    for (index, shim) in each(table, "shim").enumerate() {
        let mut filling = Filling::new("shim", index, shim);
        filling.assume("id", &format!("shim-{index}"));
        let id = text(filling.member, "id").unwrap_or_default();
        filling.assume("rack", &id);
        filling.listen(SHIM_PORT, places)?;
        filling.admin(places);
        filling.say(said);
    }
    Ok(())
}

/// Called as the shim that they stand by for.
fn standbys(table: &mut Table, places: &mut HostPlaces, said: &mut Vec<String>) -> Result<(), ConfigError> {
    let shims = members(table, "shim").iter().filter_map(Value::as_table);
    let ids: Vec<String> = shims.filter_map(|shim| text(shim, "id")).collect();
    let mut of_each: Vec<String> = Vec::new();
    for (index, standby) in each(table, "standby").enumerate() {
        let mut filling = Filling::new("standby", index, standby);
        if let [only] = &ids[..] {
            filling.assume("of", only);
        }
        let of = text(filling.member, "of").ok_or_else(|| {
            ConfigError::new(format!(
                "[[standby]] number {}: of is missing: write of = the id of a [[shim]]",
                index + 1
            ))
        })?;
        let before = of_each.iter().filter(|other| **other == of).count();
        let id = if before == 0 { format!("{of}-standby") } else { format!("{of}-standby-{}", before + 1) };
        filling.assume("id", &id);
        filling.listen(STANDBY_PORT, places)?;
        filling.admin(places);
        filling.say(said);
        of_each.push(of);
    }
    Ok(())
}

fn racks(table: &Table) -> Vec<String> {
    let mut racks = Vec::new();
    for shim in members(table, "shim").iter().filter_map(Value::as_table) {
        if let Some(rack) = text(shim, "rack").filter(|rack| !racks.contains(rack)) {
            racks.push(rack);
        }
    }
    racks
}

/// The layer of a node that names none, where no layer is listed.
fn layer_of(node: &Table) -> String {
    let by_rack = if node.contains_key("rack") { LEAF } else { SPINE };
    text(node, "layer").unwrap_or_else(|| by_rack.to_owned())
}

/// Leaf and spine, or those of the two that nodes are in.
fn layers(table: &mut Table, said: &mut Vec<String>) {
    if !members(table, "layer").is_empty() {
        return;
    }
    let nodes = members(table, "node").iter().filter_map(Value::as_table);
    let named: Vec<String> = nodes.map(layer_of).collect();
    let known: Vec<_> = [(LEAF, "rack"), (SPINE, "hash")]
        .into_iter()
        .filter(|(name, _)| named.is_empty() || named.iter().any(|named| named == name))
        .collect();
    let layer = |(name, partition): (&str, &str)| {
        said.push(format!("[[layer]] name = {name:?}, partition = {partition:?}"));
        let pair = |key: &str, value: &str| (key.to_owned(), Value::String(value.to_owned()));
        Value::Table(Table::from_iter([pair("name", name), pair("partition", partition)]))
    };
    table.insert("layer".to_owned(), Value::Array(known.into_iter().map(layer).collect()));
}

fn nodes(
    table: &mut Table,
    racks: &[String],
    places: &mut HostPlaces,
    said: &mut Vec<String>,
) -> Result<(), ConfigError> {
    let layers: Vec<(String, bool)> = members(table, "layer")
        .iter()
        .filter_map(Value::as_table)
        .map(|layer| {
            let by_rack = text(layer, "partition").as_deref() == Some("rack");
            (text(layer, "name").unwrap_or_default(), by_rack)
        })
        .collect();
    let all_assumed = members(table, "node").is_empty();
    if all_assumed {
        table.insert("node".to_owned(), Value::Array(one_per_rack(&layers, racks)));
    }
    let mut counts = vec![0; layers.len()];
    for (index, node) in each(table, "node").enumerate() {
        let mut filling = Filling::new("node", index, node);
        if all_assumed {
            let fields = filling.member.iter().map(|(key, value)| format!("{key} = {value}"));
            filling.assumed = fields.collect();
        }
        let by_rack = filling.member.contains_key("rack");
        if let Some((name, _)) = layers.iter().find(|layer| layer.1 == by_rack) {
            filling.assume("layer", name);
        }
        let name = text(filling.member, "layer").ok_or_else(|| {
            ConfigError::new(format!(
                "[[node]] number {}: layer is missing: write layer = the name of a [[layer]]",
                index + 1
            ))
        })?;
        // A layer that does not exist is found by validation, which names those that do.
        if let Some(layer) = layers.iter().position(|(known, _)| *known == name) {
            let place = counts[layer];
            counts[layer] += 1;
            filling.assume("id", &format!("{name}-{place}"));
            filling.listen(NODE_PORT.saturating_add(100 * layer as u16), places)?;
        } else {
            filling.assume("id", &format!("{name}-{index}"));
        }
        filling.admin(places);
        filling.say(said);
    }
    Ok(())
}

/// As many nodes in each layer as there are racks: then each layer carries what the servers do.
fn one_per_rack(layers: &[(String, bool)], racks: &[String]) -> Vec<Value> {
    let node = |(layer, by_rack): &(String, bool), rack: &String| {
        let mut node = Table::from_iter([("layer".to_owned(), Value::String(layer.clone()))]);
        if *by_rack {
            node.insert("rack".to_owned(), Value::String(rack.clone()));
        }
        Value::Table(node)
    };
    layers.iter().flat_map(|layer| racks.iter().map(move |rack| node(layer, rack))).collect()
}

fn controllers(
    table: &mut Table,
    places: &mut HostPlaces,
    said: &mut Vec<String>,
) -> Result<(), ConfigError> {
    for (index, controller) in each(table, "controller").enumerate() {
        let mut filling = Filling::new("controller", index, controller);
        let id = if index == 0 { "controller".to_owned() } else { format!("controller-{index}") };
        filling.assume("id", &id);
        filling.listen(CONTROLLER_PORT, places)?;
        filling.say(said);
    }
    Ok(())
}

fn routers(table: &mut Table, places: &mut HostPlaces, said: &mut Vec<String>) -> Result<(), ConfigError> {
    let storages = members(table, "shim").iter().filter_map(Value::as_table);
    let memcached =
        storages.filter_map(|shim| text(shim, "storage")).any(|storage| storage.starts_with("memcached://"));
    // Nobody is let in without TLS who has set up TLS for clients and forgotten where.
    let secured = table.get("tls").and_then(|tls| tls.get("clients")).is_some();
    for (index, router) in each(table, "router").enumerate() {
        let mut filling = Filling::new("router", index, router);
        filling.assume("id", &format!("router-{index}"));
        if secured || ["listen_tls", "listen_unix"].iter().any(|key| filling.member.contains_key(*key)) {
            places.next(ROUTER_PORT, filling.member);
        } else {
            filling.listen(ROUTER_PORT, places)?;
        }
        filling.admin(places);
        if memcached {
            filling.assume("protocol", "memcached");
        }
        filling.say(said);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use toml::Table;

    use super::complete;
    use crate::{Config, FrontProtocol};

    const SECRET: &str = "[cluster]\nsecret = \"00112233445566778899aabbccddeeff\"\n";

    fn parse(members: &str) -> Config {
        Config::parse(&format!("{SECRET}{members}")).unwrap_or_else(|error| panic!("{error}\n{members}"))
    }

    fn shim(server: u16) -> String {
        format!("[[shim]]\nstorage = \"redis://127.0.0.1:{server}\"\n")
    }

    /// Each member with its address.
    fn members(config: &Config) -> Vec<String> {
        let nodes = config.nodes.iter().map(|node| {
            let rack = node.rack.as_deref().unwrap_or("-");
            format!("{} {} {rack} {}", node.id, node.layer, node.listen)
        });
        let shims = config.shims.iter().map(|shim| format!("{} {} {}", shim.id, shim.rack, shim.listen));
        let routers = config.routers.iter().map(|router| {
            let listens: Vec<String> = router.listens().map(|listen| listen.address.to_string()).collect();
            format!("{} {}", router.id, listens.join(" "))
        });
        let controllers = config.controllers.iter().map(|member| format!("{} {}", member.id, member.listen));
        controllers.chain(shims).chain(nodes).chain(routers).collect()
    }

    #[test]
    fn two_servers_are_two_racks_with_a_leaf_and_a_spine_node_each() {
        let expected = [
            "controller 127.0.0.1:7000",
            "shim-0 shim-0 127.0.0.1:7100",
            "shim-1 shim-1 127.0.0.1:7101",
            "leaf-0 leaf shim-0 127.0.0.1:7200",
            "leaf-1 leaf shim-1 127.0.0.1:7201",
            "spine-0 spine - 127.0.0.1:7300",
            "spine-1 spine - 127.0.0.1:7301",
            "router-0 127.0.0.1:6380",
        ];
        let config = parse(&(shim(6391) + &shim(6392)));
        assert_eq!(members(&config), expected);
        let said = config.assumed().join("\n");
        assert!(
            said.contains("[[shim]] 2: id = \"shim-1\", rack = \"shim-1\", listen = \"127.0.0.1:7101\""),
            "{said}"
        );
        let leaf =
            "[[node]] 2: layer = \"leaf\", rack = \"shim-1\", id = \"leaf-1\", listen = \"127.0.0.1:7201\"";
        assert!(said.contains(leaf), "{said}");
        assert!(said.contains("[[layer]] name = \"leaf\", partition = \"rack\""), "{said}");
    }

    #[test]
    fn one_more_server_leaves_ids_and_addresses_of_the_others() {
        let two = members(&parse(&(shim(1) + &shim(2))));
        let three = members(&parse(&(shim(1) + &shim(2) + &shim(3))));
        assert!(two.iter().all(|member| three.contains(member)), "{two:?}\n{three:?}");
        let in_rack = members(&parse(&(shim(1) + "rack = \"r\"\n" + &shim(2) + "rack = \"r\"\n")));
        let addresses = |members: &[String], kind: &str| {
            let own = members.iter().filter(|member| member.starts_with(kind));
            own.map(|member| member.rsplit(' ').next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(addresses(&in_rack, "shim-"), addresses(&two, "shim-"), "a rack moves no server");
        assert_eq!(addresses(&in_rack, "leaf-"), ["127.0.0.1:7200"]);
    }

    #[test]
    fn what_is_written_stays_and_takes_nobody_elses_place() {
        let own = "[[shim]]\nid = \"left\"\nlisten = \"127.0.0.1:9000\"\n[[shim]]\nrack = \"east\"\n\
                   [[controller]]\nlisten = \"127.0.0.1:9001\"\n[[router]]\nlisten_unix = \"/run/r.sock\"\n[[router]]\n";
        let found = members(&parse(own));
        for expected in [
            "left left 127.0.0.1:9000",
            "shim-1 east 127.0.0.1:7101",
            "controller 127.0.0.1:9001",
            "leaf-1 leaf east 127.0.0.1:7201",
            "router-0 unix:///run/r.sock",
            "router-1 127.0.0.1:6381",
        ] {
            assert!(found.iter().any(|member| member == expected), "{expected}: {found:?}");
        }
    }

    #[test]
    fn standbys_are_called_as_the_shim_that_they_stand_by_for() {
        let standby = |of: &str| format!("[[standby]]\nof = \"{of}\"\n");
        let text = shim(1) + &shim(2) + &standby("shim-1") + &standby("shim-0") + &standby("shim-1");
        let config = parse(&text);
        let found: Vec<String> =
            config.standbys.iter().map(|standby| format!("{} {}", standby.id, standby.listen)).collect();
        let expected = [
            "shim-1-standby 127.0.0.1:7600",
            "shim-0-standby 127.0.0.1:7601",
            "shim-1-standby-2 127.0.0.1:7602",
        ];
        assert_eq!(found, expected);
        let place = |id: &str| config.shim_place(id).map(|place| (place.shim.0, place.place));
        assert_eq!(place("shim-1"), Some((1, 0)));
        assert_eq!(place("shim-1-standby-2"), Some((1, 2)));
        assert_eq!(place("shim-0-standby"), Some((0, 1)));
        let addresses: Vec<String> =
            config.shim_addresses(wire::ShimId(1)).map(ToString::to_string).collect();
        assert_eq!(addresses, ["127.0.0.1:7101", "127.0.0.1:7600", "127.0.0.1:7602"]);
    }

    #[test]
    fn a_file_that_lists_layers_and_nodes_gets_no_members() {
        let complete = "[[layer]]\nname = \"top\"\npartition = \"hash\"\n[[node]]\n[[node]]\n[[shim]]\n";
        let found = members(&parse(complete));
        let expected =
            ["shim-0 shim-0 127.0.0.1:7100", "top-0 top - 127.0.0.1:7200", "top-1 top - 127.0.0.1:7201"];
        assert_eq!(found, expected);
    }

    #[test]
    fn nodes_without_layers_are_leaves_where_they_have_a_rack() {
        let text = "[[node]]\nrack = \"r\"\n[[node]]\n[[node]]\nlayer = \"leaf\"\nrack = \"r\"\n[[shim]]\nrack = \"r\"\n";
        let config = parse(text);
        let ids: Vec<&str> = config.nodes.iter().map(|node| node.id.as_str()).collect();
        assert_eq!(ids, ["leaf-0", "spine-0", "leaf-1"]);
        let alone = parse("[[node]]\n[[shim]]\n");
        assert_eq!(alone.layers.len(), 1, "no layer is assumed that has no node");
        let error = Config::parse(&format!("{SECRET}[[node]]\n[[node]]\nlayer = \"spin\"\n[[shim]]\n"));
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("layer = \"spin\": no [[layer]] has this name (did you mean `spine`?)"),
            "{error}"
        );
    }

    #[test]
    fn layers_without_nodes_get_them() {
        let config = parse(
            "[[layer]]\nname = \"a\"\npartition = \"hash\"\n[[layer]]\nname = \"b\"\npartition = \"rack\"\n[[shim]]\n",
        );
        let ids: Vec<&str> = config.nodes.iter().map(|node| node.id.as_str()).collect();
        assert_eq!(ids, ["a-0", "b-0"]);
        assert_eq!(config.nodes[1].listen.to_string(), "127.0.0.1:7300");
    }

    #[test]
    fn routers_before_memcached_speak_its_protocol() {
        let config = parse("[[shim]]\nstorage = \"memcached://127.0.0.1:11211\"\n");
        assert_eq!(config.routers[0].protocol, FrontProtocol::Memcached);
    }

    #[test]
    fn ports_end_before_they_are_anybody_elses() {
        let fill = |count: usize| {
            let mut table: Table = toml::from_str(&"[[shim]]\nrack = \"r\"\n".repeat(count)).unwrap();
            complete(&mut table).map(|_| table)
        };
        let table = fill(100).unwrap();
        assert_eq!(table["shim"][99]["listen"].as_str(), Some("127.0.0.1:7199"));
        let error = fill(101).unwrap_err().to_string();
        assert!(error.starts_with("[[shim]] number 101: listen is missing"), "{error}");
        let nobody = Config::parse(SECRET).unwrap_err().to_string();
        assert!(nobody.contains("[[shim]]: there is none; add one per storage server"), "{nobody}");
    }
}
