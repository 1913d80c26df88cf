//! Others than DistCache that write to storage directly, as mode `bounded` allows. Not who notices.

use crate::cluster::Cluster;
use crate::commands;
use crate::event::SimEvent;
use crate::shape::Traffic;

impl Cluster {
    pub(crate) fn outsider_acts(&mut self) {
        if self.quiet {
            return;
        }
        let next = self.world.now() + self.world.random.wait(self.shape.outsiders).max(1);
        self.world.at(next, SimEvent::Outsider);
        let (drawn, key) = if self.world.random.per_mille(5) {
            (commands::flush(self.keys.len()), self.world.random.index(self.keys.len()))
        } else {
            let traffic = Traffic { reads: 0, ..self.shape.traffic.clone() };
            self.serial += 1;
            let drawn = commands::draw(&traffic, &self.keys, None, self.serial, &mut self.world.random);
            let key = drawn.effects.first().map_or(0, |(key, _)| *key);
            (drawn, key)
        };
        let drawn = self.unless_settled(drawn);
        let server = usize::from(self.placement.shim(&self.keys[key].key).0);
        if !drawn.blocks && self.servers[server].paused_until <= self.world.now() {
            self.watch.outside += 1;
            self.write_outside(server, &drawn.command);
        }
    }
}
