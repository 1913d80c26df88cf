//! Clients of the routers: what each waits for. Not what they ask for and when.

use std::collections::VecDeque;

use protocol::router::ClientId;
use smallvec::SmallVec;

use crate::commands::StorageAnswers;
use crate::history::OperationId;
use crate::network::HostId;
use crate::random::SimRandom;
use crate::shape::Shape;
use crate::tracker::Tracker;

/// A command without its reply.
#[derive(Clone, Debug)]
pub(crate) struct AskedCommand {
    pub(crate) operations: SmallVec<[OperationId; 2]>,
    pub(crate) answers: StorageAnswers,
    pub(crate) since: u64,
    pub(crate) blocks: bool,
    /// Every error leaves its outcome open, since it ran at several servers.
    pub(crate) everywhere: bool,
    /// A write that nothing of its client holds up: how long it takes is its own affair.
    pub(crate) writes: bool,
    /// Its reply may be kept until the client hears of a change.
    pub(crate) keeps: bool,
}

#[derive(Debug)]
pub(crate) struct SimClient {
    pub(crate) router: HostId,
    pub(crate) id: ClientId,
    pub(crate) resp3: bool,
    pub(crate) connected: bool,
    /// Counts connections.
    pub(crate) connection: u32,
    /// In the order of asking, which is that of the replies.
    pub(crate) asked: VecDeque<AskedCommand>,
    /// If it keeps what it reads.
    pub(crate) tracker: Option<Tracker>,
}

impl SimClient {
    pub(crate) fn id(&self) -> ClientId {
        self.id
    }
}

pub(crate) fn clients(shape: &Shape, routers_first: HostId, random: &mut SimRandom) -> Vec<SimClient> {
    let mut client = |index: usize| SimClient {
        tracker: None,
        router: routers_first + index % shape.routers,
        id: ClientId((index / shape.routers) as u32),
        resp3: shape.traffic.resp3 && random.percent(40),
        connected: false,
        connection: 0,
        asked: VecDeque::new(),
    };
    let mut clients: Vec<SimClient> = (0..shape.clients).map(&mut client).collect();
    for client in clients.iter_mut().take(shape.trackers) {
        (client.resp3, client.tracker) = (true, Some(Tracker::draw(random)));
    }
    clients
}
