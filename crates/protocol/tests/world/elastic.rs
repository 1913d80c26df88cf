//! Keys with more places than one per layer, in scripts: who is hot, and reads by routers that know it.

use std::fmt::Write;

use protocol::requests::RequestLimits;
use protocol::shim::{self, ShimSettings};
use wire::message::{Heat, Read};
use wire::{Degree, Message, NodeId, ShimId};

use super::{ROUTER, SHIM, World, index, peer};

impl World {
    pub(super) fn elastic_command(&mut self, words: &[&str]) -> bool {
        match words {
            // Both nodes are in one layer: the key has one place, and another one while it is hot.
            ["one_layer"] => *self = World::with(1),
            ["places", key] => {
                let key = self.key(key);
                let nodes: Vec<String> =
                    self.placement.preferences(&key).iter().map(|node| format!("n{}", node.0)).collect();
                let _ = writeln!(self.log, "  {}", nodes.join(", "));
            }
            // A read by a router that takes the key to have two places.
            ["elastic", name, "via", node, args @ ..] => {
                let (key, view, command) = self.view(args);
                let (request, degree, waited_ms) = (self.request(name), Degree(1), 0);
                let (resp3, ordered, streams) = (false, false, false);
                let read = Read { request, key, view, resp3, ordered, streams, waited_ms, degree, command };
                self.post(ROUTER, peer(node), Message::Read(read));
            }
            // What a node says of a key, in a session of its own or in none.
            ["heat", node, key, permille, hits, invalidations] => {
                self.heat(node, key, [permille, hits, invalidations], 0)
            }
            ["old_heat", node, key, permille, hits, invalidations] => {
                self.heat(node, key, [permille, hits, invalidations], 1);
            }
            ["rate", node, rate] => {
                let rate_max = rate.parse().expect("requests per second");
                let node = self.nodes[index(node)].as_mut().expect("it runs");
                node.limit(RequestLimits { rate_max, ..RequestLimits::default() });
            }
            ["busy_for", permille] => {
                self.step_shim(shim::Input::Busy { permille: permille.parse().expect("thousandths") });
            }
            ["copies_max", copies] => {
                let copies_max = copies.parse().expect("a number");
                let settings = ShimSettings { copies_max, ..super::shim_settings() };
                self.step_shim(shim::Input::Settings(Box::new(settings)));
            }
            _ => return false,
        }
        true
    }

    fn heat(&mut self, node: &str, key: &str, figures: [&str; 3], stale: u64) {
        let at = index(node);
        let machine = self.nodes[at].as_ref().expect("it runs");
        let (session, _) = machine.session(self.now, ShimId(0)).expect("it has a session");
        let [permille, hits, invalidations] = figures.map(|figure| figure.parse().expect("a number"));
        let (session, key, degree) = (session - stale, self.key(key), Degree::BASE);
        let heat = Heat { session, key, degree, permille, hits, invalidations };
        self.post(wire::Peer::Node(NodeId(at as u16)), SHIM, Message::Heat(heat));
    }
}
