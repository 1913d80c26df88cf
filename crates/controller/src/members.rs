//! The members of a configuration as the controller's machine numbers them. Not how they become more.

use std::sync::Arc;

use config::{Config, Roster};
use protocol::controller::Members;
use wire::{ClusterMap, Peer, RouterId};

#[derive(Clone, Debug)]
pub(crate) struct Configured(pub(crate) Arc<Config>);

impl Members for Configured {
    type Roster = Roster;

    fn roster(&self) -> Roster {
        self.0.roster()
    }

    fn map(&self) -> ClusterMap {
        self.0.map()
    }

    fn others(&self) -> Vec<Peer> {
        let routers = (0..self.0.routers.len()).map(|index| Peer::Router(RouterId(index as u16)));
        let standbys = self.0.standbys.iter().filter_map(|standby| self.0.process(&standby.id));
        routers.chain(standbys).collect()
    }

    fn grown(&self, roster: &Roster) -> Result<Option<Configured>, String> {
        let grown = self.0.grown(roster).map_err(|error| error.to_string())?;
        Ok(grown.map(|config| Configured(Arc::new(config))))
    }

    fn exceeds(&self, roster: &Roster) -> bool {
        self.0.roster_size().exceeds(&roster.size())
    }
}
