//! The members of a cluster as its processes tell each other, so that it can grow while it serves. Not how they tell.

use serde::{Deserialize, Serialize};
use wire::Partition;

use super::load::ConfigError;
use super::{Config, FrontListen, LayerConfig, NodeConfig, RouterConfig};
use crate::Address;

/// Everything that others need to know of the members. Their order is their numbering. What another release says more is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roster {
    pub layers: Vec<RosterLayer>,
    pub nodes: Vec<RosterNode>,
    pub shims: Vec<RosterShim>,
    pub routers: Vec<RosterRouter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterLayer {
    pub name: String,
    pub by_rack: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterNode {
    pub id: String,
    pub layer: String,
    pub rack: Option<String>,
    pub listen: Address,
    /// In thousandths.
    pub capacity: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterShim {
    pub id: String,
    pub rack: String,
    pub listen: Address,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterRouter {
    pub id: String,
    pub listen: Address,
    /// That address is for TLS.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tls: bool,
}

/// How long the lists of a roster are; one that is longer in any of them knows more members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterSize {
    pub layers: usize,
    pub nodes: usize,
    pub routers: usize,
    /// 0 from a release that did not say it. Shims are never taken from another one's list.
    #[serde(default)]
    pub shims: usize,
}

impl Roster {
    pub fn size(&self) -> RosterSize {
        let Roster { layers, nodes, routers, shims } = self;
        RosterSize { layers: layers.len(), nodes: nodes.len(), routers: routers.len(), shims: shims.len() }
    }

    /// The same with the addresses of `own` wherever that has the member, too.
    fn with_addresses_of(&self, own: &Roster) -> Roster {
        let mut same = self.clone();
        same.nodes.iter_mut().zip(&own.nodes).for_each(|(node, own)| node.listen.clone_from(&own.listen));
        same.shims.iter_mut().zip(&own.shims).for_each(|(shim, own)| shim.listen.clone_from(&own.listen));
        for (router, own) in same.routers.iter_mut().zip(&own.routers) {
            router.listen.clone_from(&own.listen);
            router.tls = own.tls;
        }
        same
    }
}

impl RosterSize {
    pub fn exceeds(&self, other: &RosterSize) -> bool {
        self.layers > other.layers || self.nodes > other.nodes || self.routers > other.routers
    }
}

impl Config {
    pub fn roster(&self) -> Roster {
        let layers = self.layers.iter().map(|layer| RosterLayer {
            name: layer.name.clone(),
            by_rack: layer.partition == Partition::Rack,
        });
        let nodes = self.nodes.iter().map(|node| RosterNode {
            id: node.id.clone(),
            layer: node.layer.clone(),
            rack: node.rack.clone(),
            listen: node.listen.clone(),
            capacity: node.capacity_thousandths(),
        });
        let shims = self.shims.iter().map(|shim| RosterShim {
            id: shim.id.clone(),
            rack: shim.rack.clone(),
            listen: shim.listen.clone(),
        });
        let routers = self.routers.iter().filter_map(|router| {
            let FrontListen { address: listen, tls, .. } = router.listens().next()?;
            Some(RosterRouter { id: router.id.clone(), listen, tls })
        });
        Roster {
            layers: layers.collect(),
            nodes: nodes.collect(),
            shims: shims.collect(),
            routers: routers.collect(),
        }
    }

    pub fn roster_size(&self) -> RosterSize {
        RosterSize {
            layers: self.layers.len(),
            nodes: self.nodes.len(),
            routers: self.routers.len(),
            shims: self.shims.len(),
        }
    }

    /// This configuration with the members that only `roster` has; none if there are no such members. Where the others listen is each
    /// one's own to say: it may be behind another address for others, or have moved.
    ///
    /// # Errors
    /// What both have must be the same, and storage servers cannot be added.
    pub fn grown(&self, roster: &Roster) -> Result<Option<Config>, ConfigError> {
        self.check_same(&roster.with_addresses_of(&self.roster()))?;
        let mut grown = self.clone();
        for layer in roster.layers.iter().skip(self.layers.len()) {
            let partition = if layer.by_rack { Partition::Rack } else { Partition::Hash };
            grown.layers.push(LayerConfig { name: layer.name.clone(), partition });
        }
        for node in roster.nodes.iter().skip(self.nodes.len()) {
            let config = NodeConfig::new(&node.id, &node.layer, node.rack.as_deref(), node.listen.clone());
            grown.nodes.push(NodeConfig { capacity: f64::from(node.capacity) / 1000.0, ..config });
        }
        for router in roster.routers.iter().skip(self.routers.len()) {
            let mut config = RouterConfig::new(&router.id, router.listen.clone());
            if let (true, Address::Tcp(address)) = (router.tls, &router.listen) {
                (config.listen, config.listen_tls) = (None, Some(*address));
            }
            grown.routers.push(config);
        }
        if !grown.roster_size().exceeds(&self.roster_size()) {
            return Ok(None);
        }
        grown.validate()?;
        Ok(Some(grown))
    }

    /// As [`Config::grown`], for another version of the same file, which must not lack anything either.
    ///
    /// # Errors
    /// As there, and if members are missing or the secret is another.
    pub fn grown_to(&self, newer: &Config) -> Result<Option<Config>, ConfigError> {
        if newer.secret() != self.secret() {
            return Err(ConfigError::new(
                "[cluster] secret: it places every key, so it cannot change while serving".to_owned(),
            ));
        }
        let lacks = |kind: &str, ids: &mut dyn Iterator<Item = &String>| match ids.next() {
            Some(id) => Err(ConfigError::new(format!(
                "[[{kind}]] {id:?} is missing: members are numbered by their place in the file, so keep its entry; \
                 `distcache drain` takes a node's keys away, and then it can be stopped for good"
            ))),
            None => Ok(()),
        };
        lacks("layer", &mut self.layers.iter().skip(newer.layers.len()).map(|layer| &layer.name))?;
        lacks("node", &mut self.nodes.iter().skip(newer.nodes.len()).map(|node| &node.id))?;
        lacks("router", &mut self.routers.iter().skip(newer.routers.len()).map(|router| &router.id))?;
        self.check_same(&newer.roster())?;
        self.grown(&newer.roster())
    }

    fn check_same(&self, roster: &Roster) -> Result<(), ConfigError> {
        let own = self.roster();
        if own.shims != roster.shims {
            let different = |(index, shim): &(usize, &RosterShim)| roster.shims.get(*index) != Some(*shim);
            let own_shim = own.shims.iter().enumerate().find(different).map(|(_, shim)| &shim.id);
            let id = own_shim.or(roster.shims.get(own.shims.len()).map(|shim| &shim.id));
            return Err(ConfigError::new(format!(
                "[[shim]] {:?}: storage servers cannot be added, removed or changed while serving, because nobody \
                 would move their data; stop the cluster, move the data, and start it again",
                id.map_or("", String::as_str)
            )));
        }
        let differs = |kind: &str, here: &String, there: &String| {
            Err(ConfigError::new(format!(
                "[[{kind}]] {here:?} has become {there:?} or has other fields: members are numbered by their place in \
                 the file, so add new ones at the end of their kind and change none while serving"
            )))
        };
        if let Some((a, b)) = own.layers.iter().zip(&roster.layers).find(|(a, b)| a != b) {
            return differs("layer", &a.name, &b.name);
        }
        if let Some((a, b)) = own.nodes.iter().zip(&roster.nodes).find(|(a, b)| a != b) {
            return differs("node", &a.id, &b.id);
        }
        match own.routers.iter().zip(&roster.routers).find(|(a, b)| a != b) {
            Some((a, b)) => differs("router", &a.id, &b.id),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Config;
    use crate::{LayerConfig, NodeConfig, RouterConfig, Secret, ShimConfig, StorageConfig};
    use wire::Partition;

    fn config() -> Config {
        let address = |port: u16| format!("127.0.0.1:{port}").parse().unwrap();
        let mut config = Config::new("t", Secret([1; 16]));
        config.layers.push(LayerConfig { name: "leaf".to_owned(), partition: Partition::Rack });
        config.nodes.push(NodeConfig::new("n0", "leaf", Some("r"), address(7001)));
        config.shims.push(ShimConfig::new("s0", "r", address(7002), StorageConfig::Embedded));
        config.routers.push(RouterConfig::new("x0", address(7003)));
        config
    }

    fn larger() -> Config {
        let address = |port: u16| format!("127.0.0.1:{port}").parse().unwrap();
        let mut config = config();
        config.layers.push(LayerConfig { name: "spine".to_owned(), partition: Partition::Hash });
        let node = NodeConfig::new("n1", "spine", None, address(7011));
        config.nodes.push(NodeConfig { capacity: 2.5, objects_max: 7, ..node });
        config.routers.push(RouterConfig::new("x1", address(7012)));
        config
    }

    #[test]
    fn a_configuration_grows_to_a_longer_roster_and_not_to_a_shorter_one() {
        let grown = config().grown(&larger().roster()).unwrap().unwrap();
        assert_eq!(grown.roster(), larger().roster());
        assert_eq!(grown.map(), larger().map());
        assert!(config().grown(&config().roster()).unwrap().is_none());
        assert!(larger().grown(&config().roster()).unwrap().is_none());
    }

    #[test]
    fn members_of_a_roster_may_have_moved() {
        let mut moved = larger();
        let address = |port: u16| format!("127.0.0.1:{port}").parse().unwrap();
        (moved.nodes[0].listen, moved.shims[0].listen) = (address(7101), address(7102));
        moved.routers[0].listen = Some(address(7103));
        assert!(larger().grown(&moved.roster()).unwrap().is_none());
        let grown = config().grown(&moved.roster()).unwrap().unwrap();
        assert_eq!(grown.roster(), larger().roster(), "each goes on with the addresses of its file");
        moved.nodes[0].capacity = 3.0;
        assert!(larger().grown(&moved.roster()).is_err(), "that decides where keys are");
    }

    #[test]
    fn what_cannot_change_while_serving_is_named() {
        let check = |change: &dyn Fn(&mut Config), expected: &str| {
            let mut newer = larger();
            change(&mut newer);
            let error = larger().grown_to(&newer).unwrap_err().to_string();
            assert!(error.contains(expected), "expected: {expected}\n     got: {error}");
        };
        let address = || "127.0.0.1:7099".parse().unwrap();
        let shim = || ShimConfig::new("s1", "r", address(), StorageConfig::Embedded);
        check(&|new| new.shims.push(shim()), "\"s1\": storage servers cannot be added");
        check(&|new| new.shims[0].rack = "other".to_owned(), "\"s0\": storage servers");
        check(&|new| new.shims.clear(), "\"s0\": storage servers");
        check(&|new| drop(new.nodes.pop()), "[[node]] \"n1\" is missing");
        check(&|new| drop(new.layers.pop()), "[[layer]] \"spine\" is missing");
        check(&|new| drop(new.routers.remove(0)), "[[router]] \"x1\" is missing");
        check(&|new| new.nodes.swap(0, 1), "[[node]] \"n0\" has become \"n1\"");
        check(
            &|new| new.nodes[1].listen = address(),
            "[[node]] \"n1\" has become \"n1\" or has other fields",
        );
        check(&|new| new.cluster.secret = Some(Secret([2; 16])), "secret");
        let mut bad = larger();
        bad.nodes.push(NodeConfig::new("n1", "spine", None, address()));
        assert!(larger().grown_to(&bad).is_err(), "ids must be unique");
        assert!(larger().grown_to(&larger()).unwrap().is_none());
    }
}
