//! How long clients waited, and that nobody waits for ever once nothing goes wrong any more.

use crate::cluster::Cluster;
use crate::records::Disturbance;

impl Cluster {
    /// What messages, ticks and storage may add to a wait for a lease.
    pub(crate) fn slack(&self) -> u64 {
        let network = self.shape.latency * 4 * if self.shape.slow_channels > 0 { 10 } else { 1 };
        network * 20 + self.shape.storage_latency * 40 + self.shape.tick * 4 + 20_000
    }

    /// What the rate of a shim adds to that where more is asked of it and requests wait.
    pub(crate) fn rate_wait(&self) -> u64 {
        let requests = &self.shape.requests;
        if requests.rate_max > 0 { requests.wait_max().as_micros() as u64 } else { 0 }
    }

    /// How long a rate takes for what clients wait for, if nothing is asked any more: each operation costs a read of a
    /// router's, and a fill of a node's in each layer.
    pub(crate) fn drain_wait(&self) -> u64 {
        let requests = &self.shape.requests;
        let waiting = self.clients.iter().flat_map(|client| &client.asked);
        let operations: usize = waiting.map(|asked| asked.operations.len()).sum();
        let each = 1 + self.shape.map.layers.len();
        match requests.rate_max {
            0 => 0,
            rate => self.rate_wait() + (operations * each) as u64 * 1_000_000 / rate,
        }
    }

    /// Notes that something is wrong from now on, which may make writes wait.
    pub(crate) fn disturb_until(&mut self, until: u64, leases: Option<u64>) {
        let from = self.world.now();
        self.watch.disturbances.push(Disturbance { from, until, leases });
    }

    /// While messages get lost a write waits for one node, and the write behind it for the next: every copy of its two
    /// keys may cost a lease.
    pub(crate) fn leases_while_messages_are_lost(&self) -> Option<u64> {
        Some(self.shape.map.layers.len() as u64 * 2)
    }

    /// While nothing but nodes is in trouble, a write waits for the leases of those nodes and no longer.
    pub(crate) fn check_stalls(&mut self) {
        let (stall, slack) = (self.shape.stall_max(), self.slack() + self.rate_wait());
        let mut writes = std::mem::take(&mut self.watch.slow_writes);
        writes.retain(|(since, answered)| answered - since > stall + slack);
        for (since, answered) in writes {
            let overlaps = |other: &&Disturbance| {
                // Queues of writes that began before may take as long again.
                other.from <= answered && other.until + 2 * stall >= since
            };
            let overlapping: Vec<&Disturbance> = self.watch.disturbances.iter().filter(overlaps).collect();
            let leases = overlapping.iter().map(|other| other.leases).sum::<Option<u64>>();
            let Some(leases) = leases else { continue };
            let limit = stall * leases.max(1) + slack;
            if answered - since > limit {
                let (took, limit) = ((answered - since) as f64 / 1e6, limit as f64 / 1e6);
                return self.world.fail(format!(
                    "a write asked for at {:.6} s took {took} s, {limit} s are allowed",
                    since as f64 / 1e6
                ));
            }
        }
    }

    /// What is not as it should be: a process that does not run, a link that is not made, storage that does not serve.
    pub(crate) fn missing(&self) -> Option<String> {
        let spare = |host: usize| self.is_slot(host) && self.servers[self.server_of(host)].current != host;
        let asleep =
            (0..self.hosts.len()).find(|host| self.hosts[*host].is_awake(self.world.now()) == spare(*host));
        if let Some(host) = asleep {
            return Some(format!("{host} ({:?}) is not as it should be", self.hosts[host].role));
        }
        let slots = self.servers.iter().map(|server| server.current);
        if let Some(slot) = slots.clone().find(|slot| self.lacks_feed(*slot)) {
            return Some(format!("{slot} does not hear of changes"));
        }
        if let Some(slot) =
            slots.into_iter().find(|slot| !self.backends[slot - self.slots_first].is_serving())
        {
            return Some(format!("the storage of {slot} does not serve"));
        }
        let linked = |link: &crate::network::SimLink| {
            link.is_linked(0) && link.is_linked(1) && !link.has_news(0) && !link.has_news(1)
        };
        let broken = self.network.links.iter().find(|link| !linked(link))?;
        Some(format!("{:?} are not linked", broken.peers))
    }

    /// Everyone who asked has an answer.
    pub(crate) fn check_answered(&mut self) {
        let waiting = self.clients.iter().enumerate().find(|(_, client)| !client.asked.is_empty());
        let Some((client, first)) =
            waiting.and_then(|(client, own)| Some((client, own.asked.front()?.clone())))
        else {
            return;
        };
        let what: Vec<_> = first.operations.iter().map(|id| self.history.get(*id).what.clone()).collect();
        self.world.fail(format!(
            "client {client} has waited since {:.6} s for an answer to {what:?}",
            first.since as f64 / 1e6
        ));
    }
}
