//! One client's unanswered operations, in order, and what their order demands of the next one (design: program
//! order). Not where operations go.

use std::collections::VecDeque;

use bytes::Bytes;
use smallvec::SmallVec;
use wire::{NodeId, Peer};

use crate::router::flow::gather::Merge;
use crate::router::flow::ran::Ran;
use crate::router::flow::reply::PartReply;
use crate::router::flow::request::{CommandKeys, CommandWay, Manner, Routed};
use crate::router::flow::streaming::Streaming;
use crate::router::flow::touch::Touch;
use crate::router::flow::touched::TouchCounts;
use crate::time::Time;
use commands::CommandKind;

/// Above this capacity an emptied pipeline gives its memory back: most clients idle most of the time.
const CAPACITY_KEPT: usize = 64;
/// From this length on it is written down which keys a pipeline is about; a shorter one is looked through as fast.
const LONG: usize = 32;

/// A command between its arrival and its reply.
#[derive(Debug)]
pub(crate) struct ClientOperation {
    pub(crate) received: Time,
    pub(crate) touch: Touch,
    pub(crate) progress: OperationProgress,
    /// Bytes of the command, and of its reply while that waits for earlier ones.
    pub(crate) held_bytes: usize,
    pub(crate) script: bool,
    pub(crate) manner: Manner,
    /// Its reply came in parts.
    pub(crate) streamed: bool,
    pub(crate) ran: Ran,
}

/// Which connection to storage a shim uses: one for each, and none waits for another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StorageLane {
    pub(crate) resp3: bool,
    pub(crate) script: bool,
}

#[derive(Debug)]
pub(crate) enum OperationProgress {
    Waiting(Box<HeldCommand>),
    /// Its turn has come, and it is up to the front what is sent.
    Handed,
    Sent(SentRequest),
    Fan(Box<FanOut>),
    Streaming(Box<Streaming>),
    Done(Bytes),
}

/// A command that is held back.
#[derive(Debug)]
pub(crate) struct HeldCommand {
    pub(crate) routed: Routed,
    pub(crate) keys: CommandKeys,
}

/// A command that waits for room at a member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoomTurn {
    pub(crate) sequence: u64,
    pub(crate) peer: Peer,
    /// When it first had to wait for room anywhere.
    pub(crate) since: Time,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SentRequest {
    pub(crate) request: u64,
    pub(crate) peer: Peer,
    pub(crate) read: bool,
}

/// An operation in several parts.
#[derive(Debug)]
pub(crate) struct FanOut {
    pub(crate) parts: Vec<FanPart>,
    pub(crate) outstanding: usize,
    pub(crate) merge: Merge,
}

#[derive(Debug)]
pub(crate) struct FanPart {
    pub(crate) sent: SentRequest,
    pub(crate) touch: SmallVec<[u64; 1]>,
    pub(crate) reply: Option<PartReply>,
}

/// What the earlier operations on a key allow the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOrder {
    Free,
    /// All of them went to this peer; to a node only reads go.
    Follow(Peer),
    Wait,
}

impl KeyOrder {
    fn after(self, sent: SentRequest) -> KeyOrder {
        match self {
            KeyOrder::Free => KeyOrder::Follow(sent.peer),
            KeyOrder::Follow(peer) if peer == sent.peer => self,
            KeyOrder::Follow(_) | KeyOrder::Wait => KeyOrder::Wait,
        }
    }
}

impl FanPart {
    /// A request that no key orders.
    pub(crate) fn alone(sent: SentRequest) -> FanPart {
        FanPart { sent, touch: SmallVec::new(), reply: None }
    }

    /// A part that nobody is asked for. It has taken effect, and orders nothing.
    pub(crate) fn answered(reply: PartReply) -> FanPart {
        let sent = SentRequest { request: 0, peer: Peer::Node(NodeId(0)), read: true };
        FanPart { sent, touch: SmallVec::new(), reply: Some(reply) }
    }
}

impl OperationProgress {
    pub(crate) fn fan(parts: Vec<FanPart>, merge: Merge) -> OperationProgress {
        let outstanding = parts.iter().filter(|part| part.reply.is_none()).count();
        OperationProgress::Fan(Box::new(FanOut { parts, outstanding, merge }))
    }
}

impl ClientOperation {
    /// One that holds nothing, is asked in RESP2, and whose reply is sent as it comes.
    pub(crate) fn new(received: Time, touch: Touch, progress: OperationProgress) -> ClientOperation {
        ClientOperation {
            received,
            touch,
            progress,
            held_bytes: 0,
            script: false,
            manner: Manner::default(),
            streamed: false,
            ran: Ran::default(),
        }
    }

    pub(crate) fn answered(&self) -> bool {
        matches!(self.progress, OperationProgress::Done(_))
    }

    pub(crate) fn waiting(&self) -> bool {
        matches!(self.progress, OperationProgress::Waiting(_))
    }

    fn join(&self, digest: u64, lane: StorageLane, order: KeyOrder) -> KeyOrder {
        let own = StorageLane { resp3: self.manner.resp3, script: self.script };
        let after = |sent, order: KeyOrder| if own == lane { order.after(sent) } else { KeyOrder::Wait };
        match &self.progress {
            // Storage has carried it out by the time its reply begins.
            OperationProgress::Done(_) | OperationProgress::Streaming(_) => order,
            _ if !self.touch.contains(digest) => order,
            OperationProgress::Waiting(_) => KeyOrder::Wait,
            _ if matches!(self.touch, Touch::All) => KeyOrder::Wait,
            OperationProgress::Handed => KeyOrder::Wait,
            OperationProgress::Sent(sent) => after(*sent, order),
            OperationProgress::Fan(fan) => fan
                .parts
                .iter()
                .filter(|part| part.reply.is_none() && part.touch.contains(&digest))
                .fold(order, |order, part| after(part.sent, order)),
        }
    }
}

/// The operations of one client that have not been answered to it, oldest first.
#[derive(Debug, Default)]
pub(crate) struct ClientPipeline {
    operations: VecDeque<ClientOperation>,
    /// Sequence number of the front.
    first: u64,
    /// How many are held back.
    waiting: usize,
    /// Commands that only wait for room, in order.
    turns: VecDeque<RoomTurn>,
    held_bytes: usize,
    /// What all of its operations are about, since it became long.
    touched: Option<Box<TouchCounts>>,
}

impl ClientPipeline {
    pub(crate) fn len(&self) -> usize {
        self.operations.len()
    }

    /// Bytes of commands without a reply, and of replies that wait for earlier ones.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// A reply has come, maybe before its turn.
    pub(crate) fn hold(&mut self, sequence: u64, reply_bytes: usize) {
        if let Some(operation) = self.get_mut(sequence) {
            operation.held_bytes += reply_bytes;
            self.held_bytes += reply_bytes;
        }
    }

    /// Whether the next reply goes to the client in parts.
    #[inline]
    pub(crate) fn streams(&self) -> bool {
        let front = self.operations.front();
        front.is_some_and(|operation| matches!(operation.progress, OperationProgress::Streaming(_)))
    }

    /// The reply that goes to the client in parts now.
    pub(crate) fn streaming(&mut self) -> Option<(&mut ClientOperation, &mut usize)> {
        let operation = self.operations.front_mut()?;
        matches!(operation.progress, OperationProgress::Streaming(_))
            .then_some((operation, &mut self.held_bytes))
    }

    /// The sequence number that the next operation gets.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.operations.len() as u64
    }

    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Whether anything waits for the answers to others, and not only for room.
    pub(crate) fn any_held_back(&self) -> bool {
        self.waiting > self.turns.len()
    }

    pub(crate) fn turns(&self) -> impl ExactSizeIterator<Item = &RoomTurn> {
        self.turns.iter()
    }

    /// The oldest command that waits for room at this member.
    pub(crate) fn first_turn(&self, peer: Peer) -> Option<RoomTurn> {
        self.turns.iter().find(|turn| turn.peer == peer).copied()
    }

    pub(crate) fn has_turn(&self, sequence: u64) -> bool {
        self.turns.binary_search_by_key(&sequence, |turn| turn.sequence).is_ok()
    }

    /// A command waits for room from now on. Whether it is the only one that does at its member.
    pub(crate) fn await_turn(&mut self, turn: RoomTurn) -> bool {
        let first = self.first_turn(turn.peer).is_none();
        let place = self.turns.partition_point(|other| other.sequence < turn.sequence);
        self.turns.insert(place, turn);
        first
    }

    /// The kinds of what is held back.
    pub(crate) fn waiting_kinds(&self) -> impl Iterator<Item = CommandKind> {
        self.operations.iter().filter_map(|operation| match &operation.progress {
            OperationProgress::Waiting(waiting) => Some(waiting.routed.classified.kind),
            _ => None,
        })
    }

    pub(crate) fn push(&mut self, operation: ClientOperation) {
        self.waiting += usize::from(operation.waiting());
        self.held_bytes += operation.held_bytes;
        if let Some(touched) = &mut self.touched {
            touched.add(&operation.touch);
        }
        self.operations.push_back(operation);
        if self.operations.len() >= LONG && self.touched.is_none() {
            let mut touched = Box::<TouchCounts>::default();
            self.operations.iter().for_each(|operation| touched.add(&operation.touch));
            self.touched = Some(touched);
        }
    }

    pub(crate) fn get(&self, sequence: u64) -> Option<&ClientOperation> {
        self.operations.get(sequence.checked_sub(self.first)? as usize)
    }

    pub(crate) fn get_mut(&mut self, sequence: u64) -> Option<&mut ClientOperation> {
        self.operations.get_mut(sequence.checked_sub(self.first)? as usize)
    }

    pub(crate) fn last_mut(&mut self) -> Option<&mut ClientOperation> {
        self.operations.back_mut()
    }

    /// Forgets a command that blocks and is held back, and all behind it: nothing of that has been sent. The turns that
    /// these waited for.
    pub(crate) fn end_before_blocking(&mut self) -> VecDeque<RoomTurn> {
        let blocks = |operation: &ClientOperation| match &operation.progress {
            OperationProgress::Waiting(waiting) => {
                matches!(
                    waiting.routed.classified.kind,
                    CommandKind::BlockingWrite | CommandKind::BlockingQuery
                )
            }
            _ => false,
        };
        let Some(end) = self.operations.iter().position(blocks) else { return VecDeque::new() };
        self.waiting -= self.operations.range(end..).filter(|operation| operation.waiting()).count();
        self.held_bytes -= self.operations.range(end..).map(|operation| operation.held_bytes).sum::<usize>();
        self.operations.truncate(end);
        self.touched = None;
        let next = self.next();
        self.turns.split_off(self.turns.partition_point(|turn| turn.sequence < next))
    }

    /// The last operation on any of these digests.
    pub(crate) fn last_about(&self, digests: &[u64]) -> Option<u64> {
        let about =
            |operation: &ClientOperation| digests.iter().any(|digest| operation.touch.contains(*digest));
        self.operations.iter().rposition(about).map(|index| self.first + index as u64)
    }

    /// The oldest operation with its reply, if it has one: to be told, and then taken off with `pop`.
    #[inline]
    pub(crate) fn answered(&mut self) -> Option<(&mut ClientOperation, Bytes)> {
        let operation = self.operations.front_mut()?;
        let OperationProgress::Done(bytes) = &mut operation.progress else { return None };
        let bytes = std::mem::take(bytes);
        Some((operation, bytes))
    }

    /// The oldest operation has been told.
    #[inline]
    pub(crate) fn pop(&mut self) {
        let Some(operation) = self.operations.pop_front() else { return };
        self.first += 1;
        self.held_bytes -= operation.held_bytes;
        if self.operations.is_empty() {
            self.touched = None;
            if self.operations.capacity() > CAPACITY_KEPT {
                self.operations = VecDeque::new();
            }
        } else if let Some(touched) = &mut self.touched {
            touched.remove(&operation.touch);
        }
    }

    /// What the operations before `sequence` demand of one on `digest`. The last one on it that has not been answered decides: all
    /// before that one went where it went, and by the same lane, or it would not have been sent.
    pub(crate) fn order(&self, sequence: u64, digest: u64, lane: StorageLane) -> KeyOrder {
        let first = sequence == self.first;
        if first || self.touched.as_ref().is_some_and(|touched| !touched.contains(digest)) {
            return KeyOrder::Free;
        }
        let before = self.operations.range(..(sequence - self.first) as usize).rev();
        let mut orders = before.map(|operation| operation.join(digest, lane, KeyOrder::Free));
        let order = orders.find(|order| *order != KeyOrder::Free).unwrap_or(KeyOrder::Free);
        debug_assert_eq!(order, self.order_of_all(sequence, digest, lane));
        order
    }

    fn order_of_all(&self, sequence: u64, digest: u64, lane: StorageLane) -> KeyOrder {
        let mut order = KeyOrder::Free;
        for operation in self.operations.range(..(sequence - self.first) as usize) {
            order = operation.join(digest, lane, order);
            if order == KeyOrder::Wait {
                break;
            }
        }
        order
    }

    /// What the last of the waiting operations that concern watches leaves: whether keys are watched then.
    pub(crate) fn will_watch(&self) -> Option<bool> {
        self.operations.iter().rev().find_map(|operation| match &operation.progress {
            OperationProgress::Waiting(waiting) => match waiting.routed.way {
                CommandWay::Plain if waiting.routed.classified.kind == CommandKind::Watch => Some(true),
                CommandWay::EndsWatch(_) | CommandWay::Transaction { watched: true, .. } => Some(false),
                CommandWay::Plain | CommandWay::Transaction { .. } => None,
            },
            _ => None,
        })
    }

    /// Takes a waiting operation's command out to try it, and the turn that it waited for; `settle` puts the outcome in.
    pub(crate) fn take_waiting(&mut self, sequence: u64) -> Option<(Box<HeldCommand>, Option<RoomTurn>)> {
        let operation = self.get_mut(sequence).filter(|operation| operation.waiting())?;
        let taken = std::mem::replace(&mut operation.progress, OperationProgress::Done(Bytes::new()));
        self.waiting -= 1;
        let place = self.turns.binary_search_by_key(&sequence, |turn| turn.sequence);
        let turn = place.ok().and_then(|place| self.turns.remove(place));
        match taken {
            OperationProgress::Waiting(waiting) => Some((waiting, turn)),
            _ => unreachable!("it was waiting"),
        }
    }

    pub(crate) fn settle(&mut self, sequence: u64, progress: OperationProgress) {
        self.waiting += usize::from(matches!(progress, OperationProgress::Waiting(_)));
        if let Some(operation) = self.get_mut(sequence) {
            operation.progress = progress;
        }
    }

    /// The reads on `digest` that are in flight to `peer`, in their order, and whether the operation `sequence` is
    /// past being asked again: something else on that key writes, or something behind one of those reads has been answered.
    pub(crate) fn reads_at(&self, peer: Peer, sequence: u64, digest: u64) -> (SmallVec<[u64; 2]>, bool) {
        let (mut found, mut late) = (SmallVec::new(), false);
        let look = |sent: &SentRequest, found: &mut SmallVec<[u64; 2]>| match sent.read {
            true if sent.peer == peer => {
                found.push(sent.request);
                false
            }
            // Of the same command, which names the key twice.
            true => false,
            false => true,
        };
        for (at, operation) in (self.first..).zip(&self.operations) {
            if !operation.touch.contains(digest) {
                continue;
            }
            match &operation.progress {
                OperationProgress::Done(_) | OperationProgress::Streaming(_) => {
                    late |= at > sequence || !found.is_empty()
                }
                OperationProgress::Sent(sent) => late |= look(sent, &mut found),
                OperationProgress::Fan(fan) => {
                    for part in fan.parts.iter().filter(|part| part.touch.contains(&digest)) {
                        late |= match part.reply {
                            Some(_) => at > sequence || !found.is_empty(),
                            None => look(&part.sent, &mut found),
                        };
                    }
                }
                OperationProgress::Waiting(_) | OperationProgress::Handed => {}
            }
        }
        (found, late)
    }

    /// Every request of it that is in flight.
    pub(crate) fn requests(&self) -> impl Iterator<Item = u64> + '_ {
        self.operations.iter().flat_map(|operation| {
            let (single, fan) = match &operation.progress {
                OperationProgress::Sent(sent) => (Some(sent.request), None),
                OperationProgress::Fan(fan) => (None, Some(fan)),
                OperationProgress::Streaming(streaming) => (Some(streaming.request), None),
                OperationProgress::Waiting(_) | OperationProgress::Handed | OperationProgress::Done(_) => {
                    (None, None)
                }
            };
            let parts = fan.into_iter().flat_map(|fan| &fan.parts);
            single.into_iter().chain(parts.filter(|part| part.reply.is_none()).map(|part| part.sent.request))
        })
    }
}

#[cfg(test)]
mod tests {
    use wire::{NodeId, ShimId};

    use super::*;

    const SHIM: Peer = Peer::Shim(ShimId(0));
    const NODE: Peer = Peer::Node(NodeId(0));

    fn pipeline(sent: &[(Touch, Peer, bool)]) -> ClientPipeline {
        let mut pipeline = ClientPipeline::default();
        for (index, (touch, peer, read)) in sent.iter().enumerate() {
            let touch = match touch {
                Touch::Nothing => Touch::Nothing,
                Touch::One(digest) => Touch::One(*digest),
                Touch::Many(digests) => Touch::Many(digests.clone()),
                Touch::All => Touch::All,
            };
            let progress =
                OperationProgress::Sent(SentRequest { request: index as u64, peer: *peer, read: *read });
            pipeline.push(ClientOperation::new(Time(0), touch, progress));
        }
        pipeline
    }

    fn check(sent: &[(Touch, Peer, bool)], expected: KeyOrder) {
        let pipeline = pipeline(sent);
        assert_eq!(pipeline.order(pipeline.next(), 7, StorageLane::default()), expected);
    }

    #[test]
    fn other_keys_are_free() {
        check(&[], KeyOrder::Free);
        check(&[(Touch::One(8), SHIM, false)], KeyOrder::Free);
    }

    #[test]
    fn one_destination_can_be_followed() {
        check(&[(Touch::One(7), NODE, true)], KeyOrder::Follow(NODE));
        let mixed = [(Touch::One(7), SHIM, true), (Touch::Many([7, 9].into()), SHIM, false)];
        check(&mixed, KeyOrder::Follow(SHIM));
    }

    #[test]
    fn two_destinations_of_one_and_operations_that_run_alone_make_it_wait() {
        let mut pipeline = pipeline(&[]);
        let part = |request, peer| {
            let sent = SentRequest { request, peer, read: true };
            FanPart { sent, touch: SmallVec::from_slice(&[7]), reply: None }
        };
        let progress =
            OperationProgress::fan(vec![part(0, SHIM), part(1, NODE)], Merge::Values { places: None });
        pipeline.push(ClientOperation::new(Time(0), Touch::Many([7, 7].into()), progress));
        assert_eq!(pipeline.order(pipeline.next(), 7, StorageLane::default()), KeyOrder::Wait);
        check(&[(Touch::All, SHIM, false)], KeyOrder::Wait);
    }

    /// Whatever is known of what a long pipeline is about, it demands the same.
    #[test]
    fn long_pipelines_demand_what_short_ones_do() {
        let mut long = pipeline(&[]);
        for number in 0..200u64 {
            let touch = match number % 10 {
                0 => Touch::Many([number % 7, 90].into()),
                1 => Touch::Nothing,
                _ => Touch::One(number % 7),
            };
            let sent = SentRequest { request: number, peer: SHIM, read: true };
            long.push(ClientOperation::new(Time(0), touch, OperationProgress::Sent(sent)));
            assert_eq!(long.touched.is_some(), long.len() >= LONG);
        }
        let order = |long: &ClientPipeline, digest| long.order(long.next(), digest, StorageLane::default());
        let follow = KeyOrder::Follow(SHIM);
        assert_eq!([3, 90, 8].map(|digest| order(&long, digest)), [follow, follow, KeyOrder::Free]);
        for sequence in 0..200 {
            assert_eq!(order(&long, 3), follow, "199 is about it, and all before that is as well");
            long.settle(sequence, OperationProgress::Done(Bytes::new()));
            assert!(long.answered().is_some());
            long.pop();
        }
        assert!(long.touched.is_none() && order(&long, 3) == KeyOrder::Free);
    }

    #[test]
    fn an_answered_operation_orders_nothing() {
        let mut pipeline = pipeline(&[(Touch::One(8), SHIM, true), (Touch::One(7), SHIM, true)]);
        pipeline.settle(1, OperationProgress::Done(Bytes::new()));
        assert_eq!(pipeline.order(2, 7, StorageLane::default()), KeyOrder::Free);
        assert!(pipeline.answered().is_none(), "the front is not answered");
    }
}
